"""Finds any Kafka Streams application from what it left in Kafka."""
