"""Kubernetes, as far as a Spark driver in a pod needs it: the API server, and the driver's pod."""
