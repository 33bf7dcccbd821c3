"""What runs in Spark's Python workers: rows in, one Kafka transaction for each stream task out."""
