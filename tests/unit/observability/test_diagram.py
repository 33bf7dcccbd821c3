"""The drawn topology: everything is there once, nothing overlaps, and arrows begin and end at what they join."""

from __future__ import annotations

import re
from itertools import combinations
from xml.etree import ElementTree

import pytest
from streamplan.checks.framework.application import application_of
from streamplan.model.pipeline import Pipeline
from streamplan.observability.diagram import Diagram, Shape, arrange, diagram_of, diagram_of_application, svg
from streamplan.pipelines import orders

from tests.support.examples import PIPELINES

every_pipeline = pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda pipeline: pipeline.name)
every_diagram = pytest.mark.parametrize(
    "diagram",
    [*map(diagram_of, PIPELINES), *(diagram_of_application(application_of(pipeline)) for pipeline in PIPELINES)],
    ids=[f"{kind}-{pipeline.name}" for kind in ("declared", "found") for pipeline in PIPELINES],
)
SVG = "{http://www.w3.org/2000/svg}"


def overlap(one: Shape, other: Shape) -> bool:
    beside = one.x + one.width <= other.x or other.x + other.width <= one.x
    above = one.y + one.height <= other.y or other.y + other.height <= one.y
    return not (beside or above)


def contains(box: Shape, node: Shape) -> bool:
    return (
        box.x <= node.x
        and box.y <= node.y
        and node.x + node.width <= box.x + box.width
        and node.y + node.height <= box.y + box.height
    )


def on_border(shape: Shape, x: float, y: float) -> bool:
    inside = shape.x - 0.1 <= x <= shape.x + shape.width + 0.1 and shape.y - 0.1 <= y <= shape.y + shape.height + 0.1
    at_side = min(abs(x - shape.x), abs(x - shape.x - shape.width)) < 0.1
    at_end = min(abs(y - shape.y), abs(y - shape.y - shape.height)) < 0.1
    return inside and (at_side or at_end)


def test_the_orders_topology() -> None:
    diagram = diagram_of(orders.PIPELINE)
    assert sorted((node.kind, node.name) for node in diagram.nodes) == [
        ("processor", "KSTREAM-AGGREGATE-0000000002"),
        ("processor", "orders-products-quantities"),
        ("processor", "orders-products-quantities-repartition-filter"),
        ("sink", "orders-products-quantities-repartition-sink"),
        ("source", "KSTREAM-SOURCE-0000000000"),
        ("source", "orders-products-quantities-repartition-source"),
        ("store", "orders-products-quantities"),
        ("topic changelog", "orders-aggregator-orders-products-quantities-changelog"),
        ("topic repartition", "orders-aggregator-orders-products-quantities-repartition"),
        ("topic source", "orders"),
    ]
    assert [box.name for box in diagram.boxes] == ["sub-topology 0", "sub-topology 1"]
    names = {node.id: node.name for node in diagram.nodes}
    assert ("orders", "KSTREAM-SOURCE-0000000000") in [(names[start], names[end]) for start, end, _ in diagram.edges]


def test_an_application_that_nobody_declared() -> None:
    diagram = diagram_of_application(application_of(orders.PIPELINE))
    prefix = "orders-aggregator-orders-products-quantities"
    names = {shape.id: shape.name for shape in (*diagram.nodes, *diagram.boxes)}
    assert [(names[start], names[end]) for start, end, _ in diagram.edges] == [
        ("orders", "sub-topology 0"),
        ("sub-topology 0", f"{prefix}-repartition"),
        (f"{prefix}-repartition", "sub-topology 1"),
        ("orders-products-quantities", f"{prefix}-changelog"),
    ]


@every_diagram
def test_nothing_overlaps_and_each_box_holds_its_nodes(diagram: Diagram) -> None:
    assert [pair for pair in combinations(diagram.nodes, 2) if overlap(*pair)] == []
    assert [pair for pair in combinations(diagram.boxes, 2) if overlap(*pair)] == []
    for node in diagram.nodes:
        around = [box for box in diagram.boxes if overlap(box, node)]
        assert [contains(box, node) for box in around] == ([] if node.topic else [True]), node.name


@every_diagram
def test_arrows_begin_and_end_at_what_they_join(diagram: Diagram) -> None:
    nodes = {shape.id: shape for shape in (*diagram.nodes, *diagram.boxes)}
    assert diagram.edges
    for start, end, path in diagram.edges:
        numbers = [float(number) for number in re.findall(r"-?[0-9.]+", path)]
        assert on_border(nodes[start], *numbers[:2]), (start, path)
        assert on_border(nodes[end], *numbers[-2:]), (end, path)
        assert nodes[end].y > nodes[start].y or nodes[end].x > nodes[start].x, "records flow to the right, or down"


@every_pipeline
def test_the_text_is_svg_and_names_the_topics(pipeline: Pipeline) -> None:
    root = ElementTree.fromstring(svg(diagram_of(pipeline)))
    assert root.tag == f"{SVG}svg"
    rates = [text.attrib["data-rate"] for text in root.iter(f"{SVG}text") if "data-rate" in text.attrib]
    groups = [group.attrib["data-topic"] for group in root.iter(f"{SVG}g") if "data-topic" in group.attrib]
    assert rates == groups
    assert set(map(pipeline.topology.decorate, pipeline.topology.source_topics)) <= set(groups)
    assert not [element for element in root.iter() if "style" in element.attrib]
    assert svg(diagram_of(pipeline)) == svg(diagram_of(pipeline))


def test_what_reaches_itself_is_laid_out_too() -> None:
    shapes = [Shape(name, name, "topic", 10, 10) for name in ("a", "b")]
    placed = arrange(shapes, [("a", "b"), ("b", "a")])
    assert placed[0].x < placed[1].x
