"""The commands ``list``, ``describe``, ``validate`` and ``plan``: declared pipelines, without Airflow or Kafka.

Declarations are imported when a command runs: one with faults is refused with all of them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from streamplan.errors import Refused
from streamplan.model.assignment import (
    MAX_MESSAGE_BYTES,
    Assignment,
    LoadPlan,
    assign,
    group_metadata_size,
    plan_load,
    stateful_tasks,
)
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import TaskId

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_EXAMPLE_SERVER = "streams-1.example.org:8080"


def register(commands: Subparsers) -> None:
    listing = _command(
        commands,
        "list",
        "the declared pipelines, one line each",
        "Show every declared pipeline: its name, application id, topics from outside, state stores, stream tasks.",
        "python -m streamplan list",
    )
    listing.set_defaults(run=_list)

    describe = _command(
        commands,
        "describe",
        "the topology of a pipeline, as Kafka Streams describes it",
        "Print what Topology.describe().toString() of Kafka Streams prints, and nothing else, so that it can be "
        "compared with diff.",
        "python -m streamplan describe orders | diff - described-by-the-old-application.txt",
    )
    describe.add_argument("pipeline", metavar="PIPELINE", help="the name of a declared pipeline")
    describe.set_defaults(run=_describe)

    validate = _command(
        commands,
        "validate",
        "look for faults in declarations, expressions included",
        "Import the declarations, then ask a Spark of its own on this machine about every expression. Every fault is "
        "told, with the line where it stands. Exit status 1 with faults.",
        "python -m streamplan validate orders",
    )
    validate.add_argument("pipelines", metavar="PIPELINE", nargs="*", help="names of pipelines (default: all)")
    validate.set_defaults(run=_validate)

    plan = _command(
        commands,
        "plan",
        "sub-topologies, topics and stream tasks of a pipeline, and who gets which",
        "Show what a pipeline consists of, and how Kafka Streams would deal its stream tasks to N instances that start "
        "together. With the loads of the tasks: how much of the work that gives each instance.",
        "python -m streamplan plan orders --instances 3 --load 1_0=90000 --load 1_1=10000",
    )
    plan.add_argument("pipeline", metavar="PIPELINE", help="the name of a declared pipeline")
    plan.add_argument("--instances", type=int, default=2, metavar="N", help="instances of one thread (default 2)")
    plan.add_argument(
        "--load",
        action="append",
        default=[],
        metavar="TASK=RECORDS",
        help="records, or bytes, of a stream task over some time, such as 1_0=90000; a task left out has 0",
    )
    plan.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT",
        help="measure the loads: how many records these brokers have ever had for each stream task to read",
    )
    plan.set_defaults(run=_plan)


def _command(commands: Subparsers, name: str, brief: str, text: str, example: str) -> argparse.ArgumentParser:
    return commands.add_parser(name, help=brief, description=text, epilog=f"Example: {example}")


def _all() -> tuple[Pipeline, ...]:
    from streamplan.pipelines import PIPELINES

    return PIPELINES


def _named(name: str) -> Pipeline:
    from streamplan.pipelines import pipeline_named

    return pipeline_named(name)


def _console() -> Console:
    return Console(markup=False, emoji=False, highlight=False, soft_wrap=True)  # lines stay whole in a pipe, too


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of columns, all of one width but the last."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


# -- list, describe, validate


def _list(options: argparse.Namespace) -> int:
    rows = [("PIPELINE", "APPLICATION", "READS", "WRITES", "STORES", "TASKS")]
    for pipeline in _all():
        topology = pipeline.topology
        stores = [store for subtopology in topology.subtopologies for store in subtopology.stores]
        rows.append(
            (
                pipeline.name,
                topology.application_id,
                ",".join(topology.source_topics),
                ",".join(topology.sink_topics) or "-",
                ",".join(stores) or "-",
                str(len(pipeline.tasks())),
            )
        )
    heading, *lines = _aligned(rows)
    console = _console()
    console.print(heading, style="bold")
    for line in lines:
        console.print(line)
    return 0


def _describe(options: argparse.Namespace) -> int:
    sys.stdout.write(_named(options.pipeline).topology.describe())
    return 0


def _validate(options: argparse.Namespace) -> int:
    pipelines = [_named(name) for name in dict.fromkeys(options.pipelines)] or [*_all()]
    from streamplan.spark.planning.validation import faults  # brings Spark, which takes seconds

    console = _console()
    left = faults(pipelines)
    status = 1 if left else 0
    for pipeline in pipelines:
        lines = {node.where for node in pipeline.topology.processors.nodes}
        own = [fault for fault in left if fault.where in lines]
        left = [fault for fault in left if fault.where not in lines]
        console.print(f"{pipeline.name}: {_count(len(own), 'fault') if own else 'ok'}", style="red" if own else "green")
        for fault in own:
            console.print(f"  {fault}")
    for fault in left:
        console.print(str(fault))
    return status


# -- plan


def _plan(options: argparse.Namespace) -> int:
    pipeline = _named(options.pipeline)
    if options.instances < 1:
        raise Refused("--instances", expected="1 or more", observed=str(options.instances))
    tasks = pipeline.tasks()
    load = _measured(pipeline, options.bootstrap_servers) if options.bootstrap_servers else {}
    load = _loads(options.load, tasks, load)
    stateful = stateful_tasks(pipeline.topology, tasks)
    parts = [
        _heading(pipeline),
        _subtopologies(pipeline),
        _topics(pipeline),
        _assignment(assign(tasks, options.instances, stateful=stateful), stateful),
        _group_metadata(pipeline, options.instances),
    ]
    if any(load.values()):
        parts.append(_load_shares(plan_load(load, options.instances, stateful=stateful)))
    _console().print(Text("\n").join(parts), end="")
    return 0


def _measured(pipeline: Pipeline, bootstrap_servers: str) -> dict[TaskId, int]:
    """By stream task the offsets of what it reads: its records, and a marker for each transaction."""
    from streamplan.kafka.cluster import KafkaCluster

    cluster = KafkaCluster(bootstrap_servers)
    load = dict.fromkeys(pipeline.tasks(), 0)
    for subtopology in pipeline.topology.subtopologies:
        for topic in pipeline.source_topics(subtopology):
            for partition, offsets in cluster.offsets(topic).items():
                load[TaskId(subtopology.id, partition)] += offsets.end
    return load


def _loads(given: Sequence[str], tasks: Sequence[TaskId], measured: Mapping[TaskId, int]) -> dict[TaskId, int]:
    """Of every task; where none was given what was measured, or 0."""
    load = dict.fromkeys(tasks, 0) | dict(measured)
    named = {str(task): task for task in tasks}
    for text in given:
        name, _, number = text.partition("=")
        if name not in named or not (number.isascii() and number.isdecimal()) or len(number) > 18:
            raise Refused(
                f"--load {text}",
                expected=f"TASK=RECORDS, a task being one of {', '.join(named)}",
                remedy=f"For example --load {next(iter(named))}=90000",
            )
        load[named[name]] = int(number)
    return load


def _heading(pipeline: Pipeline) -> Text:
    text = Text()
    text.append(pipeline.name, "bold").append(f"  application {pipeline.topology.application_id}\n")
    return text.append(f"{pipeline.description}\n")


def _subtopologies(pipeline: Pipeline) -> Text:
    topology, counts = pipeline.topology, pipeline.partition_counts
    text = Text().append("Sub-topologies\n", "bold")
    for subtopology in topology.subtopologies:
        text.append(f"  {subtopology.id}", "cyan")
        text.append(f"  {_count(pipeline.partitions(subtopology), 'stream task')}\n")
        for topic in pipeline.source_topics(subtopology):
            text.append(f"     reads   {topic} ({counts[topic]})\n")
        for store in subtopology.stores:
            text.append(f"     store   {store}, changelog {topology.changelog_topic(store)}\n")
        for topic in map(topology.decorate, subtopology.sink_topics):
            text.append(f"     writes  {topic} ({counts[topic]})\n")
    return text


def _topics(pipeline: Pipeline) -> Text:
    text = Text().append("Topics\n", "bold")
    for spec in pipeline.topics():
        text.append(f"  {spec.name}\n", "cyan")
        text.append(f"     {spec.role}, {_count(spec.partitions, 'partition')}\n")
        if spec.configs:
            text.append(f"     {'  '.join(f'{name}={value}' for name, value in spec.configs.items())}\n", "dim")
    return text


def _assignment(assignment: Assignment, stateful: Collection[TaskId]) -> Text:
    text = Text().append(f"Stream tasks on {_count(len(assignment.instances), 'instance')}\n", "bold")
    width = max(len(one.instance) for one in assignment.instances)
    for one in assignment.instances:
        text.append(f"  {one.instance:<{width}}  ", "cyan")
        if one.tasks:
            text.append("  ".join(f"{task}{'*' if task in stateful else ''}" for task in one.tasks)).append("\n")
        else:
            text.append("idle\n", "yellow")
    if stateful:
        text.append("  * with state; the instances stand in the order of their process ids\n", "dim")
    if assignment.idle:
        text.append(f"  Idle for want of stream tasks: {', '.join(assignment.idle)}\n", "yellow")
    return text


def _group_metadata(pipeline: Pipeline, instances: int) -> Text:
    topology, counts = pipeline.topology, pipeline.partition_counts
    text = Text().append("Group metadata, all assignments in one message\n", "bold")
    for count in sorted({instances, len(pipeline.tasks())}):
        for server, words in (("", ""), (_EXAMPLE_SERVER, f", each with application.server={_EXAMPLE_SERVER}")):
            size = group_metadata_size(topology, counts, instances=count, application_server=server)
            large = size > MAX_MESSAGE_BYTES
            text.append(f"  {size:,} of {MAX_MESSAGE_BYTES:,} bytes with {_count(count, 'instance')}{words}")
            text.append(": too large, no rebalance would succeed\n" if large else "\n", "red")
    return text


def _load_shares(plan: LoadPlan) -> Text:
    text = Text().append(f"Load, {sum(plan.load.values()):,} in all\n", "bold")
    for heading, assignment in (
        ("as Kafka Streams deals the tasks, by number", plan.by_count),
        ("if dealt by load, the greatest first", plan.by_load),
    ):
        text.append(f"  {heading}\n")
        rows = [
            (one.instance, f"{one.share:4.0%}", f"{one.load:,}", "  ".join(map(str, one.tasks)) or "idle")
            for one in plan.shares(assignment)
        ]
        text.append("".join(f"     {line}\n" for line in _aligned(rows)))
    for remark in plan.remarks():
        text.append(f"  {remark}\n")
    return text


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
