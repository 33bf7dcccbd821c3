"""The real Kafka Streams on a JVM of its own, through py4j, and what it takes to call its internals."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from streamplan.adapters.embedded.jars import JarSet, require
from streamplan.adapters.embedded.java import require_java

STREAMS = "org.apache.kafka.streams"


@contextmanager
def java(*jar_sets: JarSet) -> Iterator[Any]:
    """``gateway.jvm`` with these jars; the JVM is gone afterwards."""
    jars = [jar for jar_set in jar_sets for jar in sorted(require(jar_set, os.environ).glob("*.jar"))]
    port, process = launch_gateway(
        classpath=os.pathsep.join(map(str, jars)),
        java_path=str(require_java(os.environ) / "bin" / "java"),
        javaopts=["-Xmx512m"],
        die_on_exit=True,
        redirect_stderr=subprocess.DEVNULL,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        process.kill()  # its threads may be in the middle of anything, and nobody needs what they do
        process.wait(30)


def collection(jvm: Any, items: Iterable[Any], kind: str = "ArrayList") -> Any:
    made = getattr(jvm.java.util, kind)()
    for item in items:
        made.add(item)
    return made


def java_map(jvm: Any, items: Mapping[Any, Any], kind: str = "HashMap") -> Any:
    made = getattr(jvm.java.util, kind)()
    for key, value in items.items():
        made.put(key, value)
    return made


def map_of_longs(jvm: Any, items: Mapping[Any, int]) -> Any:
    """``Map<…, Long>``: py4j would make an Integer of a number that fits one."""
    made = jvm.java.util.HashMap()
    (put,) = (method for method in made.getClass().getMethods() if method.getName() == "put")
    for key, value in items.items():
        entry = collection(jvm, [key, None]).toArray()
        boxed = jvm.java.util.stream.LongStream.of(value).boxed().toArray()
        jvm.java.lang.System.arraycopy(boxed, 0, entry, 1, 1)
        put.invoke(made, entry)
    return made


def properties(jvm: Any, items: Mapping[str, str]) -> Any:
    made = jvm.java.util.Properties()
    for key, value in items.items():
        made.setProperty(key, value)
    return made


def new(jvm: Any, name: str, *arguments: Any) -> Any:
    """An object of a class that is not public."""
    for constructor in jvm.java.lang.Class.forName(name).getDeclaredConstructors():
        if constructor.getParameterCount() == len(arguments):
            constructor.setAccessible(True)
            return constructor.newInstance(collection(jvm, arguments).toArray())
    raise LookupError(f"{name} has no constructor of {len(arguments)} arguments")


def call(jvm: Any, target: Any, method: str, *arguments: Any) -> Any:
    """A method of an object's class, or of one above it, that is not public."""
    kind = target.getClass()
    while kind is not None:
        for declared in kind.getDeclaredMethods():
            if declared.getName() == method and declared.getParameterCount() == len(arguments):
                declared.setAccessible(True)
                return declared.invoke(target, collection(jvm, arguments).toArray())
        kind = kind.getSuperclass()
    raise LookupError(f"{target.getClass().getName()} has no method {method} of {len(arguments)} arguments")


def field(target: Any, name: str) -> Any:
    """The value of a field that is not public."""
    declared = target.getClass().getDeclaredField(name)
    declared.setAccessible(True)
    return declared.get(target)
