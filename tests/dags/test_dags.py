"""The DAGs as Airflow parses them: what there is, how it hangs together, and the rules each of them keeps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from copy import copy
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, AsyncCallback, DeadlineAlert, DeadlineReference
from airflow.sdk.exceptions import AirflowSkipException, ParamValidationError
from airflow.serialization.serialized_objects import DagSerialization
from streamplan import Json, Topology
from streamplan.airflow import declare_dags
from streamplan.airflow.check_operators import CheckOperator, RecountOperator, StateStoreOperator
from streamplan.airflow.dags import (
    aggregator_dag,
    deploy_dag,
    health_dag,
    producer_dag,
    redrive_dag,
    repartition_dag,
    reset_dag,
)
from streamplan.airflow.deploy_operators import ProcessedOperator
from streamplan.airflow.supervised_job import SupervisedJobOperator
from streamplan.checks import CHECKS
from streamplan.errors import Refused
from streamplan.model.pipeline import Pipeline
from streamplan.settings import PROJECT

from tests.support.airflow_home import DAGS
from tests.support.examples import PIPELINES

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

CHECK_NAMES = {check.name for check in CHECKS}


WITHOUT_REPARTITION = ("alerts", "enriched", "payments", "profiles", "scores", "unpaid_orders", "visits", "fraud")


WITHOUT_STORES = ("scores",)


def check_names(pipeline: Pipeline) -> set[str]:
    """The checks of a pipeline. It does not have those of topics that it does not have."""
    without = {"repartition"} if pipeline.name in WITHOUT_REPARTITION else set()
    return CHECK_NAMES - without - ({"copartitioning", "compaction"} if pipeline.name in WITHOUT_STORES else set())


KINDS = ("deploy", "producer", "aggregator", "health", "reset", "repartition", "redrive")
DAG_IDS = [f"{pipeline.name}_{kind}" for pipeline in PIPELINES for kind in KINDS]
RECOUNTED_BY_SPARK = {
    *("latest", "enriched", "pageviews", "trending", "words"),
    *("payments", "profiles", "scores", "unpaid_orders", "visits", "alerts", "fraud", "activity"),
    *("sales", "invoices", "parcels", "shipments"),
}
"""The others count records by a field or their key, which needs no engine."""

SUPERVISED = {"produce", "aggregate"}
HEAVY = ("pyspark", "great_expectations", "confluent_kafka", "pandas")

every_pipeline = pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda pipeline: pipeline.name)
every_dag = pytest.mark.parametrize("dag_id", DAG_IDS)


def edges(dag: DAG) -> set[tuple[str, str]]:
    return {(task.task_id, downstream) for task in dag.tasks for downstream in task.downstream_task_ids}


def test_a_deadline_is_one_of_the_health_dag_alone() -> None:
    (pipeline,) = (each for each in PIPELINES if each.name == "orders")
    queued = DeadlineReference.DAGRUN_QUEUED_AT
    late = DeadlineAlert(reference=queued, interval=timedelta(minutes=30), callback=AsyncCallback("a_module.tell"))
    dags = declare_dags(pipeline, deadlines=[late])
    assert {name: dag.deadline for name, dag in dags.items() if dag.deadline} == {"orders_health": [late]}
    assert DagSerialization.to_dict(dags["orders_health"])["dag"]["deadline"]
    assert not any(dag.deadline for dag in declare_dags(pipeline).values())


def test_every_file_is_parsed(dagbag: DagBag) -> None:
    assert dagbag.import_errors == {}
    assert set(dagbag.dags) == set(DAG_IDS)


@every_pipeline
def test_deploy_verifies_last(dagbag: DagBag, pipeline) -> None:
    checks = {f"verify.{name}" for name in check_names(pipeline)}
    found = edges(dagbag.dags[f"{pipeline.name}_deploy"])
    before = {
        ("topics", "producer"),
        ("topics", "aggregator"),
        ("producer", "processed"),
        ("aggregator", "processed"),
    } | {(check, "verify.data_docs") for check in checks}
    if pipeline.name in RECOUNTED_BY_SPARK:
        first = checks - {"verify.totals"} | {"verify.recount"}
        assert found == before | {("processed", check) for check in first} | {("verify.recount", "verify.totals")}
    else:
        store = {("processed", "state_store")}
        assert found == before | store | {("state_store", check) for check in checks}


@every_pipeline
def test_the_other_dags(dagbag: DagBag, pipeline) -> None:
    assert edges(dagbag.dags[f"{pipeline.name}_producer"]) == {("plan", "produce")}
    assert set(dagbag.dags[f"{pipeline.name}_aggregator"].task_dict) == {"aggregate"}
    health = dagbag.dags[f"{pipeline.name}_health"]
    page = {(check, "data_docs") for check in check_names(pipeline)}
    if pipeline.name in RECOUNTED_BY_SPARK:
        purge = {"purge"} if pipeline.topology.repartition_topics else set()
        assert set(health.task_dict) == check_names(pipeline) | {"recount", "data_docs"} | purge
        assert edges(health) == page | {("recount", "totals")} | {("totals", task) for task in purge}
    else:
        assert set(health.task_dict) == check_names(pipeline) | {"purge", "data_docs"}
        assert edges(health) == page | {("totals", "purge")}  # one red check hides no other


@pytest.mark.parametrize(("kind", "task_id"), [("health", "data_docs"), ("deploy", "verify.data_docs")])
@every_pipeline
def test_the_page_is_written_whatever_the_checks_found_and_hides_none_of_it(
    dagbag: DagBag, pipeline, kind: str, task_id: str
) -> None:
    """Airflow takes the state of a run from its leaves, and does not count a teardown task as one."""
    task = dagbag.dags[f"{pipeline.name}_{kind}"].get_task(task_id)
    assert task.is_teardown
    assert not task.on_failure_fail_dagrun
    assert task.trigger_rule == "all_done_setup_success"  # of a teardown without a setup: all done
    assert {name.removeprefix("verify.") for name in task.upstream_task_ids} == check_names(pipeline)


@pytest.mark.parametrize("kind", ["reset", "repartition", "redrive"])
@every_pipeline
def test_nothing_is_deleted_before_a_person_has_seen_the_plan(dagbag: DagBag, pipeline, kind: str) -> None:
    dag = dagbag.dags[f"{pipeline.name}_{kind}"]
    assert edges(dag) == {("plan", "approval"), ("approval", "apply")}
    approval = dag.get_task("approval")
    assert isinstance(approval, ApprovalOperator)
    assert "ti.xcom_pull(task_ids='plan')" in approval.body
    assert approval.defaults == ["Reject"]  # no answer is none
    assert {task.trigger_rule for task in dag.tasks} == {"all_success"}


@every_pipeline
def test_what_deploy_triggers_is_there(dagbag: DagBag, pipeline) -> None:
    triggers = [
        task for task in dagbag.dags[f"{pipeline.name}_deploy"].tasks if isinstance(task, TriggerDagRunOperator)
    ]
    assert {task.trigger_dag_id for task in triggers} == {f"{pipeline.name}_producer", f"{pipeline.name}_aggregator"}
    for task in triggers:
        handed = set(task.conf or {})
        assert handed <= set(dagbag.dags[task.trigger_dag_id].params)


@every_pipeline
def test_health_waits_for_what_the_producer_announces(dagbag: DagBag, pipeline) -> None:
    (announced,) = dagbag.dags[f"{pipeline.name}_producer"].get_task("produce").outlets
    schedule = dagbag.dags[f"{pipeline.name}_health"].timetable
    assert [asset.uri for asset in schedule.asset_condition.objects] == [announced.uri]
    assert schedule.timetable.expression == pipeline.health_schedule


def test_a_pipeline_without_test_data_has_no_producer() -> None:
    pipeline = replace(PIPELINES[0], test_data=None)
    deploy = deploy_dag(pipeline)
    assert ("topics", "aggregator") in edges(deploy)
    assert "producer" not in deploy.task_dict
    assert set(deploy.params) == set()
    assert health_dag(pipeline).timetable.expression == pipeline.health_schedule
    kinds = ("deploy", "aggregator", "health", "reset", "repartition", "redrive")
    assert set(declare_dags(pipeline)) == {f"orders_{kind}" for kind in kinds}
    with pytest.raises(Refused, match=r"the test data of orders: expected records to write.*test_data=TestData"):
        producer_dag(pipeline)


def test_no_broker_is_asked_for_the_partitions_of_others_when_dags_are_made() -> None:
    pipeline = replace(PIPELINES[0], topic_partitions={}, test_data=None)
    assert not pipeline.is_resolved
    dags = [
        make(pipeline) for make in (deploy_dag, aggregator_dag, health_dag, reset_dag, repartition_dag, redrive_dag)
    ]
    assert {f"verify.{name}" for name in CHECK_NAMES} <= set(dags[0].task_dict)


@every_pipeline
def test_deploy_writes_test_data_only_where_it_is_asked_for(dagbag: DagBag, pipeline) -> None:
    dag = dagbag.dags[f"{pipeline.name}_deploy"]
    assert dag.params.get_param("records").resolve() == 0
    producer = copy(dag.get_task("producer"))
    producer.conf = {"records": 0, "rate": 0}
    with pytest.raises(AirflowSkipException, match="No test data is asked for"):
        producer.execute({})
    assert dag.get_task("processed").trigger_rule == "none_failed"  # a producer that was skipped holds nothing up


@every_dag
def test_every_dag_explains_itself(dagbag: DagBag, dag_id: str) -> None:
    dag = dagbag.dags[dag_id]
    pipeline, kind = dag_id.rsplit("_", 1)
    assert set(dag.tags) == {"streamplan", pipeline, kind}
    assert len(dag.doc_md or "") > 80
    assert dag.description
    assert dag.description.count(".") == 1
    for task in dag.tasks:
        assert task.doc_md, task.task_id
        assert task.owner == "streamplan", task.task_id


@every_dag
def test_every_dag_runs_one_at_a_time_and_never_for_the_past(dagbag: DagBag, dag_id: str) -> None:
    dag = dagbag.dags[dag_id]
    assert dag.max_active_runs == 1
    assert dag.catchup is False
    # A run of a paused DAG stays queued without a word, and a paused health DAG checks nothing.
    assert dag.is_paused_upon_creation is False


@every_dag
def test_no_task_holds_a_worker_for_ever(dagbag: DagBag, dag_id: str) -> None:
    for task in dagbag.dags[dag_id].tasks:
        waits_in_the_triggerer = isinstance(task, SupervisedJobOperator | ProcessedOperator) or getattr(
            task, "deferrable", False
        )
        waits_for_a_person = isinstance(task, ApprovalOperator) and task.response_timeout
        assert waits_in_the_triggerer or waits_for_a_person or task.execution_timeout, task.task_id


@every_dag
def test_retries_are_restarts_or_a_second_look(dagbag: DagBag, dag_id: str) -> None:
    for task in dagbag.dags[dag_id].tasks:
        if task.task_id in SUPERVISED:
            assert task.retries >= 1000  # as good as always
            assert task.retry_delay.total_seconds() < 30
        elif isinstance(task, CheckOperator | RecountOperator | StateStoreOperator):
            assert task.retries == 1
        elif isinstance(task, ApprovalOperator):
            assert task.retries == 2  # asks again
        else:
            assert task.retries == 0, task.task_id


@pytest.mark.parametrize("kind", ["deploy", "producer"])
@every_pipeline
def test_params(dagbag: DagBag, pipeline, kind: str) -> None:
    params = dagbag.dags[f"{pipeline.name}_{kind}"].params
    params.validate()
    for param in map(params.get_param, params):
        assert param.description
        assert {"title", "type", "minimum", "maximum"} <= set(param.schema)
    good = [("records", 0), ("records", 19), ("records", 1_000_000_000), ("rate", 0), ("rate", 500)]
    bad = [("records", -1), ("records", 1_000_000_001), ("records", "many"), ("records", 1.5), ("rate", -1)]
    bad += [("rate", None), ("rate", "fast"), ("rate", 10_000_001)]
    (good if kind == "producer" else bad).append(("records", None))
    for name, value in good:
        assert params.get_param(name).resolve(value) == value
    for name, value in bad:
        with pytest.raises(ParamValidationError):
            params.get_param(name).resolve(value)


def python(code: str, **environment: str) -> dict[str, Any]:
    """What code prints as its last line of JSON, run by a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(PROJECT / "plugins"), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_parsing_imports_nothing_heavy(tmp_path: Path) -> None:
    files = sorted(map(str, DAGS.glob("*.py")))
    told = python(
        "import json, runpy, sys, time\n"
        "import airflow.sdk, airflow.providers.standard.operators.trigger_dagrun\n"
        "parsed = {}\n"
        f"for file in {files!r}:\n"
        "    began = time.perf_counter()\n"
        "    found = runpy.run_path(file).values()\n"
        "    parsed[file] = sum(type(value).__name__ == 'DAG' for value in found), time.perf_counter() - began\n"
        "print(json.dumps({'modules': sorted({name.partition('.')[0] for name in sys.modules}), 'parsed': parsed}))",
        AIRFLOW_HOME=str(tmp_path),
    )
    for file, (_, seconds) in told["parsed"].items():
        print(f"{Path(file).name}: {seconds:.2f} s")  # noqa: T201
    dags = {Path(file).name: dags for file, (dags, _) in told["parsed"].items()}
    assert dags == {"pipelines.py": len(DAG_IDS), "broken_pipelines.py": 0}
    assert not set(HEAVY) & set(told["modules"])


