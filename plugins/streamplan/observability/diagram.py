"""A topology, drawn: topics as nodes between sub-topologies, which are boxes with nodes of their own.

Records flow from left to right between the sub-topologies, and downwards inside of each. The same layout is used twice:
for the nodes of each sub-topology, and for the boxes with the topics between them. The page's style sheet has the
colours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from xml.sax.saxutils import escape, quoteattr

from streamplan.checks.framework.application import Application, SubtopologyTopics
from streamplan.model.operations import (
    BufferedJoin,
    BufferRecords,
    JoinFunction,
    SeveralTopics,
    StateStore,
    global_topics_of,
)
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Processor, Sink, Source, Subtopology
from streamplan.model.topics import TopicRole, TopicSpec

CHARACTER_WIDTH = 7.3
"""Pixels of one character of a monospaced font of 12 px."""

LONGEST_LABEL = 29
"""A longer label loses its middle. The whole name is in the title, which the browser shows when the mouse rests."""

_HEIGHT, _RATE_HEIGHT, _PADDING = 28.0, 16.0, 10.0
_COLUMN_GAP, _ROW_GAP, _HEADING, _LANE = 30.0, 18.0, 38.0, 9.0

Edge = tuple[str, str]


@dataclass(frozen=True)
class Shape:
    """A rectangle with a name. ``x`` and ``y`` are those of its upper left corner, in pixels.

    Attributes:
        id: Unique in the diagram.
        name: The whole name.
        kind: The class by which the style sheet colours it.
        width: Its width.
        height: Its height.
        topic: The topic that it stands for, where it stands for one.
    """

    id: str
    name: str
    kind: str
    width: float
    height: float
    x: float = 0.0
    y: float = 0.0
    topic: str = ""

    @property
    def label(self) -> str:
        """The name, without its middle where it is long."""
        if len(self.name) <= LONGEST_LABEL:
            return self.name
        half = (LONGEST_LABEL - 1) // 2
        return f"{self.name[:half]}…{self.name[-half:]}"


@dataclass(frozen=True)
class Diagram:
    """What is drawn.

    Attributes:
        width: In pixels.
        height: In pixels.
        boxes: The sub-topologies.
        nodes: Topics, sources, processors, stores and sinks.
        edges: Ids of two nodes, and the path of the arrow: records pass from the first to the second.
        title: What the diagram shows, for those who cannot see it.
    """

    width: float
    height: float
    boxes: Sequence[Shape]
    nodes: Sequence[Shape]
    edges: Sequence[tuple[str, str, str]]
    title: str


@dataclass
class _Box:
    shape: Shape
    nodes: list[Shape]
    edges: list[Edge]
    inputs: list[Edge] = field(default_factory=list)  # from a topic to a node, or to the box
    outputs: list[Edge] = field(default_factory=list)  # from a node, or from the box, to a topic


def diagram_of(pipeline: Pipeline) -> Diagram:
    """Lay the topology of a declared pipeline out."""
    topology = pipeline.topology
    boxes = [_box(subtopology, pipeline) for subtopology in topology.subtopologies]
    return _lay_out(boxes, pipeline.declared_topics(), pipeline.name)


def diagram_of_application(application: Application) -> Diagram:
    """Lay the topology of any application out, as far as it shows in Kafka: its topics and its state stores."""
    boxes = [_box_of_topics(subtopology, application.application_id) for subtopology in application.subtopologies]
    return _lay_out(boxes, application.topics, application.application_id)


def _lay_out(boxes: Sequence[_Box], specs: Iterable[TopicSpec], name: str) -> Diagram:
    edges = list(dict.fromkeys(edge for box in boxes for edge in (*box.inputs, *box.outputs)))
    used = {name for edge in edges for name in edge}
    topics = [
        _node(f"topic {spec.name}", spec.name, f"topic {spec.role}", topic=spec.name)
        for spec in specs
        if f"topic {spec.name}" in used and spec.role is not TopicRole.DEAD_LETTER
    ]
    owner = {node.id: box.shape.id for box in boxes for node in box.nodes}
    between = [(owner.get(start, start), owner.get(end, end)) for start, end in edges]
    placed = {shape.id: shape for shape in arrange([*topics, *(box.shape for box in boxes)], between)}
    nodes = {topic.id: placed[topic.id] for topic in topics}
    for box in boxes:
        box.shape = placed[box.shape.id]
        for node in box.nodes:
            nodes[node.id] = replace(node, x=node.x + box.shape.x, y=node.y + box.shape.y)
        box.nodes = [nodes[node.id] for node in box.nodes]
    joined = placed | nodes
    paths = []
    for box in boxes:
        paths += [(start, end, _down(joined[start], joined[end])) for start, end in box.edges]
        paths += [(topic, node, _into(joined[topic], joined[node], box)) for topic, node in box.inputs]
        paths += [(node, topic, _out_of(joined[node], joined[topic], box)) for node, topic in box.outputs]
    return Diagram(
        width=max((shape.x + shape.width for shape in placed.values()), default=0.0) + _PADDING,
        height=max((shape.y + shape.height for shape in placed.values()), default=0.0) + _PADDING,
        boxes=[placed[box.shape.id] for box in boxes],
        nodes=list(nodes.values()),
        edges=paths,
        title=f"Topology of {name}",
    )


def _box(subtopology: Subtopology, pipeline: Pipeline) -> _Box:
    topology, prefix = pipeline.topology, f"{subtopology.id} "
    nodes: list[Shape] = []
    box = _Box(Shape("", "", "", 0, 0), nodes, [])
    stores = dict.fromkeys(subtopology.stores)
    for node in subtopology.nodes:
        at = prefix + node.name
        match node:
            case Source(is_one_of_several=True):
                continue
            case Processor(operation=SeveralTopics(topics=topics)):
                nodes.append(_node(at, node.name, "source"))
                box.inputs += [(f"topic {topology.decorate(topic)}", at) for topic in topics]
                continue
            case Source(topic=topic):
                nodes.append(_node(at, node.name, "source"))
                box.inputs.append((f"topic {topology.decorate(topic)}", at))
            case Sink(topic=topic):
                nodes.append(_node(at, node.name, "sink"))
                box.outputs.append((at, f"topic {topology.decorate(topic)}"))
            case Processor(operation=StateStore(store=store)):  # the library has no node for it
                box.edges += [
                    (prefix + before, f"{prefix}store {store}") for before in subtopology.predecessors[node.name]
                ]
                continue
            case Processor(operation=BufferRecords() | JoinFunction()):  # neither for these, which belong to a join
                continue
            case Processor(operation=BufferedJoin(buffer=buffer)):
                nodes.append(_node(at, node.name, "processor"))
                box.edges.append((at, f"{prefix}store {buffer}"))
            case Processor(store=store):
                nodes.append(_node(at, node.name, "processor"))
                if store is not None and node.writes_store:
                    box.edges.append((at, f"{prefix}store {store}"))
        box.edges += [(prefix + before, at) for before in subtopology.of_library_before(node)]
        if isinstance(node, Processor):
            box.inputs += [(f"topic {topic}", at) for topic in global_topics_of(node.operation)]
    for store in stores:
        at = f"{prefix}store {store}"
        nodes.append(_node(at, store, "store"))
        box.outputs.append((at, f"topic {topology.changelog_topic(store)}"))
    sinks = [node.id for node in nodes if node.kind == "sink"]
    turned = arrange(map(_turned, nodes), box.edges, last=sinks, gap=_ROW_GAP + 4)
    arranged = [_turned(node) for node in turned]
    box.nodes = [replace(node, x=node.x + _PADDING, y=node.y + _HEADING) for node in arranged]
    box.shape = _around(box.nodes, f"sub-topology {subtopology.id}")
    return box


def _box_of_topics(subtopology: SubtopologyTopics, application_id: str) -> _Box:
    """Return a box with the state stores. Which processors there are, nothing in Kafka says."""
    nodes: list[Shape] = []
    for changelog in subtopology.changelogs:
        store = changelog.removeprefix(f"{application_id}-").removesuffix("-changelog")
        y = _HEADING + len(nodes) * (_HEIGHT + _ROW_GAP)
        nodes.append(replace(_node(f"{subtopology.name} store {store}", store, "store"), x=_PADDING, y=y))
    shape = _around(nodes, subtopology.name)
    return _Box(
        shape,
        nodes,
        [],
        inputs=[(f"topic {topic}", shape.id) for topic in subtopology.sources],
        outputs=[
            *((node.id, f"topic {changelog}") for node, changelog in zip(nodes, subtopology.changelogs, strict=True)),
            *((shape.id, f"topic {topic}") for topic in subtopology.outputs),
        ],
    )


def _around(nodes: Sequence[Shape], name: str) -> Shape:
    """Return the rectangle of a sub-topology with these nodes."""
    shape = Shape(f"box {name}", name, "subtopology", 0.0, 0.0)
    widths = [*(node.x + node.width for node in nodes), len(shape.label) * CHARACTER_WIDTH + _PADDING]
    height = max([*(node.y + node.height for node in nodes), _HEADING]) + 2 * _PADDING
    return replace(shape, width=max(widths) + _PADDING, height=height)


def _node(at: str, name: str, kind: str, *, topic: str = "") -> Shape:
    shape = Shape(at, name, kind, 0.0, _HEIGHT + (_RATE_HEIGHT if topic else 0.0), topic=topic)
    return replace(shape, width=len(shape.label) * CHARACTER_WIDTH + 2 * _PADDING)


def _turned(shape: Shape) -> Shape:
    """Return the shape with its columns as rows, so that a layout to the right becomes one downwards."""
    return replace(shape, width=shape.height, height=shape.width, x=shape.y, y=shape.x)


def arrange(
    shapes: Iterable[Shape], edges: Iterable[Edge], *, last: Iterable[str] = (), gap: float = _COLUMN_GAP
) -> list[Shape]:
    """Give shapes their places: columns by the longest path to a shape, rows near those that come before it.

    Args:
        shapes: Without places. A pair of shapes that reach each other goes by the order of this list.
        edges: Pairs of ids.
        last: The ids of shapes that stand in the last column, where nothing is between them and the border.
        gap: The space between two columns.

    Returns:
        The shapes in the same order, none of which overlaps another.
    """
    shapes, edges = list(shapes), list(edges)
    column = _columns([shape.id for shape in shapes], edges)
    end = max(column.values(), default=0)
    column |= dict.fromkeys(last, end)
    columns: list[list[Shape]] = [[shape for shape in shapes if column[shape.id] == n] for n in range(end + 1)]
    columns = [members for members in columns if members]
    height = max((_height(members) for members in columns), default=0.0)
    placed: dict[str, Shape] = {}
    x = 0.0
    for members in columns:
        y = (height - _height(members)) / 2
        for shape in sorted(members, key=lambda shape: _barycentre(shape.id, edges, placed)):
            placed[shape.id] = replace(shape, x=x, y=y)
            y += shape.height + _ROW_GAP
        x += max(shape.width for shape in members) + gap
    return [placed[shape.id] for shape in shapes]


def _height(members: Sequence[Shape]) -> float:
    return sum(shape.height for shape in members) + _ROW_GAP * (len(members) - 1)


def _barycentre(name: str, edges: Iterable[Edge], placed: Mapping[str, Shape]) -> float:
    """Return the mean height of what comes before a shape."""
    before = [placed[start] for start, end in edges if end == name and start in placed]
    return sum(shape.y + shape.height / 2 for shape in before) / len(before) if before else 0.0


def _columns(names: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """Return the length of the longest path to each name. An edge that closes a circle does not count."""
    successors = {name: [end for start, end in edges if start == name] for name in names}
    finished: list[str] = []
    closing: set[Edge] = set()
    visiting: set[str] = set()

    def visit(name: str) -> None:
        visiting.add(name)
        for successor in successors[name]:
            if successor in visiting:
                closing.add((name, successor))
            elif successor not in finished:
                visit(successor)
        visiting.remove(name)
        finished.append(name)

    for name in names:
        if name not in finished:
            visit(name)
    column = dict.fromkeys(names, 0)
    for name in reversed(finished):
        for successor in successors[name]:
            if (name, successor) not in closing:
                column[successor] = max(column[successor], column[name] + 1)
    return column


def svg(diagram: Diagram) -> str:
    """Return the diagram as the text of an SVG document, with class names for the style sheet."""
    width, height = f"{diagram.width:.0f}", f"{diagram.height:.0f}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label={quoteattr(diagram.title)}'
        f' viewBox="{-_PADDING:.0f} {-_PADDING:.0f} {diagram.width + _PADDING:.0f} {diagram.height + _PADDING:.0f}"'
        f' width="{width}" height="{height}">',
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L8 4L0 8z"/></marker></defs>',
    ]
    for box in diagram.boxes:
        lines.append(
            f'<g class="subtopology" data-subtopology={quoteattr(box.name)} tabindex="0">'
            f"<title>{escape(box.name)}</title>{_rectangle(box)}"
            f'<text x="{box.x + _PADDING:.1f}" y="{box.y + 17:.1f}">{escape(box.label)}</text></g>'
        )
    lines += [f'<path class="edge" d="{path}" marker-end="url(#arrow)"/>' for _, _, path in diagram.edges]
    lines += [_drawn(node) for node in diagram.nodes]
    return "\n".join([*lines, "</svg>"])


def _drawn(node: Shape) -> str:
    topic = f' data-topic={quoteattr(node.topic)} tabindex="0"' if node.topic else ""
    text = f'<text x="{node.x + _PADDING:.1f}" y="{node.y + 18:.1f}">{escape(node.label)}</text>'
    if node.topic:
        at = f'x="{node.x + _PADDING:.1f}" y="{node.y + 18 + _RATE_HEIGHT:.1f}"'
        text += f'<text class="rate" data-rate={quoteattr(node.topic)} {at}></text>'
    title = f"<title>{escape(node.name)}</title>"
    return f"<g class={quoteattr(node.kind)}{topic}>{title}{_rectangle(node)}{text}</g>"


def _rectangle(shape: Shape) -> str:
    radius = {"store": 12, "subtopology": 10}.get(shape.kind, 4)
    place = f'x="{shape.x:.1f}" y="{shape.y:.1f}" width="{shape.width:.1f}" height="{shape.height:.1f}"'
    return f'<rect {place} rx="{radius}"/>'


def _down(start: Shape, end: Shape) -> str:
    """Return the path from the lower side of a node to the upper side of one below it."""
    x1, y1, x2, y2 = start.x + start.width / 2, start.y + start.height, end.x + end.width / 2, end.y
    bend = (y2 - y1) / 2
    return f"M{x1:.1f} {y1:.1f}C{x1:.1f} {y1 + bend:.1f} {x2:.1f} {y2 - bend:.1f} {x2:.1f} {y2:.1f}"


def _across(x1: float, y1: float, x2: float, y2: float) -> str:
    bend = max((x2 - x1) / 2, _COLUMN_GAP / 2)
    return f"C{x1 + bend:.1f} {y1:.1f} {x2 - bend:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"


def _into(topic: Shape, node: Shape, box: _Box) -> str:
    """Return the path from a topic to a node: to its left side, or above the nodes that stand left of it."""
    x, y = topic.x + topic.width, topic.y + topic.height / 2
    middle = node.y + node.height / 2
    if all(other.x >= node.x for other in box.nodes if other.y == node.y):
        return f"M{x:.1f} {y:.1f}{_across(x, y, node.x, middle)}"
    lane, over = node.y - _LANE, node.x + node.width / 2
    return (
        f"M{x:.1f} {y:.1f}{_across(x, y, box.shape.x, lane)}"
        f"H{over - _LANE:.1f}Q{over:.1f} {lane:.1f} {over:.1f} {node.y:.1f}"
    )


def _out_of(node: Shape, topic: Shape, box: _Box) -> str:
    """Return the path from a node to a topic: from its right side, or below the nodes that stand right of it."""
    x, y = topic.x, topic.y + topic.height / 2
    right, middle = node.x + node.width, node.y + node.height / 2
    if all(other.x <= node.x for other in box.nodes if other.y == node.y):
        return f"M{right:.1f} {middle:.1f}{_across(right, middle, x, y)}"
    bottom, under, edge = node.y + node.height, node.x + node.width / 2, box.shape.x + box.shape.width
    lane = bottom + _LANE
    return (
        f"M{under:.1f} {bottom:.1f}Q{under:.1f} {lane:.1f} {under + _LANE:.1f} {lane:.1f}"
        f"H{edge:.1f}{_across(edge, lane, x, y)}"
    )
