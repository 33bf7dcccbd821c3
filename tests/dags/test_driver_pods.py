"""The aggregator's driver as a pod: what is sent to the API server, by Spark's own client, and how a run goes on."""

from __future__ import annotations

import asyncio
import base64
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from airflow.providers.apache.spark.hooks import spark_submit
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred
from airflow.triggers.base import TriggerEvent
from streamplan.airflow import orphan_listener, triggers
from streamplan.airflow.check_operators import RecountOperator
from streamplan.airflow.driver_pods import DriverPodTrigger, driver_cluster
from streamplan.airflow.supervised_job import AggregatorOperator, spark_hook
from streamplan.errors import BrokersUnavailable, Refused, StreamplanError
from streamplan.kafka import remote_job, task_ownership
from streamplan.kafka.brokers import Brokers
from streamplan.processes import Owner
from streamplan.settings import PACKAGE, Settings

from tests.support.kubernetes_api import FakeApiServer, fake_api_server

LOGIN = {
    "bootstrap.servers": "one:9092",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "me",
    "sasl.password": "s3cret-of-kafka",
    "ssl.key.pem": "-----BEGIN PRIVATE KEY-----\ns3cret-key\n-----END PRIVATE KEY-----\n",
    "ssl.certificate.pem": "-----BEGIN CERTIFICATE-----\nshown\n-----END CERTIFICATE-----\n",
    "schema.registry.url": "https://registry",
    "schema.registry.basic.auth.user.info": "reader:s3cret-of-registry",
}
SECRETS = ("s3cret", base64.b64encode(b"s3cret-of-kafka").decode()[:16])


