"""What all checks share: the check, the cluster, the application, and how to read while it runs."""
