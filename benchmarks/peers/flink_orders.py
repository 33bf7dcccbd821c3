"""The orders topology in Flink SQL, through PyFlink, with the exactly-once sink of its Kafka connector.

``bench.py`` runs it in an environment of its own. Arguments: bootstrap servers, name of the application, topic of the
totals, directory for checkpoints, jar of the connector.

The options are those of Flink's documentation: mini-batches and two phases ("Performance Tuning" of the Table API),
RocksDB, and ``exactly-once`` with a prefix for the transactions (connector ``upsert-kafka``). Totals can be read when a
checkpoint has ended, so the interval of the checkpoints is as short as the others' commits can be.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment

CONFIGS = {
    "parallelism.default": "2",
    "execution.checkpointing.interval": "200 ms",
    "state.backend.type": "rocksdb",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "50 ms",
    "table.exec.mini-batch.size": "5000",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
}


def main() -> None:
    """Run it until a signal."""
    servers, application, totals, checkpoints, jar = sys.argv[1:6]
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    directory = Path(checkpoints).absolute().as_uri()
    for name, value in {
        **CONFIGS,
        "pipeline.jars": Path(jar).absolute().as_uri(),
        "execution.checkpointing.dir": directory,
    }.items():
        tables.get_config().set(name, value)
    tables.execute_sql(f"""
        CREATE TABLE orders (Id STRING, ProductType INT) WITH (
            'connector' = 'kafka',
            'topic' = 'orders',
            'properties.bootstrap.servers' = '{servers}',
            'properties.group.id' = '{application}',
            'scan.startup.mode' = 'earliest-offset',
            'format' = 'json'
        )""")
    tables.execute_sql(f"""
        CREATE TABLE totals (product STRING, total BIGINT, PRIMARY KEY (product) NOT ENFORCED) WITH (
            'connector' = 'upsert-kafka',
            'topic' = '{totals}',
            'properties.bootstrap.servers' = '{servers}',
            'properties.transaction.timeout.ms' = '600000',
            'key.format' = 'raw',
            'value.format' = 'raw',
            'value.fields-include' = 'EXCEPT_KEY',
            'sink.delivery-guarantee' = 'exactly-once',
            'sink.transactional-id-prefix' = '{application}'
        )""")
    tables.execute_sql("""
        INSERT INTO totals
        SELECT CAST(ProductType AS STRING), COUNT(*) FROM orders GROUP BY CAST(ProductType AS STRING)
    """).wait()


if __name__ == "__main__":
    main()