DEPLOY = PACKAGE.parents[1] / "deploy" / "kubernetes"
VERBS = {"GET": "get", "POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}


def allowed_requests() -> set[tuple[str, str]]:
    """Return the verbs and resources that the deployment's role allows."""
    documents = yaml.safe_load_all((DEPLOY / "roles.yaml").read_text())
    [role] = [each for each in documents if (each["kind"], each["metadata"]["name"]) == ("Role", "streamplan-driver")]
    return {(verb, kind) for rule in role["rules"] for verb in rule["verbs"] for kind in rule["resources"]}


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    with fake_api_server() as server:
        yield server


@pytest.fixture
def settings(home: Path, api: FakeApiServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    """A deployment whose drivers are pods. Its jars lie in the image."""
    monkeypatch.setattr(ExecutorSafeguard, "test_mode", True)
    monkeypatch.setattr(triggers, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(triggers, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(task_ownership, "newest_instance", lambda pipeline, brokers: "none")
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)
    (tmp_path / "the jars").mkdir()
    (tmp_path / "the jars" / "connector.jar").touch()
    monkeypatch.setenv("STREAMPLAN_JARS", str(tmp_path / "the jars"))
    monkeypatch.setenv("STREAMPLAN_CHECKPOINTS", "s3a://bucket/checkpoints")
    monkeypatch.setenv("STREAMPLAN_PIPELINES", "streamplan.pipelines.orders")
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": LOGIN}))
    extra = {"deploy-mode": "cluster", "namespace": "streams"}
    connection = {"conn_type": "spark", "host": api.master, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    return Settings.from_environment()


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch, api: FakeApiServer) -> list[list[str]]:
    """The calls of spark-submit, of which each creates a pod as Spark's client does. Spark itself takes ten seconds."""
    calls: list[list[str]] = []

    def submit(command: list[str], environment: Any, report: Any) -> None:
        calls.append(command)
        configs = dict(word.split("=", 1) for word in command if word.startswith("spark."))
        driver = "spark.kubernetes.driver"
        metadata = {"name": configs[f"{driver}.pod.name"]}
        for kind in ("label", "annotation"):
            found = {name: value for name, value in configs.items() if name.startswith(f"{driver}.{kind}.")}
            metadata[f"{kind}s"] = {name.removeprefix(f"{driver}.{kind}."): found[name] for name in found}
        pod = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata}
        api._keep(f"/api/v1/namespaces/streams/pods/{metadata['name']}", pod)

    monkeypatch.setattr("streamplan.airflow.supervised_job.submit", submit)
    return calls


def aggregator() -> AggregatorOperator:
    return AggregatorOperator(task_id="aggregate", pipeline="orders")


def context(run_id: str = "manual__2026-01-01T00:00:00+00:00") -> Any:
    ti = SimpleNamespace(dag_id="orders_aggregator", run_id=run_id)
    return {"ti": ti, "task_state_store": SimpleNamespace(set=lambda key, value, retention: None)}


def deferred(run_id: str = "manual__2026-01-01T00:00:00+00:00") -> DriverPodTrigger:
    """Execute the task, and return the trigger as the triggerer gets it: through its serialization."""
    with pytest.raises(TaskDeferred) as raised:
        aggregator().execute(context(run_id))
    assert raised.value.method_name == "resume"
    path, arguments = raised.value.trigger.serialize()
    assert path == "streamplan.airflow.driver_pods.DriverPodTrigger"
    return DriverPodTrigger(**json.loads(json.dumps(arguments)))


class Job:
    """What Kafka shows of the aggregator."""

    patience_seconds = 0.0
    has_begun = True

    def __init__(self, *, lives: bool = True, refuses: StreamplanError | None = None) -> None:
        self.lives = lives
        self.refuses = refuses
        self.asked = 0

    def shows_life(self) -> bool:
        return self.lives

    def stop(self, ask_seconds: float = 0.0) -> None:
        self.asked += 1
        if self.refuses:
            raise self.refuses


def in_kafka(monkeypatch: pytest.MonkeyPatch, job: Job) -> None:
    monkeypatch.setattr(remote_job, "remote_job", lambda name, brokers, until=None: job)


async def fired(trigger: DriverPodTrigger) -> dict[str, Any]:
    async for event in trigger.run():
        assert isinstance(event, TriggerEvent)
        found: dict[str, Any] = event.payload
        return found
    raise AssertionError("the trigger fired no event")


def watch(trigger: DriverPodTrigger) -> dict[str, Any]:
    return asyncio.run(asyncio.wait_for(fired(trigger), timeout=60))


def test_spark_itself_is_given_a_pod_that_mounts_its_secrets_and_says_none(
    settings: Settings, api: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's own submission client sends this. Whoever may read pods and config maps learns no secret."""
    monkeypatch.setenv("STREAMPLAN_KAFKA_PROPERTIES", '{"sasl.password": "s3cret-of-the-environment"}')
    monkeypatch.setenv("STREAMPLAN_INSTANCES", "3")
    monkeypatch.setenv("SPARK_CONF_DIR", str(DEPLOY / "spark"))
    trigger = deferred()
    [pod], [secret], [config] = api.of_kind("Pod"), api.of_kind("Secret"), api.of_kind("ConfigMap")
    name = pod["metadata"]["name"]
    assert name.startswith("orders-aggregator-")
    assert trigger.pod == {"master": api.master, "namespace": "streams", "name": name}

    labels, annotations = pod["metadata"]["labels"], pod["metadata"]["annotations"]
    assert labels["streamplan/job"] == "orders-aggregator"
    assert annotations["streamplan/dag"] == "orders_aggregator"
    assert annotations["streamplan/run"] == "manual__2026-01-01T00:00:00+00:00"

    [container] = pod["spec"]["containers"]
    assert container["image"] == "registry.example/streamplan-airflow:1"
    assert pod["spec"]["serviceAccountName"] == "streamplan-driver"
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert environment["STREAMPLAN_KAFKA_PROPERTIES"] == "/etc/streamplan/kafka/client.json"
    assert environment["STREAMPLAN_PIPELINES"] == "streamplan.pipelines.orders"
    assert "STREAMPLAN_KAFKA_HANDED_OVER" not in environment
    words = container["args"]
    job = words.index(f"local://{quote(str(PACKAGE / 'jobs' / 'aggregator.py'))}")
    assert words[0] == "driver"
    arguments = dict(zip(words[job + 1 :: 2], words[job + 2 :: 2], strict=True))
    assert arguments["--pipeline"] == "orders"
    assert arguments["--bootstrap-servers"] == "one:9092"
    assert arguments["--checkpoints"] == "s3a://bucket/checkpoints"

    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    [volume] = [each for each in pod["spec"]["volumes"] if "secret" in each]
    assert volume["secret"]["secretName"] == secret["metadata"]["name"] == f"{name}-kafka"
    assert mounts[volume["name"]] == "/etc/streamplan/kafka"
    [owner] = secret["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Pod", name, pod["metadata"]["uid"])

    properties = config["data"]["spark.properties"]
    assert "spark.kubernetes.submission.waitAppCompletion=false" in properties
    assert "spark.executor.instances=3" in properties
    assert f"local\\://{quote(str(settings.jars))}/connector.jar" in properties
    assert "spark.kubernetes.file.upload.path" not in properties, "nothing is uploaded"

    # The deployment's role permits what was asked, to Airflow's workers.
    allowed = allowed_requests()
    for request in api.requests:
        assert (VERBS[request.method], request.path.split("/namespaces/streams/")[1].split("/")[0]) in allowed, request

    others = [each for each in api.objects.values() if each["kind"] != "Secret"]
    for each in others:
        assert not [word for word in SECRETS if word in json.dumps(each)], each["kind"]


def test_the_secret_is_read_by_the_driver_as_the_connection_was_meant(
    settings: Settings, api: FakeApiServer, submitted: list[list[str]], tmp_path: Path
) -> None:
    deferred()
    [secret] = api.of_kind("Secret")
    file = tmp_path / "client.json"
    file.write_bytes(base64.b64decode(secret["data"]["client.json"]))
    file.chmod(0o400)
    driver = Brokers.from_environment("one:9092", {"STREAMPLAN_KAFKA_PROPERTIES": str(file)})
    assert driver == Brokers.from_connection(LOGIN)
    assert file.exists(), "a mounted secret cannot be removed"
    assert not [word for word in SECRETS if word in shlex.join(submitted[0])]


def test_a_token_callback_that_is_permitted_here_is_permitted_to_the_driver(
    settings: Settings, submitted: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"bootstrap.servers": "one:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    monkeypatch.setenv(
        "AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": {**extra, "oauth_cb": "os.getenv"}})
    )
    with pytest.raises(AirflowFailException, match="STREAMPLAN_TOKEN_CALLBACKS"):
        aggregator().execute(context())
    assert submitted == []
    monkeypatch.setenv("STREAMPLAN_TOKEN_CALLBACKS", "os.getenv,other.function")
    deferred()
    assert "spark.kubernetes.driverEnv.STREAMPLAN_TOKEN_CALLBACKS=os.getenv" in submitted[0]


def test_a_retry_watches_the_pod_that_its_run_has_started(
    settings: Settings, api: FakeApiServer, submitted: list[list[str]]
) -> None:
    """Also where the worker died between the pod and its secret."""
    first = deferred()
    [secret] = api.of_kind("Secret")
    path = f"/api/v1/namespaces/streams/secrets/{secret['metadata']['name']}"
    del api.objects[path]
    assert deferred().pod == first.pod
    assert path in api.objects
    assert deferred().pod == first.pod
    assert len(submitted) == 1


def test_a_pod_that_is_being_deleted_is_not_watched_again(
    settings: Settings, api: FakeApiServer, submitted: list[list[str]]
) -> None:
    """On a node that is lost nobody ends it: its phase stays Running, and the next try would wait for it again."""
    first = deferred()
    metadata = api.objects[f"/api/v1/namespaces/streams/pods/{first.pod['name']}"]["metadata"]
    metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    second = deferred()
    assert second.pod != first.pod
    assert deferred().pod == second.pod
    assert len(submitted) == 2


def test_a_driver_that_another_run_left_behind_gives_way(
    settings: Settings, api: FakeApiServer, submitted: list[list[str]]
) -> None:
    first = deferred("manual__1")
    second = deferred("manual__2")
    assert [each["metadata"]["name"] for each in api.of_kind("Pod")] == [second.pod["name"]] != [first.pod["name"]]


def test_the_pod_of_the_last_try_is_kept_for_its_log_and_older_ones_are_deleted(
    settings: Settings, api: FakeApiServer, submitted: list[list[str]]
) -> None:
    names = []
    for _ in range(3):
        names.append(deferred().pod["name"])
        api.end(names[-1], 1)
    last = deferred().pod["name"]
    assert {each["metadata"]["name"] for each in api.of_kind("Pod")} == {names[-1], last}


@pytest.mark.parametrize(
    ("exit_status", "error", "message"),
    [
        (78, AirflowFailException, "ended with exit status 78"),
        (1, AirflowException, "ended with exit status 1"),
        (0, AirflowException, "ended with exit status 0, but it must run until its DAG run is stopped"),
        (143, AirflowException, "ended with exit status 143"),
    ],
)
def test_the_end_of_the_pod_is_the_end_of_the_task_and_shows_its_log(
    settings: Settings,
    api: FakeApiServer,
    submitted: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    exit_status: int,
    error: type[Exception],
    message: str,
) -> None:
    """Kafka still lists a driver that was killed, so the API server is the first to say it."""
    trigger = deferred()
    in_kafka(monkeypatch, Job(lives=True))
    api.end(trigger.pod["name"], exit_status, "the last words of the driver\n")
    with pytest.raises(error, match=message) as raised:
        aggregator().resume(context(), watch(trigger))
    assert isinstance(raised.value, AirflowFailException) == (exit_status == 78)
    text = str(raised.value)
    assert f"kubectl logs --namespace streams {trigger.pod['name']}" in text
    assert "the last words of the driver" in text


def test_a_driver_that_kafka_does_not_see_any_more_is_deleted(
    settings: Settings, api: FakeApiServer, submitted: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger = deferred()
    in_kafka(monkeypatch, Job(lives=False))
    with pytest.raises(AirflowException, match="showed no life in Kafka, phase Pending, and was deleted"):
        aggregator().resume(context(), watch(trigger))
    assert api.of_kind("Pod") == []


def test_a_pod_that_somebody_deleted_is_told_and_tried_again(
    settings: Settings, api: FakeApiServer, submitted: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger = deferred()
    in_kafka(monkeypatch, Job(lives=True))
    trigger.driver.delete()
    with pytest.raises(AirflowException, match=r"its pod streams/orders-aggregator-.* was deleted"):
        aggregator().resume(context(), watch(trigger))


def test_where_the_triggerer_may_not_ask_the_api_server_kafka_decides(
    settings: Settings, api: FakeApiServer, submitted: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger = deferred()
    api.forbidden.add(("GET", "pods"))
    job = Job(lives=True)
    in_kafka(monkeypatch, job)

    async def ends_later() -> dict[str, Any]:
        task = asyncio.ensure_future(fired(trigger))
        await asyncio.sleep(0.1)
        assert not task.done()
        job.lives = False
        return await asyncio.wait_for(task, timeout=60)

    event = asyncio.run(ends_later())
    with pytest.raises(AirflowException, match="How it ended is unknown"):
        aggregator().resume(context(), event)


def test_a_stop_asks_in_kafka_and_keeps_the_pod_for_its_log(
    settings: Settings, api: FakeApiServer, submitted: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger = deferred()
    job = Job()
    in_kafka(monkeypatch, job)
    asyncio.run(trigger.on_kill())
    assert job.asked == 1
    assert len(api.of_kind("Pod")) == 1


@pytest.mark.parametrize("error", [StreamplanError("no position"), BrokersUnavailable("no broker")])
def test_a_driver_that_cannot_be_asked_to_stop_loses_its_pod(
    settings: Settings,
    api: FakeApiServer,
    submitted: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    error: StreamplanError,
) -> None:
    """As before the first positions of an application, which would hold the request."""
    trigger = deferred()
    in_kafka(monkeypatch, Job(refuses=error))
    asyncio.run(trigger.on_kill())
    assert api.of_kind("Pod") == []


def test_a_run_that_ends_while_no_triggerer_runs_stops_its_driver(
    settings: Settings, api: FakeApiServer, submitted: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    deferred("manual__1")
    job = Job()
    in_kafka(monkeypatch, job)
    for owner, asked in (
        (Owner("orders_aggregator", "manual__2"), 0),
        (Owner("nobody_aggregator", "manual__1"), 0),
        (Owner("orders_aggregator", "manual__1"), 1),
    ):
        for thread in orphan_listener.stop_processes_of(owner):
            thread.join(60)
        assert job.asked == asked, owner


def test_a_job_that_leaves_a_file_runs_beside_its_task(settings: Settings) -> None:
    """The check reads its result. Its executors are pods nevertheless."""
    words = spark_hook(settings, "orders", "recount", [])._build_spark_submit_command("recount.py")
    assert words[words.index("--deploy-mode") + 1] == "client"
    assert any(word.startswith("spark.driver.host=") for word in words)
    assert not [word for word in words if "driver.pod" in word or word.startswith("local:")]
    assert RecountOperator(task_id="recount", pipeline="orders")


@pytest.mark.parametrize(
    ("connection", "message"),
    [
        ({"host": "yarn", "extra": {"deploy-mode": "cluster"}}, "expected client, or cluster with a master k8s://"),
        (
            {"host": "spark://a", "port": 7077, "extra": {"deploy-mode": "cluster"}},
            "observed cluster with .*spark://a:7",
        ),
        ({"host": "k8s://https://a", "extra": {"deploy-mode": "cluster"}}, '"namespace" in its extra'),
        ({"host": "k8s://https://a", "extra": {"deploy-mode": "custer"}}, "observed custer"),
    ],
)
def test_a_driver_in_a_cluster_that_cannot_be_served_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any], message: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", **connection}))
    with pytest.raises(Refused, match=message):
        driver_cluster("spark_default")


def test_without_the_kubernetes_provider_the_refusal_names_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow's Spark provider would end with a NameError."""
    monkeypatch.delattr(spark_submit, "kube_client")
    with pytest.raises(AirflowFailException, match="apache-airflow-providers-cncf-kubernetes"):
        aggregator().execute(context())
