"""The stack of one machine: Java, jars, two Kafka brokers and Airflow's processes. Nothing here is a mock."""
