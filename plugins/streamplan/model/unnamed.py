"""The stores and repartition topics that a declaration gives no name, so that the library's numbering names them.

The number is that of their place in the declaration. An operation that is added or removed before them changes it, and
then they are other topics: the new ones are empty, and the old ones are left over (KIP-1111).
"""

from __future__ import annotations

from collections.abc import Iterator

from streamplan.model.diagnostics import Diagnostic
from streamplan.model.operations import BUFFER, BufferRecords, SubscriptionReceive
from streamplan.model.topology import Topology

REPARTITION = "-repartition"

_OPERATION = "KSTREAM-REPARTITION-"
"""How the generated name of the operation ``repartition`` begins."""


def unnamed(topology: Topology) -> tuple[Diagnostic, ...]:
    """Return a warning for each store, and each repartition topic, whose name has a number.

    A repartition topic that is named after an unnamed store gets its name from that store, so it has no warning of its
    own.
    """
    return tuple(_warnings(topology))


def naming_of(name: str) -> str:
    """Return the argument that gives a store, or a repartition topic, the name that the numbering once gave it.

    Args:
        name: The generated name of the store, or that of the topic without application id and suffix.
    """
    if name.endswith(BUFFER):
        return f"name={name.removesuffix(BUFFER)!r}, at the join"
    if is_store(name):
        return f"store={name!r}"
    if name.startswith(_OPERATION):
        return f"repartition(name={name!r})"
    return f"name={name!r}, at the operation that sets the key"


def is_store(name: str) -> bool:
    """Whether a generated name is that of a store."""
    return "STATE-STORE-" in name or name.endswith(BUFFER)


def _warnings(topology: Topology) -> Iterator[Diagnostic]:
    generated, nodes = topology.generated_names, {node.name: node for node in topology.processors.nodes}
    repartitioned = {topic.name.removesuffix(REPARTITION): topic for topic in topology.repartition_topics}
    stores = [
        node
        for group in topology.subtopologies
        for node in group.processors
        if node.writes_store and node.store in generated
    ]
    for node in stores:
        store = str(node.store)
        if isinstance(node.operation, SubscriptionReceive):
            subject = f"the store {store!r} of a join by a foreign key, and its two topics, have no names of their own"
            hint = (
                "Give the join a name: name='…'. Where it is deployed already, this makes other topics: reset it then"
            )
            yield Diagnostic(node.location, f"{subject}, {_CONSEQUENCE}", hint)
            continue
        if isinstance(node.operation, BufferRecords):
            hint = _hint("name='…'", store)
            yield Diagnostic(node.location, f"the store {store!r} has no name of its own, {_CONSEQUENCE}", hint)
            continue
        subject = f"the store {store!r}{' and its repartition topic have' if store in repartitioned else ' has'}"
        yield Diagnostic(node.location, f"{subject} no name of its own, {_CONSEQUENCE}", _hint("store='…'", store))
    named_after_stores = {node.store for node in stores}
    for name, topic in repartitioned.items():
        if name in generated and name not in named_after_stores:
            location = nodes[name].location if name in nodes else topic.location
            where = "repartition(name='…')" if name.startswith(_OPERATION) else "name='…'"
            subject = f"the repartition topic {topic.name!r} has no name of its own"
            yield Diagnostic(location, f"{subject}, {_CONSEQUENCE}", _hint(where, name))


_CONSEQUENCE = (
    "but a number, which changes when an operation before it is added or removed. Then a new, empty one replaces it"
)


def _hint(argument: str, name: str) -> str:
    return (
        f"Give it a name: {argument}. Where it is deployed already, its present name keeps what it holds: "
        f"{naming_of(name)}. Name all that have numbers in one change"
    )
