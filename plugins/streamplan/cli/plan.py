"""The command ``plan``: what a pipeline consists of, which instance would get which stream task, what a change does."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence

from rich.text import Text

from streamplan.cli.brokers import add_broker_options, chosen_brokers
from streamplan.cli.command import Commands, add_pipeline, at_least, declared_pipeline, refuse_ignored
from streamplan.cli.evolution import show_evolution
from streamplan.cli.output import align_columns, plain_console, quantity
from streamplan.errors import WrongUsage
from streamplan.kafka.brokers import Brokers
from streamplan.maintenance.redrive_plan import possible_redrive
from streamplan.model.assignment import (
    MAX_MESSAGE_BYTES,
    Assignment,
    LoadPlan,
    assign,
    group_metadata_size,
    large_assignment,
    plan_load,
    stateful_tasks,
)
from streamplan.model.linking import links_of_start
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import TaskId
from streamplan.model.unnamed import unnamed

_DESCRIPTION = """\
Show what a pipeline consists of, and how Kafka Streams would assign its stream tasks to N instances that start
together. With the loads of the tasks it also shows how much of the work each instance would get.

With --against-cluster the declaration is compared with what its application has left in Kafka (topics, configs,
committed positions, members) and in the checkpoints (STREAMPLAN_CHECKPOINTS). Nothing is written. Each part is
  kept       it goes on where it is, with its state
  rebuilt    its state is read again from its changelog at the next start
  new        it begins empty; the plan says from where
  created    the deployment creates this topic
  orphaned   the topic stays, and nothing reads or writes it any more
  not known  only a checkpoint tells it, and this machine does not have that checkpoint
  beside     the application is the candidate of an upgrade; its aggregator starts after the upgrade
  refused    the deployment or the start is refused, or would go on with wrong values