@pytest.mark.parametrize(("installed", "folder"), [(False, True), (True, True), (True, False)])
def test_the_package_is_one_plugin(tmp_path: Path, installed: bool, folder: bool) -> None:
    """Found in the plugins folder of a clone, or by the entry point of a package that is installed, but once."""
    metadata = tmp_path / "installed" / "streamplan-0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: streamplan\nVersion: 0\n")
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    [(name, value)] = project["entry-points"]["airflow.plugins"].items()
    (metadata / "entry_points.txt").write_text(f"[airflow.plugins]\n{name} = {value}\n")
    path = [str(metadata.parent)] if installed else []
    told = python(
        "import json, sys\n"
        "from airflow import plugins_manager\n"
        "plugins, errors = plugins_manager._get_plugins()\n"
        "files = {name: getattr(module, '__file__', None) or '' for name, module in sys.modules.items()}\n"
        "print(json.dumps({'errors': errors, 'files': files,"
        " 'plugins': [[plugin.name, str(plugin.source)] for plugin in plugins]}))",
        AIRFLOW_HOME=str(tmp_path),
        AIRFLOW__CORE__PLUGINS_FOLDER=str(PROJECT / "plugins" if folder else tmp_path / "none"),
        PYTHONPATH=os.pathsep.join([*path, str(PROJECT / "plugins")]),
    )
    assert told["errors"] == {}
    ours = [source for name, source in told["plugins"] if name == "streamplan"]
    assert len(ours) == 1
    assert ("$PLUGINS_FOLDER" in ours[0]) == (not installed)
    # Executed as a plugin, a file of the package would be there a second time, under its bare name.
    package = str(PROJECT / "plugins" / "streamplan") + os.sep
    modules = [name for name, file in told["files"].items() if file.startswith(package)]
    assert "streamplan.processes" in modules
    assert [name for name in modules if not f"{name}.".startswith("streamplan.")] == []


