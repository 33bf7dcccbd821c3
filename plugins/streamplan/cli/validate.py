"""The command ``validate``: faults in declarations, expressions included.

Importing a declaration finds every fault that needs no Spark, and refuses the declaration with all of them. Where the
options name a Schema Registry, declared schemas are compared with what is registered.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from rich.console import Console

from streamplan.cli.brokers import add_broker_options, chosen_brokers
from streamplan.cli.command import Commands, add_pipelines
from streamplan.cli.output import plain_console, print_broken, quantity
from streamplan.cli.program import as_typed
from streamplan.errors import Refused, StreamplanError
from streamplan.kafka.brokers import PROPERTIES_VARIABLE
from streamplan.kafka.registered_schemas import compare_with_registry, has_schemas
from streamplan.kafka.schema_registry import URL, SchemaRegistry
from streamplan.model.assignment import large_assignment
from streamplan.model.diagnostics import Diagnostic, Faulty, refuse
from streamplan.model.pipeline import Pipeline
from streamplan.model.pitfalls import pitfalls
from streamplan.model.topology import Topology
from streamplan.model.unnamed import unnamed
from streamplan.model.unused import unused
from streamplan.programs import ExitStatus
from streamplan.registry import HOW_TO_REGISTER, BrokenPipeline, UnknownPipeline, chosen_pipelines
from streamplan.spark.submit import pyspark_home


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add(
        "validate",
        "look for faults in declarations, expressions included",
        description="Import the declarations, then ask a Spark on this machine about every expression. Show every "
        "fault with its line. If the client properties name a Schema Registry, compare declared schemas "
        "with the registered ones. Warn about stores and repartition topics without a name of their own, "
        "about streams, stores and fields that nobody uses, and about sizes that only the JVM library "
        "could not run. A warning says what it leads to, and is no fault. Make record 0 of the test data.",
        examples="%(prog)s orders --command-config client.properties",
        run=_run,
        done="no declaration has a fault",
        wrong="a declaration has a fault, or the registry has another schema",
    )
    add_broker_options(parser, servers="Kafka brokers, for a file of client properties that names none")
    parser.add_argument("-v", "--verbose", action="store_true", help="also show what Spark and its JVM log")
    add_pipelines(parser)


def _run(options: argparse.Namespace) -> int:
    pipelines, broken = chosen_pipelines(options.pipelines)
    if not pipelines and not broken:
        raise Refused("pipelines", expected="at least one", observed="none is registered", remedy=HOW_TO_REGISTER)
    unfinished = [each.error.topology for each in broken if isinstance(each.error, Faulty) and each.error.topology]
    found: list[Diagnostic] = []
    try:
        if pipelines or unfinished:
            found = _ask_spark(pipelines, unfinished, verbose=options.verbose)
    except Refused:  # PySpark is missing
        print_broken(broken)
        if pipelines:
            raise
    else:
        for each in broken:
            told, own = _with_further(each, pipelines, found)
            print_broken([told])
            found = [fault for fault in found if fault not in own]
    # What keeps a declaration from being imported is one of the faults that are looked for.
    statuses = {ExitStatus.REFUSED if isinstance(each.error, UnknownPipeline) else ExitStatus.WRONG for each in broken}
    if pipelines:
        console = plain_console()
        statuses |= _show_faults(pipelines, found, console)
        statuses |= _compare_schemas(pipelines, options, console)
    return min(statuses, default=ExitStatus.DONE)  # a fault that was found counts more than what could not be looked at


def _with_further(
    broken: BrokenPipeline, pipelines: Sequence[Pipeline], found: Sequence[Diagnostic]
) -> tuple[BrokenPipeline, list[Diagnostic]]:
    """Return what is broken with what Spark has found in the rest of the declaration, and that."""
    error = broken.error
    if not isinstance(error, Faulty) or error.topology is None:
        return broken, []
    files = {fault.location.file for fault in error.faults}
    of_others = {node.location for pipeline in pipelines for node in pipeline.topology.processors.nodes}
    own = [fault for fault in found if fault.location.file in files and fault.location not in of_others]
    # The declaration and Spark may have found the same: a field that there is not.
    names = [(fault.location, re.findall(r"no field '(\w+)'", fault.message)) for fault in error.faults]
    further = [
        fault
        for fault in own
        if not any(
            at == fault.location and f"no field {name!r}" in fault.message for at, these in names for name in these
        )
    ]
    try:
        refuse(error.subject.partition(" has ")[0], dict.fromkeys([*error.faults, *further]))
    except Faulty as with_all:
        broken = replace(broken, error=with_all)
    return broken, own


def _ask_spark(pipelines: Sequence[Pipeline], unfinished: Sequence[Topology], *, verbose: bool) -> list[Diagnostic]:
    """Return what Spark finds wrong with expressions.

    Raises:
        Refused: PySpark is missing.
    """
    pyspark_home()  # says what to do where PySpark is missing
    from streamplan.spark.planning.validation import find_diagnostics  # imports PySpark, which takes seconds

    with nullcontext() if verbose else _without_log():
        return find_diagnostics(pipelines, unfinished) if unfinished else find_diagnostics(pipelines)


def _show_faults(pipelines: Sequence[Pipeline], found: Sequence[Diagnostic], console: Console) -> set[ExitStatus]:
    """Show what Spark has found, and warnings. Return the exit status of a fault, if there is one."""
    remaining = [fault for fault in found if not fault.is_warning]
    told = [warning for warning in found if warning.is_warning]
    statuses = {ExitStatus.WRONG} if remaining else set()
    for pipeline in pipelines:
        lines = {node.location for node in pipeline.topology.processors.nodes}
        of_pipeline: list[Diagnostic | str] = [fault for fault in remaining if fault.location in lines]
        remaining = [fault for fault in remaining if fault.location not in lines]
        if pipeline.test_data is not None and (wrong := pipeline.test_data.fault(pipeline.source_serdes)):
            of_pipeline.append(wrong)
            statuses.add(ExitStatus.WRONG)
        verdict, style = (quantity(len(of_pipeline), "fault"), "red") if of_pipeline else ("ok", "green")
        console.print(f"{pipeline.name}: {verdict}", style=style)
        for fault in of_pipeline:
            console.print(f"  {fault}")
        warnings = [warning for warning in told if warning.location in lines]
        warnings += [*pitfalls(pipeline), *unnamed(pipeline.topology), *unused(pipeline)]
        if pipeline.is_resolved:
            warnings += large_assignment(pipeline.topology, pipeline.partition_counts)
        for warning in warnings:
            console.print(f"  warning: {warning}", style="yellow")
    for fault in remaining:
        console.print(str(fault))
    return statuses


@contextmanager
def _without_log() -> Iterator[None]:
    """Drop what this process, and the JVM that it starts, write to stderr: Spark's log and Java's stacks."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _compare_schemas(pipelines: Sequence[Pipeline], options: argparse.Namespace, console: Console) -> set[ExitStatus]:
    """Compare declared schemas with the registry, where one is named. Return the exit statuses of what is wrong."""
    chosen = options.command_config or options.bootstrap_servers or os.environ.get(PROPERTIES_VARIABLE)
    with_schemas = [pipeline for pipeline in pipelines if has_schemas(pipeline)]
    if not with_schemas:
        return set()
    brokers = chosen_brokers(options) if chosen else None
    if brokers is None or not brokers.registry.get(URL):
        console.print(f"declared schemas were not compared with a registry: --command-config names no file with {URL}")
        return set()
    statuses = set()
    for pipeline in with_schemas:
        console.print(f"{pipeline.name}, compared with the Schema Registry at {SchemaRegistry.of(brokers).address}:")
        try:
            for finding in compare_with_registry(pipeline, SchemaRegistry.of(brokers)):
                console.print(f"  {finding.sentence}", style="red" if finding.wrong else None)
                if finding.wrong:
                    statuses.add(ExitStatus.WRONG)
        except StreamplanError as error:  # the next pipeline has its own answer
            console.print(f"  {as_typed(str(error))}", style="red")
            statuses.add(ExitStatus.of(error))
    return statuses