"""

_EXAMPLES = """\
%(prog)s orders --instances 3 --load 1_0=90000 --load 1_1=10000
%(prog)s orders --against-cluster --bootstrap-servers kafka-1:9092
"""

_INSTANCES = 2

_SERVER = f"{22 * 'h'}:8080"
"""Stands for any ``application.server`` of its length."""


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add(
        "plan",
        "show sub-topologies, topics and stream tasks, or what a changed declaration would do",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
        run=_run,
        wrong="with --against-cluster: something is refused",
    )
    add_pipeline(parser)
    parser.add_argument(
        "--instances", type=at_least(1), metavar="N", help=f"instances of one thread (default: {_INSTANCES})"
    )
    parser.add_argument(
        "--load",
        action="append",
        default=[],
        metavar="TASK=RECORDS",
        help="records, or bytes, of a stream task over some time, such as 1_0=90000; a task left out has 0",
    )
    parser.add_argument(
        "--against-cluster",
        action="store_true",
        help="show what the next deployment and start would do to what the application has already, and why",
    )
    parser.add_argument("--json", action="store_true", help="with --against-cluster: print one JSON object")
    add_broker_options(
        parser,
        servers="measure the loads: how many records these brokers have ever had for each stream task to read; with "
        "--against-cluster: these brokers (default: those that `python -m streamplan up` starts)",
    )


def _run(options: argparse.Namespace) -> int:
    pipeline = declared_pipeline(options)
    if options.against_cluster:
        refuse_ignored(options, "instances", "load", beside="--against-cluster")
        return show_evolution(pipeline, options)
    refuse_ignored(options, "json", without="--against-cluster")
    instances = options.instances or _INSTANCES
    measured: Mapping[TaskId, int] = {}
    if options.bootstrap_servers or options.command_config:
        from streamplan.kafka.topics import resolve_pipeline

        brokers = chosen_brokers(options)
        pipeline = resolve_pipeline(pipeline, brokers)
        measured = _measured_load(pipeline, brokers)
    if not pipeline.is_resolved:
        return _show_unresolved(pipeline, options.load)
    tasks = pipeline.tasks()
    load = _load_of_tasks(options.load, tasks, measured)
    stateful = stateful_tasks(pipeline.topology, tasks)
    parts = [
        _heading(pipeline),
        _subtopologies(pipeline),
        _topics(pipeline),
        _dead_letters(pipeline),
        _assignment(assign(tasks, instances, stateful=stateful), stateful),
        _group_metadata(pipeline, instances),
    ]
    if any(load.values()):
        parts.append(_load_shares(plan_load(load, instances, stateful=stateful)))
    parts += _warnings(pipeline)
    plain_console().print(Text("\n").join(parts), end="")
    return 0


def _show_unresolved(pipeline: Pipeline, loads: Sequence[str]) -> int:
    """Show what does not depend on the partition counts of external topics."""
    others = ", ".join(pipeline.topics_of_others)
    if loads:
        _ = pipeline.partition_counts  # refused: there are no tasks that could have a load
    remark = Text(f"{others}: as many partitions as the cluster has. With --bootstrap-servers all counts are shown.\n")
    parts = [_heading(pipeline), _subtopologies(pipeline), _topics(pipeline), _dead_letters(pipeline), remark]
    parts += _warnings(pipeline)
    plain_console().print(Text("\n").join(parts), end="")
    return 0


def _count(partitions: int, unit: str) -> str:
    return quantity(partitions, unit) if partitions else f"as many {unit}s as the cluster has"


def _measured_load(pipeline: Pipeline, brokers: Brokers) -> dict[TaskId, int]:
    """Ask the brokers how many offsets each stream task has to read: its records, and a marker for each transaction."""
    from streamplan.kafka.cluster import KafkaCluster

    cluster = KafkaCluster(brokers)
    load = dict.fromkeys(pipeline.tasks(), 0)
    for subtopology in pipeline.topology.subtopologies:
        for topic in pipeline.source_topics(subtopology):
            for partition, offsets in cluster.offsets(topic).items():
                load[TaskId(subtopology.id, partition)] += offsets.high_watermark
    return load


def _load_of_tasks(given: Sequence[str], tasks: Sequence[TaskId], measured: Mapping[TaskId, int]) -> dict[TaskId, int]:
    """Return the load of every task: what was given, else what was measured, else 0."""
    load = dict.fromkeys(tasks, 0) | dict(measured)
    named = {str(task): task for task in tasks}
    for text in given:
        name, _, number = text.partition("=")
        if name not in named or not (number.isascii() and number.isdecimal()) or len(number) > 18:
            raise WrongUsage(
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
    topology = pipeline.topology
    counts = {spec.name: f" ({spec.partitions})" if spec.partitions else "" for spec in pipeline.declared_topics()}
    text = Text().append("Sub-topologies\n", "bold")
    for subtopology in topology.subtopologies:
        text.append(f"  {subtopology.id}", "cyan")
        tasks = pipeline.partitions(subtopology) if pipeline.is_resolved else 0
        text.append(f"  {_count(tasks, 'stream task')}\n")
        for topic in pipeline.source_topics(subtopology):
            text.append(f"     reads   {topic}{counts[topic]}\n")
        for topic in subtopology.global_topics:
            text.append(f"     joins   {topic}{counts[topic]}, a global table: each stream task reads all of it\n")
        for link in links_of_start(topology):
            if link.reader == subtopology:
                text.append(
                    f"     linked  with sub-topology {link.writer.id}: one query does both, and reads nothing back\n"
                )
        for store in subtopology.stores:
            text.append(f"     store   {store}, changelog {topology.changelog_topic(store)}\n")
        for topic in map(topology.decorate, subtopology.sink_topics):
            text.append(f"     writes  {topic}{counts[topic]}\n")
    return text


def _dead_letters(pipeline: Pipeline) -> Text:
    """What processes dead letters again, once the declaration is corrected."""
    text = Text().append("Dead letters\n", "bold")
    for subtopology in pipeline.topology.subtopologies:
        text.append(f"  {subtopology.id}", "cyan").append(f"  {possible_redrive(subtopology)}\n")
    return text


def _topics(pipeline: Pipeline) -> Text:
    text = Text().append("Topics\n", "bold")
    for spec in pipeline.declared_topics():
        text.append(f"  {spec.name}\n", "cyan")
        external = "" if spec.owned else "external "
        text.append(f"     {external}{spec.role}, {_count(spec.partitions, 'partition')}\n")
        if spec.configs:
            text.append(f"     {'  '.join(f'{name}={value}' for name, value in spec.configs.items())}\n", "dim")
    return text


def _assignment(assignment: Assignment, stateful: Collection[TaskId]) -> Text:
    text = Text().append(f"Stream tasks on {quantity(len(assignment.instances), 'instance')}\n", "bold")
    width = max(len(instance.instance) for instance in assignment.instances)
    for instance in assignment.instances:
        text.append(f"  {instance.instance:<{width}}  ", "cyan")
        if instance.tasks:
            text.append("  ".join(f"{task}{'*' if task in stateful else ''}" for task in instance.tasks)).append("\n")
        else:
            text.append("idle\n", "yellow")
    if stateful:
        text.append("  * with state; the instances stand in the order of their process ids\n", "dim")
    if assignment.idle:
        text.append(f"  Idle, because there are not enough stream tasks: {', '.join(assignment.idle)}\n", "yellow")
    return text


def _warnings(pipeline: Pipeline) -> list[Text]:
    """The stores and repartition topics without names of their own, and a limit of the JVM; no part without any."""
    found = [*unnamed(pipeline.topology)]
    if pipeline.is_resolved:
        found += large_assignment(pipeline.topology, pipeline.partition_counts)
    lines = [f"Warning: {warning}.\n" for warning in found]
    return [Text("".join(lines), "yellow")] if lines else []


def _group_metadata(pipeline: Pipeline, instances: int) -> Text:
    topology, counts = pipeline.topology, pipeline.partition_counts
    text = Text().append("Group metadata, all assignments in one message\n", "bold")
    for count in sorted({instances, len(pipeline.tasks())}):
        for server, words in (("", ""), (_SERVER, f", each with an application.server of {len(_SERVER)} characters")):
            size = group_metadata_size(topology, counts, instances=count, application_server=server)
            large = size > MAX_MESSAGE_BYTES
            text.append(f"  {size:,} of {MAX_MESSAGE_BYTES:,} bytes with {quantity(count, 'instance')}{words}")
            text.append(": too large for the JVM library, no rebalance would succeed\n" if large else "\n", "red")
    return text


def _load_shares(plan: LoadPlan) -> Text:
    text = Text().append(f"Load, {sum(plan.load.values()):,} in all\n", "bold")
    for heading, assignment in (
        ("as Kafka Streams assigns the tasks: by their number", plan.by_count),
        ("if they were assigned by load, the greatest first", plan.by_load),
    ):
        text.append(f"  {heading}\n")
        rows = [
            (share.instance, f"{share.share:4.0%}", f"{share.load:,}", "  ".join(map(str, share.tasks)) or "idle")
            for share in plan.shares(assignment)
        ]
        text.append("".join(f"     {line}\n" for line in align_columns(rows)))
    for remark in plan.remarks():
        text.append(f"  {remark}\n")
    return text
