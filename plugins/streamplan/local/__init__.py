"""The stack of one machine: two Kafka brokers and Airflow, each a process that outlives the command that started it."""
