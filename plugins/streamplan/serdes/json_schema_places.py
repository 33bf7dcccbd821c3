"""What a JSON Schema refers to, as places in one document. On the standard library alone.

A schema in a schema may have a name of its own, by ``$id`` or ``$anchor``, and then it is the base of what it refers
to. All references become pointers from the root of the document, and those names are left out. So whoever reads types
and whoever judges values find the same schema.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from urllib.parse import quote, unquote, urljoin

from streamplan.serdes.schema_source import WrittenSchema

_DEFINITIONS = "$streamplan"
"""Where the schemas that a schema refers to stand in it."""

_VALUES = ("const", "enum", "default", "examples", "example")
"""Words with values, which are no schemas even where they look like one."""

_BY_NAME = ("properties", "patternProperties", "definitions", "$defs", "dependentSchemas", "dependencies")
"""Words with schemas by their names. Each name is possible, also that of a word."""

_OLD_DRAFTS = ("draft-03", "draft-04")
"""Their word for ``$id`` is ``id``."""

_WITH_SIBLINGS = ("draft/2019-09", "draft/2020-12")
"""In all other drafts a reference has no other word beside it."""


def parse_json(text: str, name: str = "the schema") -> Any:
    """Read the JSON of a schema; a number with a point is a ``Decimal``.

    Raises:
        ValueError: It is no JSON.
    """
    try:
        return json.loads(text, parse_float=_number, parse_constant=_number)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is not JSON: {error}") from error


def _number(text: str) -> Decimal:
    """A number with a point or an exponent, as exact as it is; one too small for a double is 0."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a number that a double can be")
    return Decimal(text) if number else Decimal(0)


def bundled(written: WrittenSchema) -> Mapping[str, Any]:
    """Return a schema in which the schemas stand that it refers to. Each reference is a pointer, as ``#/$defs/Line``.

    Raises:
        ValueError: It is no object in JSON, or what it refers to is not there.
    """
    texts = written.flattened()
    parsed = parse_json(written.text)
    if not isinstance(parsed, dict):
        raise ValueError("the schema is not an object")
    found = _Names.of(parsed)
    others = {
        f"#/{_DEFINITIONS}/{number}": (name, parse_json(text, name))
        for number, (name, text) in enumerate(texts.items())
    }
    for place, (name, inner) in others.items():
        found.files[name] = place
        found.collect(inner, place, name)
    document: dict[str, Any] = found.placed(parsed, "#", "")
    document |= {name: parsed[name] for name in ("$id", "id") if name in parsed}
    if others:
        document[_DEFINITIONS] = {}
    for place, (name, inner) in others.items():
        placed = found.placed(inner, place, name)
        if isinstance(placed, dict):
            placed.pop("$schema", None)
        document[_DEFINITIONS][place.rpartition("/")[2]] = placed
    return document


def referenced_names(text: str) -> list[str]:
    """Return the names of other schemas that a schema refers to, each once.

    Raises:
        ValueError: It is no JSON.
    """
    parsed = parse_json(text)
    return _Names.of(parsed).names_of_others(parsed)


def conjuncts(
    document: Any, schema: Any, path: str, around: tuple[str, ...] = ()
) -> Iterator[tuple[Mapping[str, Any], tuple[str, ...]]]:
    """Yield a schema without ``allOf``, and then those that hold as well: in ``allOf``, or behind a reference.

    Each stands beside the references that lead to it.

    Args:
        document: A schema that :func:`bundled` has made.
        schema: A schema in it.
        path: Of the field that it is the schema of.
        around: The references that lead to the schema.

    Raises:
        ValueError: A reference leads to what contains it, or nowhere.
    """
    if not isinstance(schema, dict):
        return
    own = {name: part for name, part in schema.items() if name not in ("allOf", "$ref")}
    if "$ref" in schema:
        reference = schema["$ref"]
        if reference in around or reference == "#":
            shown = path or "the schema"
            raise ValueError(f"{shown}: {reference} contains itself. A field cannot have a recursive type")
        if not _with_siblings(document):
            own = {}
    yield own, around
    if "$ref" in schema:
        yield from conjuncts(document, at_place(document, reference, path), path, (*around, reference))
    if "allOf" in schema and ("$ref" not in schema or own):
        branches = schema["allOf"]
        if not isinstance(branches, list):
            raise ValueError(f"{path or 'the schema'}: allOf is a list of schemas")
        for branch in branches:
            yield from conjuncts(document, branch, path, around)


