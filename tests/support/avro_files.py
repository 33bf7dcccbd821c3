"""Avro files with several types, made at random, each with the types in an order that every parser takes."""

from __future__ import annotations

from random import Random
from typing import Any

NAMESPACES = ("", "shop", "shop.old", "billing")


def file_with_types(random: Random) -> list[dict[str, Any]]:
    """Return the types of a file, each behind those that it names.

    Types stand for themselves or within the first record that has them. Names are written with their namespace, with
    the namespace beside them, or without one where it is that of the record around them.
    """
    file: list[dict[str, Any]] = []
    unplaced: dict[str, dict[str, Any]] = {}
    defined: list[str] = []
    for number in range(random.randint(2, 7)):
        namespace, name = random.choice(NAMESPACES), random.choice(("Line", "Order", "State", "Price")) + str(number)
        kind = random.choice(("record", "record", "enum", "fixed"))
        made = _definition(random, name, namespace, kind)
        is_placed = random.random() < 0.6
        waiting = set(unplaced)
        if kind == "record":
            made["fields"] = [
                {"name": f"f{place}", "type": _type_of_field(random, namespace, defined, unplaced), "doc": "ö"}
                for place in range(random.randint(1, 4))
            ]
        full = f"{namespace}.{name}" if namespace else name
        if is_placed:
            file.append(made)
        else:  # what stands in it cannot be named before it stands in the file
            unplaced[full] = made
            defined = [each for each in defined if each not in waiting - set(unplaced)]
        defined.append(full)
    file += unplaced.values()
    return file


def _definition(random: Random, name: str, namespace: str, kind: str) -> dict[str, Any]:
    made: dict[str, Any] = {"type": kind, "name": name, "namespace": namespace}
    if namespace and random.random() < 0.5:
        made = {"type": kind, "name": f"{namespace}.{name}"}
    if random.random() < 0.3:
        made["aliases"] = ["Former"]
    match kind:
        case "enum":
            made |= {"symbols": ["NEW", "PAID"], "doc": "its state"}
        case "fixed":
            made |= {"size": 8, "logicalType": "decimal", "precision": 9, "scale": 2}
    return made


def _type_of_field(random: Random, namespace: str, defined: list[str], unplaced: dict[str, dict[str, Any]]) -> Any:
    plain = random.choice(("string", "long", {"type": "int", "logicalType": "date"}))
    if not defined or random.random() < 0.3:
        return plain
    full = random.choice(defined)
    within, _, name = full.rpartition(".")
    if not within and namespace:  # fastavro looks for such a name within the namespace alone
        return plain
    named: Any = name if within == namespace and random.random() < 0.5 else full
    if full in unplaced:
        named = unplaced.pop(full)
        if within == namespace and "namespace" in named and random.random() < 0.5:
            del named["namespace"]
    match random.randrange(4):
        case 0:
            return ["null", named]
        case 1:
            return {"type": "array", "items": named}
        case 2:
            return {"type": "map", "values": named}
    return named
