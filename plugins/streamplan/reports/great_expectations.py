"""Great Expectations judges what a check observed, and its Data Docs show it.

Everything of a pipeline is below ``reports/<pipeline>/``: ``gx`` is the file context, ``data_docs`` the site.
"""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import unquote, urlsplit

from streamplan.checks.framework.application import Application
from streamplan.checks.framework.check import Check, CheckResult, Observation, Outcome, sentence
from streamplan.checks.framework.check import run_check as run_once
from streamplan.checks.framework.cluster import Cluster
from streamplan.errors import CouldNotLook
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.reports.results import write_result
from streamplan.settings import Settings

LOCK_SECONDS = 120.0
"""Checks that end together take turns: the context and the site are files that they share."""

SHOWN_ROWS = 100

KEPT_PAGES = 100
"""So many of the last runs of each check stay in the Data Docs."""

LISTED_PAGES = 100
"""So many of the last runs, of all checks, are listed in the index: it is written anew from their results."""

_CONTEXT = """\
config_version: 4
analytics_enabled: false
progress_bars:
  globally: false
expectations_store_name: expectations_store
validation_results_store_name: validation_results_store
checkpoint_store_name: checkpoint_store
stores:
  expectations_store:
    class_name: ExpectationsStore
    store_backend: {class_name: TupleFilesystemStoreBackend, base_directory: expectations/}
  validation_results_store:
    class_name: ValidationResultsStore
    store_backend: {class_name: TupleFilesystemStoreBackend, base_directory: validations/}
  checkpoint_store:
    class_name: CheckpointStore
    store_backend:
      {class_name: TupleFilesystemStoreBackend, base_directory: checkpoints/, suppress_store_backend_id: true}
  validation_definition_store:
    class_name: ValidationDefinitionStore
    store_backend: {class_name: TupleFilesystemStoreBackend, base_directory: validation_definitions/}
data_docs_sites:
  data_docs:
    class_name: SiteBuilder
    show_how_to_buttons: false
    store_backend: {class_name: TupleFilesystemStoreBackend, base_directory: ../data_docs/}
    site_index_builder: {class_name: DefaultSiteIndexBuilder, validation_results_limit: %d}
"""


@dataclass(frozen=True)
class Verdict:
    """``page``: the page of this run, relative to the directory of all reports."""

    passed: bool
    page: str


def run_check(
    application: Application,
    check: Check,
    *,
    brokers: Brokers,
    settings: Settings,
    cluster: Cluster | None = None,
) -> CheckResult:
    """Observe, judge, write the result. Does not raise for what it finds: see the outcome and the reason.

    ``cluster`` stands in for the one at ``brokers``.
    """
    result = run_once(application, check, cluster if cluster is not None else KafkaCluster(brokers))
    if result.outcome is not Outcome.COULD_NOT_LOOK:
        try:
            verdict = judge(application.name, check, result.observations, at=result.at, reports=settings.reports)
        except CouldNotLook as error:
            result = replace(result, outcome=Outcome.COULD_NOT_LOOK, reason=" ".join(str(error).split()))
        else:
            outcome = Outcome.PASSED if verdict.passed else Outcome.FAILED
            result = replace(result, outcome=outcome, data_docs=verdict.page)
    write_result(settings.reports, result)
    return result


