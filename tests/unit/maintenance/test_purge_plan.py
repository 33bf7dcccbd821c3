from __future__ import annotations

from streamplan.maintenance.purge_plan import plan_purge


def test_the_reader_that_is_furthest_behind_decides() -> None:
    assert plan_purge({0: 0, 1: 5}, [{0: 10, 1: 20}, {0: 7, 1: 30}, {0: 9, 1: 21}]) == {0: 7, 1: 20}


def test_what_is_gone_already_is_not_deleted_again() -> None:
    assert plan_purge({0: 7, 1: 8}, [{0: 7, 1: 7}]) == {}


def test_a_partition_without_a_position_keeps_everything() -> None:
    assert plan_purge({0: 0, 1: 0}, [{0: 4, 1: 4}, {0: 4}]) == {0: 4}


def test_new_partitions_are_left_alone() -> None:
    assert plan_purge({0: 0}, [{0: 3, 1: 9}]) == {0: 3}