@dataclass
class _Names:
    """The schemas of a document that have names.

    Attributes:
        old: Whether ``id`` gives a name.
        siblings: Whether words beside a reference say something.
        places: By each name the place of its schema. A name is an address, with an anchor behind ``#``.
        bases: By the place of a schema with an address of its own that address.
        files: By the name of another schema its place.
    """

    old: bool
    siblings: bool
    places: dict[str, str] = field(default_factory=dict)
    bases: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, document: Any) -> _Names:
        """Return the names in a document."""
        found = cls(_is_of_draft(document, _OLD_DRAFTS), _with_siblings(document))
        found.collect(document, "#", "")
        for name in (document.get("$id"), document.get("id")) if isinstance(document, dict) else ():
            if isinstance(name, str) and name:
                found.places.setdefault(name.partition("#")[0], "#")
        return found

    def collect(self, schema: Any, place: str, base: str) -> None:
        """Note the names in a schema.

        Args:
            schema: The schema, at a place.
            place: Its pointer.
            base: The address that its names begin at.
        """
        self.places.setdefault(base, place)
        self.bases[place] = base
        for inner, at, around in self._schemas(schema, place, base):
            name, _, anchor = self._id(inner).partition("#")
            if name:
                around = urljoin(around, name)
                self.places.setdefault(around, at)
                self.bases[at] = around
            for each in (anchor, inner.get("$anchor"), inner.get("$dynamicAnchor")):
                if isinstance(each, str) and each:
                    self.places.setdefault(f"{around}#{each}", at)

    def names_of_others(self, schema: Any) -> list[str]:
        """Return the names in references that no schema in the document has, each once."""
        found: dict[str, None] = {}
        for inner, _, base in self._schemas(schema, "#", ""):
            if isinstance(reference := inner.get("$ref"), str):
                name = reference.partition("#")[0]
                if name and urljoin(self._base(inner, base), name) not in self.places:
                    found.setdefault(name)
        return [*found]

    def placed(self, schema: Any, place: str, base: str) -> Any:
        """Return a schema with pointers in place of names.

        Args:
            schema: The schema, at a place.
            place: Its pointer.
            base: The address that its names begin at.
        """
        if isinstance(schema, list):
            return [self.placed(part, f"{place}/{number}", base) for number, part in enumerate(schema)]
        if not isinstance(schema, dict):
            return schema
        base = self._base(schema, base)
        own = {"$id", "$anchor"} | ({"id"} if self.old and self._id(schema) else set())
        found: dict[str, Any] = {}
        for name, part in schema.items():
            if name in own and isinstance(part, str):
                continue
            at = _below(place, name)
            if name in _VALUES:
                found[name] = part
            elif name in _BY_NAME and isinstance(part, dict):
                found[name] = {each: self.placed(inner, _below(at, each), base) for each, inner in part.items()}
            else:
                found[name] = self.placed(part, at, base)
        if isinstance(reference := schema.get("$ref"), str):
            found["$ref"] = self._pointer(reference, base)
        return found

    def _schemas(self, schema: Any, place: str, base: str) -> Iterator[tuple[Mapping[str, Any], str, str]]:
        """Yield all schemas in a schema, each with its place and the address that it stands in."""
        if isinstance(schema, list):
            for number, part in enumerate(schema):
                yield from self._schemas(part, f"{place}/{number}", base)
        if not isinstance(schema, dict):
            return
        yield schema, place, base
        base = self._base(schema, base)
        for name, part in schema.items():
            if name in _BY_NAME and isinstance(part, dict):
                for each, inner in part.items():
                    yield from self._schemas(inner, _below(_below(place, name), each), base)
            elif name not in _VALUES:
                yield from self._schemas(part, _below(place, name), base)

    def _id(self, schema: Mapping[str, Any]) -> str:
        if "$ref" in schema and not self.siblings:
            return ""
        name = schema.get("id" if self.old else "$id")
        return name if isinstance(name, str) else ""

    def _base(self, schema: Mapping[str, Any], base: str) -> str:
        name = self._id(schema).partition("#")[0]
        return urljoin(base, name) if name else base

    def _pointer(self, reference: str, base: str) -> str:
        name, _, fragment = reference.partition("#")
        address = urljoin(base, name) if name else base
        place = self.files.get(name) or self.places.get(address) or self.files.get(address)
        if place is None:
            raise ValueError(
                f"it refers to {name}, which is not there: only files beside a schema are read, and nothing is fetched"
            )
        if not fragment or fragment.startswith("/"):
            return place + fragment
        named = self.places.get(f"{self.bases[place]}#{unquote(fragment)}")
        return reference if named is None else named


def _with_siblings(document: Any) -> bool:
    return _is_of_draft(document, _WITH_SIBLINGS)


def _is_of_draft(document: Any, drafts: tuple[str, ...]) -> bool:
    dialect = str(document.get("$schema", "")) if isinstance(document, dict) else ""
    return any(draft in dialect for draft in drafts)


def _below(place: str, name: str) -> str:
    return f"{place}/{quote(name.replace('~', '~0').replace('/', '~1'), safe='~', errors='replace')}"


def at_place(document: Any, reference: Any, path: str) -> Any:
    """Return the schema at a place of a document, as ``#/definitions/Line``.

    Args:
        document: A schema that :func:`bundled` has made.
        reference: The place.
        path: Of the field that refers to it.

    Raises:
        ValueError: There is none.
    """
    shown = path or "the schema"
    if not isinstance(reference, str):
        raise ValueError(f"{shown}: the reference {reference} is not of a form such as #/definitions/Line")
    found, there = document, reference == "#" or reference.startswith("#/")
    for step in unquote(reference[1:]).split("/")[1:] if there else ():
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, dict) and key in found:
            found = found[key]
        else:
            there = False
            break
    if not there:
        raise ValueError(f"{shown}: it refers to {reference}, which is not there")
    return found
