from __future__ import annotations

from streamplan.kafka.brokers import Brokers
from streamplan.pipelines.orders import PIPELINE
from streamplan.spark.deployment import Deployment


def test_of_a_partition_that_is_held_back_the_part_before_is_processed_and_all_of_the_others() -> None:
    until = {("orders", 0): 50, ("orders", 1): 90}
    held = Deployment(PIPELINE, Brokers("localhost:1"), "checkpoints", until=until, held={("orders", 1): 17})
    assert held.limits == {("orders", 0): 50, ("orders", 1): 17}
    assert held.within({("orders", 0): (0, 100), ("orders", 1): (10, 100), ("orders", 2): (0, 100)}) == {
        ("orders", 0): (0, 50),
        ("orders", 1): (10, 17),
        ("orders", 2): (0, 100),
    }
    assert held.within({("orders", 1): (17, 100)}) == held.within({("orders", 1): (100, 200)}) == {}


def test_without_limits_everything_is_processed() -> None:
    assert Deployment(PIPELINE, Brokers("localhost:1"), "checkpoints").within({("orders", 0): (3, 9)}) == {
        ("orders", 0): (3, 9)
    }
