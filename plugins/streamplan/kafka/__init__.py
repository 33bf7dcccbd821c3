"""Everything that talks to Kafka: clients, reads, topics, groups, transactions and copies."""
