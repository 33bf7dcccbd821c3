"""The command ``acls``: what each part of a pipeline must be allowed on brokers with an authorizer."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from rich.text import Text

from streamplan.cli.command import Commands, add_pipeline, declared_pipeline, refuse_ignored
from streamplan.cli.output import plain_console
from streamplan.cli.roles import add_role_option
from streamplan.errors import WrongUsage
from streamplan.model.acls import AclEntry, Role, required_acls

_NOTHING = {Role.PRODUCER: "the pipeline has no test data", Role.QUERIES: "the pipeline has no state store"}
"""By role why it needs no entry."""

_BOOTSTRAP_SERVERS = "localhost:9092"


def register(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add(
        "acls",
        "print the ACLs that aggregator, producer, checks, deployer and queries need, each for itself",
        description="Print the exact access control lists that each part of a pipeline needs on brokers with an "
        "authorizer, and nothing that a part does not need. Nothing is asked of the brokers, and nothing is changed.",
        examples="%(prog)s orders --format commands --bootstrap-servers kafka-1:9093 "
        "--command-config admin.properties --principal aggregator=User:streams",
        run=_run,
    )
    add_pipeline(parser)
    add_role_option(parser, "only this part")
    parser.add_argument(
        "--format",
        choices=("table", "commands", "json"),
        default="table",
        help="a list with reasons (default), the commands of kafka-acls.sh, or JSON",
    )
    parser.add_argument(
        "--principal",
        action="append",
        default=[],
        metavar="ROLE=PRINCIPAL",
        help="the principal of a part (default: User:<pipeline>-<role>)",
    )
    parser.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT",
        help=f"for --format commands: the brokers (default: {_BOOTSTRAP_SERVERS})",
    )
    parser.add_argument(
        "--command-config", metavar="FILE", help="for --format commands: the properties file of an administrator"
    )


def _run(options: argparse.Namespace) -> int:
    if options.format != "commands":
        refuse_ignored(options, "bootstrap_servers", "command_config", without="--format commands")
    pipeline = declared_pipeline(options)
    roles: Sequence[Role] = options.role or list(Role)
    principals = {role: f"User:{pipeline.name}-{role}" for role in Role} | _principals(options.principal)
    entries = {role: required_acls(pipeline, role) for role in roles}
    if options.format == "json":
        json.dump(
            [_as_json(role, principals[role], entry) for role in roles for entry in entries[role]], sys.stdout, indent=2
        )
        sys.stdout.write("\n")
    elif options.format == "commands":
        connection = ["--bootstrap-server", options.bootstrap_servers or _BOOTSTRAP_SERVERS]
        if options.command_config:
            connection += ["--command-config", options.command_config]
        for role in roles:
            sys.stdout.write(f"# {role}\n")
            for command in acl_commands(entries[role], principals[role], connection):
                sys.stdout.write(f"{shlex.join(command)}\n")
    else:
        console = plain_console()
        for role in roles:
            console.print(Text.assemble((role, "bold"), f"  {principals[role]}"))
            if not entries[role]:
                console.print(f"  nothing: {_NOTHING[role]}")
            for (kind, name, prefixed), same in _by_resource(entries[role]):
                console.print(Text.assemble(f"  {kind} ", (f"{name}*" if prefixed else name, "cyan")))
                for entry in same:
                    console.print(f"     {entry.operation:16} {entry.reason}")
            console.print()
        console.print("A name that ends with * is a prefix.", style="dim")
    return 0


def acl_commands(entries: Sequence[AclEntry], principal: str, connection: Sequence[str]) -> Sequence[Sequence[str]]:
    """Return the commands of ``kafka-acls.sh`` that add entries, one for each resource.

    Args:
        principal: Whom they allow, such as ``User:alice``.
        connection: The options that say where the brokers are.
    """
    commands = []
    for (kind, name, prefixed), same in _by_resource(entries):
        operations = [word for entry in same for word in ("--operation", str(entry.operation))]
        pattern = ["--resource-pattern-type", "prefixed"] if prefixed else []
        commands.append(
            [
                "kafka-acls.sh",
                *connection,
                "--add",
                "--allow-principal",
                principal,
                *operations,
                f"--{kind}",
                name,
                *pattern,
            ]
        )
    return commands


def _by_resource(entries: Sequence[AclEntry]) -> Iterator[tuple[tuple[str, str, bool], Sequence[AclEntry]]]:
    def resource(entry: AclEntry) -> tuple[str, str, bool]:
        return entry.resource_type, entry.name, entry.prefixed

    for key, same in groupby(sorted(entries, key=resource), resource):
        yield key, list(same)


def _as_json(role: Role, principal: str, entry: AclEntry) -> Mapping[str, str]:
    return {
        "role": role,
        "principal": principal,
        "resourceType": entry.resource_type,
        "patternType": "prefixed" if entry.prefixed else "literal",
        "name": entry.name,
        "operation": entry.operation,
        "reason": entry.reason,
    }


def _principals(given: Sequence[str]) -> dict[Role, str]:
    found: dict[Role, str] = {}
    for text in given:
        role, equals, principal = text.partition("=")
        if role not in list(Role) or not equals or ":" not in principal:
            raise WrongUsage(
                "--principal", expected=f"ROLE=TYPE:NAME with a role of {', '.join(Role)}", observed=repr(text)
            )
        found[Role(role)] = principal
    return found