def judge(name: str, check: Check, observations: Sequence[Observation], *, at: str, reports: Path) -> Verdict:
    """Great Expectations on the table of observations: it is not empty, and expected equals observed in each row."""
    import great_expectations as gx
    import pandas as pd
    from great_expectations.core.run_identifier import RunIdentifier
    from great_expectations.data_context.types.resource_identifiers import ExpectationSuiteIdentifier
    from great_expectations.exceptions import GreatExpectationsError
    from great_expectations.expectations.row_conditions import Column

    run_time = datetime.fromisoformat(at)
    directory = reports / name
    root = (directory / "gx").resolve()
    root.mkdir(parents=True, exist_ok=True)
    table = (
        pd.DataFrame(
            [(row.subject, row.expected, row.observed) for row in observations],
            columns=["subject", "expected", "observed"],
            dtype=object,  # a row may hold words or a number
        )
        .rename_axis("row")
        .reset_index()
    )
    with _turn(directory) as others_wait:
        (root / "great_expectations.yml").write_text(_CONTEXT % LISTED_PAGES)
        try:
            context = gx.get_context(mode="file", context_root_dir=root)
            suite_name = f"{name}_{check.name}"
            suite = context.suites.add_or_update(
                gx.ExpectationSuite(
                    name=suite_name,
                    expectations=[
                        gx.expectations.ExpectTableRowCountToBeBetween(min_value=1),
                        gx.expectations.ExpectColumnPairValuesToBeEqual(column_A="expected", column_B="observed"),
                        *(
                            gx.expectations.ExpectColumnPairValuesToBeEqual(
                                column_A="expected",
                                column_B="observed",
                                row_condition=Column("row") == number,
                                description=sentence(row),
                            )
                            for number, row in _shown(observations)
                        ),
                    ],
                    notes=f"**{check.title}.** {check.healthy}",
                )
            )
            batch = (
                context.data_sources.add_or_update_pandas("observations")
                .add_dataframe_asset(check.name)
                .add_batch_definition_whole_dataframe("all")
            )
            definition = context.validation_definitions.add_or_update(
                gx.ValidationDefinition(name=suite_name, data=batch, suite=suite)
            )
            checkpoint = context.checkpoints.add_or_update(
                gx.Checkpoint(
                    name=suite_name,
                    validation_definitions=[definition],
                    result_format={"result_format": "COMPLETE", "unexpected_index_column_names": ["subject"]},
                )
            )
            for runs in (root / "validations", directory / "data_docs" / "validations"):
                _make_room(runs / suite_name)  # now, since the index may be written anew
            # The name of a run is its directory and sorts by time; Great Expectations parses it, where it can, as one.
            run = RunIdentifier(run_name=f"{run_time:%Y%m%dT%H%M%S.%fZ}", run_time=run_time)
            result = checkpoint.run(batch_parameters={"dataframe": table}, run_id=run)
            (identifier,) = result.run_results
            pages: list[Any] = [identifier, ExpectationSuiteIdentifier(name=suite_name)]
            context.build_data_docs(resource_identifiers=pages, build_index=not others_wait())
        except GreatExpectationsError as error:
            raise CouldNotLook(
                f"the observations of {check.name} could not be judged",
                observed=str(error),
                remedy=f"Look into {root}.",
            ) from error
        (site,) = context.get_docs_sites_urls(resource_identifier=identifier)
        return Verdict(passed=bool(result.success), page=_page(site["site_url"], reports))


def _shown(observations: Sequence[Observation]) -> list[tuple[int, Observation]]:
    """The rows that get a line of their own on the page: the wrong ones, then the others, as far as there is room."""
    return sorted(enumerate(observations), key=lambda numbered: numbered[1].agrees)[:SHOWN_ROWS]


def _page(url: str | None, reports: Path) -> str:
    """The page of a run relative to all reports; Great Expectations only logs it when a page could not be made."""
    page = Path(unquote(urlsplit(url or "").path))
    if not page.is_file():
        raise CouldNotLook("the page of this run", expected="a file in the Data Docs", observed=str(url))
    return str(page.resolve().relative_to(reports.resolve()))


def _make_room(runs: Path) -> None:
    """Of the directories of runs, which sort by time, the oldest go until one more makes ``KEPT_PAGES``."""
    found = sorted(path for path in runs.iterdir() if path.is_dir()) if runs.is_dir() else []
    for old in found[: max(0, len(found) + 1 - KEPT_PAGES)]:
        shutil.rmtree(old)


@contextmanager
def _turn(directory: Path) -> Iterator[Callable[[], bool]]:
    """One check after the other. Yields whether another one waits for its turn: it can write the index for both."""
    path, queue = directory / ".gx.lock", directory / ".gx.waiting"
    deadline = time.monotonic() + LOCK_SECONDS

    def others_wait() -> bool:
        with queue.open("w") as another:
            return not _locks(another, fcntl.LOCK_EX)

    with path.open("w") as lock:
        with queue.open("w") as own:
            while not _locks(lock, fcntl.LOCK_EX):
                _locks(own, fcntl.LOCK_SH)  # tried each time: for a moment another one may look who waits
                if time.monotonic() > deadline:
                    raise CouldNotLook(
                        f"the lock {path}",
                        expected=f"free within {LOCK_SECONDS:g} s",
                        observed="held by another check",
                        remedy="Is a check hanging?",
                    )
                time.sleep(0.05)
        yield others_wait


def _locks(file: TextIO, how: int) -> bool:
    """Whether it got the lock, without waiting for it."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
