"""The orders topology with any number of partitions and any product type. ``growth.py`` runs it by spark-submit.

Arguments: bootstrap servers, partitions, directory for checkpoints, most records of a micro-batch (0 for the default).
"""

from __future__ import annotations

import sys

from streamplan.kafka.brokers import Brokers
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topology import Topology
from streamplan.programs import stop_on_signals
from streamplan.serdes.json import Json
from streamplan.spark.aggregator import run
from streamplan.spark.deployment import Deployment
from streamplan.spark.session import open_session

APPLICATION_ID = "growth"
STORE = "orders-products-quantities"


def counted(partitions: int) -> Pipeline:
    """Declare the pipeline."""
    topology = Topology(APPLICATION_ID)
    orders = topology.stream("orders", value=Json("Id string, ProductType int"))
    orders.group_by("ProductType", name=STORE).count(store=STORE)
    return Pipeline(
        name=APPLICATION_ID,
        topology=topology,
        description="Orders of any product type, counted.",
        topic_partitions={"orders": partitions},
        test_data=TestData(
            ("orders",), lambda n: ("orders", b"order_%d" % n, b'{"Id": "order_%d", "ProductType": %d}' % (n, n)), "Id"
        ),
    )


def main() -> None:
    """Run the pipeline until a signal."""
    servers, partitions, checkpoints, max_offsets = sys.argv[1:5]
    stop = stop_on_signals()
    spark = open_session(APPLICATION_ID)
    run(
        spark,
        Deployment(counted(int(partitions)), Brokers(servers), checkpoints, max_offsets=int(max_offsets) or None),
        available_now=False,
        trigger_interval_ms=500,
        stop=stop,
        report=print,
    )


if __name__ == "__main__":
    main()
