"""A function on Arrow batches, and keys of several fields: what each shop earns with each product."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamplan import Json, Pipeline, TestData, Topology, arrow_batch

if TYPE_CHECKING:
    import pyarrow as pa

SALE = Json("id string, shop string, product int, quantity int, price bigint, cost bigint")


@arrow_batch
def with_margin(sales: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return the columns of the results: for each sale what is left of its price, in cents."""
    import pyarrow.compute as pc  # here, so that Airflow reads the declaration without it

    margin = pc.multiply(sales["quantity"], pc.subtract(sales["price"], sales["cost"]))
    return {"shop": sales["shop"], "product": sales["product"], "quantity": sales["quantity"], "margin": margin}


topology = Topology("shop-margins")
(
    topology.stream("shop-sales", value=SALE)
    .map_values(with_margin, schema="shop string, product int, quantity int, margin bigint")
    .group_by("struct(shop, product)", key_serde=Json("shop string, product int"), name="by-shop-and-product")
    .aggregate({"sold": "sum(quantity)", "margin": "sum(margin)"}, store="margins")
    .to_stream()
    .to("shop-margins")
)


def sale(n: int) -> tuple[str, bytes, bytes]:
    """Sale ``n``, in one of three shops, of one of ten products."""
    value = b'{"id": "sale_%d", "shop": "shop_%d", "product": %d, "quantity": %d, "price": %d, "cost": %d}' % (
        *(n, n % 3, n % 10, n % 4 + 1),
        *(100 * (n % 10) + 99, 80 * (n % 10) + n % 60),
    )
    return "shop-sales", b"receipt_%d" % (n // 2), value


PIPELINE = Pipeline(
    name="sales",
    topology=topology,
    description="Sums what each shop earns with each product, computed on Arrow batches.",
    topic_partitions={"shop-sales": 2, "shop-margins": 2},
    test_data=TestData(("shop-sales",), record=sale, number="id"),
)
