"""What to do next about a wrong row of a check: a sentence for each check, and for each kind of row that needs another.

The command line, the task in Airflow, the Data Docs and the Streams page show the sentence under a check that failed.
"""

from __future__ import annotations

from enum import StrEnum

SET_CONFIG = (
    "kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics --entity-name TOPIC"
    " --add-config CONFIG=VALUE"
)
"""Kafka's command that sets a config of a topic."""

_THE_CONFIG = f"the config with {SET_CONFIG}, or without Kafka's tools with the script in docs/first-aid.md"


class Advice(StrEnum):
    """What to do next. A check has one of these sentences; a row can have another one."""

    COPARTITIONING = (
        "Find the producer of the records that are named, give it Kafka's partitioner (murmur2), and reset the"
        " application so that it reads its input again."
    )
    PARTITION_COUNTS = (
        "Do not change the topic back: move the application to the new number of partitions, or reset it and create the"
        " topic with the expected number."
    )
    CRC32 = "Set partitioner=murmur2_random in the producer, and write the records again."
    NULL_KEY = "Read the record at that offset with kafka-console-consumer.sh, and find out who wrote it."
    OWN_KEYS = (
        "If the keys of that store are not the keys of the records that its tasks read, as a Processor API store may"
        " have them, say so with --unjudged-store; else find who else writes to the changelog."
    )
    REPARTITION = f"Set {_THE_CONFIG}, before a record is deleted that is not consumed yet."
    REPLICAS = "Add replicas with kafka-reassign-partitions.sh."
    COMPACTION = f"Set {_THE_CONFIG}; the log cleaner then removes the superseded records by itself."
    LOG_CLEANER = (
        "Look into log-cleaner.log of the partition's leader, and restart a broker whose log cleaner has stopped."
    )
    TOTALS = (
        "Read the records that are named; if the changelog is wrong and the source is right, reset the application so"
        " that it counts again."
    )
    DEAD_LETTERS = (
        "Read the dead letters that are named, and process them again with a re-drive, or reset the application."
    )
    LAG = "Look whether an instance of the application runs, and into its log; start it if none does."
    HELD = (
        "Correct what processes the record, or send it to the dead-letter topic with STREAMPLAN_DEAD_LETTER, and start"
        " the aggregator again."
    )
    POSITIONS = (
        "Find out who deleted the topic, its records or the positions; then reset the application, or set its positions"
        " with kafka-consumer-groups.sh."
    )
    FOREIGN_MEMBER = "Stop the foreign member, or give it a group.id of its own."
    HANGING_TRANSACTION = "Find its producer with kafka-transactions.sh find-hanging, and abort the transaction."
    SKEW = "Choose a key that spreads the records, or declare the share with Limits(partition_share=...)."
    TOPICS = f"Declare what the topic has, or set {_THE_CONFIG}."
    MISSING_OWN = "Deploy the pipeline, which creates the topic, and look why it was deleted."
    MISSING_OF_OTHERS = "Ask the owner of the topic to create it, or correct its name in the declaration."
    MISSING_INTERNAL = (
        "Find out who deleted the topic, and reset the application with kafka-streams-application-reset.sh so that it"
        " creates the topic and its state again; if the logging of the store is off, say so with --unjudged-store."
    )
    NO_LEADER = "Start a broker that holds an in-sync replica of the partition."
    UNDER_REPLICATED = "Start the broker that is named, and look into its log if it runs."
    NAMES = "Give the repartition topics and stores shorter explicit names before the next deployment."
    COLLISION = "Rename one of the topics: Kafka refuses to create the second."
