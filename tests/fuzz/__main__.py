"""Try every serde with changed bytes and generated values, and print what is wrong with the case that shows it."""

from __future__ import annotations

import argparse
import importlib
import secrets
import sys

from tests.fuzz.runner import run

MODULES = (
    "json_values",
    "primitive_values",
    "keys",
    "function_results",
    "avro_values",
    "avro_evolution",
    "protobuf_values",
    "json_schema_values",
)
SUBJECTS = tuple(f"tests.fuzz.{module}" for module in MODULES)
"""The modules of the subjects."""


def main(argv: list[str] | None = None, subjects: tuple[str, ...] = SUBJECTS) -> int:
    modules = {importlib.import_module(module).NAME: module for module in subjects}
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for each serde (60)")
    parser.add_argument("--seed", type=int, default=None, help="makes the cases; a random one otherwise")
    parser.add_argument("--serde", choices=list(modules), action="append", help="only this one; may be repeated")
    parser.add_argument("--case", type=int, default=None, help="only the case with this number")
    options = parser.parse_args(argv)
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    print(f"Seed {seed}, {options.seconds:g} s for each serde", flush=True)  # noqa: T201
    found = 0
    for name in options.serde or modules:
        only = {} if options.case is None else {"first": options.case, "cases": 1}
        outcome = run(modules[name], seed, options.seconds, **only)
        print(f"{name:<20} {outcome.cases:>8} cases, {len(outcome.findings)} findings", flush=True)  # noqa: T201
        for finding in outcome.findings:
            print(f"  {finding.text}")  # noqa: T201
            print(f"  again: python -m tests.fuzz --serde {name} --seed {seed} --case {finding.case}", flush=True)  # noqa: T201
        found += len(outcome.findings)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
