"""What a declaration means: pure code, as Kafka Streams decides it, on the standard library alone."""
