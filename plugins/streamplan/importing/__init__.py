"""Writes the declaration of a JVM Kafka Streams application from the text of its ``Topology.describe()``."""
