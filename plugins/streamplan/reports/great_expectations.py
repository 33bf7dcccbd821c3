"""Great Expectations renders what the checks of a run found: one checkpoint, and one page in the Data Docs.

The checks judge. Each of them is one expectation here: each expected value of its rows equals the observed one. A check
that could not look, or that found no rows, has one row which says so, so that the expectation says what the check said.

Everything of a pipeline is below ``reports/<pipeline>/``: ``gx`` has the validation results, ``data_docs`` the site.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamplan.checks.framework.check import CheckResult
from streamplan.errors import StreamplanError
from streamplan.files import ReportPaths
from streamplan.reports.run_page import ASSET, RunPage, RunRenderer, RunView, page_content, rows_shown, write_index

KEPT_PAGES = 100
"""The pages of this many of the last runs of each DAG stay in the Data Docs."""


def write_data_docs(reports: Path, page: RunPage, results: Sequence[CheckResult]) -> None:
    """Write the page of a run, and the index of all pages.

    The context of Great Expectations lives in memory: only validation results and pages are files, and the files of
    one run are in directories of its own. So runs of two DAGs may write at the same time.

    Args:
        reports: The directory of all reports.
        results: The results of the run's checks, at least one.

    Raises:
        StreamplanError: Great Expectations did not write the page.
    """
    # It logs hundreds of lines about its own documentation while it is imported.
    logging.getLogger("great_expectations._docs_decorators").setLevel(logging.WARNING)
    import great_expectations as gx
    import pandas as pd
    from great_expectations.core.run_identifier import RunIdentifier
    from great_expectations.exceptions import GreatExpectationsError
    from great_expectations.expectations.row_conditions import Column

    table = pd.DataFrame(
        [(result.check, row.subject, row.expected, row.observed) for result in results for row in rows_shown(result)],
        columns=["check", "subject", "expected", "observed"],
        dtype=object,  # a row may hold words or a number
    )
    paths = ReportPaths(reports, page.pipeline)
    for runs in (paths.expectations / "validations", paths.data_docs / "validations"):
        _remove_old_runs(runs / page.suite, page.run_name)
    try:
        context = gx.get_context(mode="ephemeral", project_config=_configuration(paths))
        batch = (
            context.data_sources.add_pandas("observations")
            .add_dataframe_asset(ASSET)
            .add_batch_definition_whole_dataframe("all")
        )
        suite = gx.ExpectationSuite(
            name=page.suite,
            expectations=[
                gx.expectations.ExpectColumnPairValuesToBeEqual(
                    column_A="expected",
                    column_B="observed",
                    row_condition=Column("check") == result.check,
                    meta=page_content(result),
                )
                for result in results
            ],
        )
        definition = gx.ValidationDefinition(name=page.suite, data=batch, suite=context.suites.add(suite))
        checkpoint = gx.Checkpoint(
            name=page.suite,
            validation_definitions=[context.validation_definitions.add(definition)],
            result_format={"result_format": "COMPLETE", "unexpected_index_column_names": ["check", "subject"]},
        )
        # The name of a run is its directory; Great Expectations reads it as a time, where it can.
        run = RunIdentifier(run_name=page.run_name, run_time=page.at)
        (identifier,) = checkpoint.run(batch_parameters={"dataframe": table}, run_id=run).run_results
        identifiers: list[Any] = [identifier]
        context.build_data_docs(resource_identifiers=identifiers, build_index=False)
    except GreatExpectationsError as error:
        raise StreamplanError(
            f"the Data Docs of {page.suite}", expected="the page of this run", observed=str(error)
        ) from error
    if not (reports / page.path).is_file():  # Great Expectations logs what went wrong, and raises nothing
        raise StreamplanError(
            f"the Data Docs of {page.suite}",
            expected=f"the page {page.path}",
            observed="no such file",
            remedy="Read the messages of Great Expectations above.",
        )
    write_index(reports, page.pipeline)


def _configuration(paths: ReportPaths) -> Any:
    """Return the configuration of the context: results and pages are files, all else lives in memory."""
    from great_expectations.data_context.types.base import (
        DataContextConfig,
        InMemoryStoreBackendDefaults,
        ProgressBarsConfig,
    )

    def files(directory: Path) -> dict[str, str]:
        return {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(directory.resolve())}

    def ours(cls: type) -> dict[str, str]:
        return {"module_name": cls.__module__, "class_name": cls.__name__}

    defaults = InMemoryStoreBackendDefaults(init_temp_docs_sites=False)
    defaults.stores[defaults.validation_results_store_name]["store_backend"] = files(paths.expectations / "validations")
    site = {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": files(paths.data_docs),
        "site_section_builders": {
            "validations": {"renderer": ours(RunRenderer), "view": ours(RunView)},
            "expectations": "none",
            "profiling": "none",
        },
    }
    defaults.data_docs_sites = {"data_docs": site}
    return DataContextConfig(
        store_backend_defaults=defaults, analytics_enabled=False, progress_bars=ProgressBarsConfig(globally=False)
    )


def _remove_old_runs(suite: Path, run_name: str) -> None:
    """Delete the oldest runs of a suite, so that with this one there are ``KEPT_PAGES``. Their names sort by time."""
    others = sorted(path for path in suite.iterdir() if path.name != run_name) if suite.is_dir() else []
    for run in others[: max(0, len(others) + 1 - KEPT_PAGES)]:
        shutil.rmtree(run, ignore_errors=True)
