"""Kafka Streams' execution model on PySpark, deployed and checked by Airflow.

A declaration needs these names: ``from streamplan import Json, Pipeline, TestData, TimeWindows, Topology``, and perhaps
``Processor``, ``arrow_batch`` and the serdes ``Avro``, ``JsonSchema``, ``Protobuf``, ``String``, ``Integer``, ``Long``,
``Double``, ``UUID`` and ``Bytes``. ``F`` writes expressions without texts. Annotations may need ``KStream``,
``KTable``, ``KGroupedStream`` or ``KGroupedTable``. Each is imported when it is first used. So a process that needs one
part of the library does not import all of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamplan.model.expressions import Expression, F
    from streamplan.model.functions import arrow_batch
    from streamplan.model.kstream import (
        BranchedKStream,
        CogroupedKStream,
        GlobalKTable,
        KGroupedStream,
        KGroupedTable,
        KStream,
        KTable,
        WindowedCogroupedKStream,
        WindowedKStream,
    )
    from streamplan.model.pipeline import Limits, Pipeline, TestData
    from streamplan.model.processor import (
        STREAM_TIME,
        WALL_CLOCK_TIME,
        Cancellable,
        KeyValueStore,
        Processor,
        ProcessorContext,
        Record,
        SessionStore,
        TimestampedKeyValueStore,
        TimestampedWindowStore,
        VersionedKeyValueStore,
        WindowStore,
    )
    from streamplan.model.topology import Topology
    from streamplan.model.windows import (
        CalendarWindows,
        CustomWindows,
        JoinWindows,
        OnWindowClose,
        SessionWindows,
        SlidingWindows,
        TimeWindows,
        UntilTimeLimit,
        UntilWindowCloses,
        Versioned,
    )
    from streamplan.registry import pipeline_named, registered_pipelines
    from streamplan.serdes.avro import Avro
    from streamplan.serdes.json import Json
    from streamplan.serdes.json_schema import JsonSchema
    from streamplan.serdes.primitive import UUID, Bytes, Double, Integer, Long, String
    from streamplan.serdes.protobuf import Protobuf
    from streamplan.serdes.serde import Serde
    from streamplan.serdes.windowed import SessionWindowed, TimeWindowed

__version__ = "0.2.0.dev0"

__all__ = [
    "STREAM_TIME",
    "UUID",
    "WALL_CLOCK_TIME",
    "Avro",
    "BranchedKStream",
    "Bytes",
    "CalendarWindows",
    "Cancellable",
    "CogroupedKStream",
    "CustomWindows",
    "Double",
    "Expression",
    "F",
    "GlobalKTable",
    "Integer",
    "JoinWindows",
    "Json",
    "JsonSchema",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "KeyValueStore",
    "Limits",
    "Long",
    "OnWindowClose",
    "Pipeline",
    "Processor",
    "ProcessorContext",
    "Protobuf",
    "Record",
    "Serde",
    "SessionStore",
    "SessionWindowed",
    "SessionWindows",
    "SlidingWindows",
    "String",
    "TestData",
    "TimeWindowed",
    "TimeWindows",
    "TimestampedKeyValueStore",
    "TimestampedWindowStore",
    "Topology",
    "UntilTimeLimit",
    "UntilWindowCloses",
    "Versioned",
    "VersionedKeyValueStore",
    "WindowStore",
    "WindowedCogroupedKStream",
    "WindowedKStream",
    "arrow_batch",
    "pipeline_named",
    "registered_pipelines",
]

_MODULES = {
    "Avro": "streamplan.serdes.avro",
    "BranchedKStream": "streamplan.model.kstream",
    "Bytes": "streamplan.serdes.primitive",
    "CalendarWindows": "streamplan.model.windows",
    "Cancellable": "streamplan.model.processor",
    "CustomWindows": "streamplan.model.windows",
    "CogroupedKStream": "streamplan.model.kstream",
    "Double": "streamplan.serdes.primitive",
    "Expression": "streamplan.model.expressions",
    "F": "streamplan.model.expressions",
    "GlobalKTable": "streamplan.model.kstream",
    "Integer": "streamplan.serdes.primitive",
    "JoinWindows": "streamplan.model.windows",
    "Json": "streamplan.serdes.json",
    "JsonSchema": "streamplan.serdes.json_schema",
    "KGroupedStream": "streamplan.model.kstream",
    "KGroupedTable": "streamplan.model.kstream",
    "KStream": "streamplan.model.kstream",
    "KTable": "streamplan.model.kstream",
    "Limits": "streamplan.model.pipeline",
    "Long": "streamplan.serdes.primitive",
    "OnWindowClose": "streamplan.model.windows",
    "Pipeline": "streamplan.model.pipeline",
    "KeyValueStore": "streamplan.model.processor",
    "Processor": "streamplan.model.processor",
    "ProcessorContext": "streamplan.model.processor",
    "STREAM_TIME": "streamplan.model.processor",
    "WALL_CLOCK_TIME": "streamplan.model.processor",
    "SessionStore": "streamplan.model.processor",
    "TimestampedKeyValueStore": "streamplan.model.processor",
    "TimestampedWindowStore": "streamplan.model.processor",
    "VersionedKeyValueStore": "streamplan.model.processor",
    "WindowStore": "streamplan.model.processor",
    "Record": "streamplan.model.processor",
    "Protobuf": "streamplan.serdes.protobuf",
    "Serde": "streamplan.serdes.serde",
    "SessionWindowed": "streamplan.serdes.windowed",
    "SessionWindows": "streamplan.model.windows",
    "SlidingWindows": "streamplan.model.windows",
    "String": "streamplan.serdes.primitive",
    "TestData": "streamplan.model.pipeline",
    "TimeWindowed": "streamplan.serdes.windowed",
    "TimeWindows": "streamplan.model.windows",
    "Topology": "streamplan.model.topology",
    "UUID": "streamplan.serdes.primitive",
    "UntilTimeLimit": "streamplan.model.windows",
    "UntilWindowCloses": "streamplan.model.windows",
    "Versioned": "streamplan.model.windows",
    "WindowedCogroupedKStream": "streamplan.model.kstream",
    "WindowedKStream": "streamplan.model.kstream",
    "arrow_batch": "streamplan.model.functions",
    "pipeline_named": "streamplan.registry",
    "registered_pipelines": "streamplan.registry",
}


if not TYPE_CHECKING:  # a type checker would take every name for one that there is

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            from streamplan.model.words import answer_to_import

            answer = "" if name.startswith("_") else answer_to_import(name, __all__)
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}. {answer}".removesuffix(". "))
        return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *__all__])