DAG_FILE = """
from streamplan.pipelines.users import PIPELINE
from streamplan.airflow import declare_dags

globals().update(declare_dags(PIPELINE))
"""


def test_three_lines_are_a_dag_file(tmp_path: Path) -> None:
    """Airflow's safe mode reads only files that look as if they had DAGs."""
    from airflow.dag_processing.dagbag import DagBag

    (tmp_path / "users.py").write_text(DAG_FILE)
    found = DagBag(dag_folder=str(tmp_path), safe_mode=True)
    assert found.import_errors == {}
    assert set(found.dags) == {f"users_{kind}" for kind in KINDS}


def test_the_dags_of_a_pipeline_that_is_not_registered_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triggers and jobs would not find it."""
    users = next(pipeline for pipeline in PIPELINES if pipeline.name == "users")
    monkeypatch.setenv("STREAMPLAN_PIPELINES", "streamplan.pipelines.orders")
    with pytest.raises(Refused, match=r"pipeline 'users': expected orders.* Name the module of a pipeline in"):
        declare_dags(users)


def test_another_pipeline_of_the_name_is_no_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = Topology("orders-of-others")
    topology.stream("orders", value=Json("Id string")).group_by("Id", name="by-id").count(store="counts")
    users = next(pipeline for pipeline in PIPELINES if pipeline.name == "orders")
    with pytest.raises(Refused, match="expected application id orders-of-others, as in the DAG file"):
        declare_dags(replace(users, topology=topology))


def test_airflow_takes_the_longest_names_that_a_declaration_takes() -> None:
    """Airflow itself refuses one more character: of the pipeline in a tag, of the connection in an id."""
    pipeline = replace(PIPELINES[0], name="n" * 100, kafka_conn_id="k" * 250, spark_conn_id="s" * 250)
    for make in (deploy_dag, producer_dag, aggregator_dag, health_dag, reset_dag, repartition_dag, redrive_dag):
        assert DagSerialization.to_dict(make(pipeline))
    with pytest.raises(ValueError, match="tag cannot be longer than 100 characters"):
        DAG(dag_id="a", tags=["n" * 101])
    with pytest.raises(Refused, match="the limit is 100"):
        replace(PIPELINES[0], name="n" * 101)


@pytest.mark.parametrize("kind", ["reset", "repartition", "redrive"])
def test_an_operation_says_what_to_do_after_it_on_its_page_and_where_it_is_approved(dagbag: DagBag, kind: str) -> None:
    dag = dagbag.dags[f"orders_{kind}"]
    for text in (dag.doc_md, dag.get_task("approval").body):
        assert "trigger orders_aggregator" in text.partition("Afterwards, when `apply` is done:")[2]
