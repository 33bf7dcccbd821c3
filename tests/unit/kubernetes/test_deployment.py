"""``deploy/kubernetes/``: its files fit each other, and the image starts what Spark and Airflow's chart ask it for."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from streamplan import __version__
from streamplan.settings import PROJECT, Settings

DEPLOY = PROJECT / "deploy" / "kubernetes"
VALUES: dict[str, Any] = yaml.safe_load((DEPLOY / "values.yaml").read_text())
DEFAULTS = dict(
    line.split(maxsplit=1)
    for line in (DEPLOY / "spark" / "spark-defaults.conf").read_text().splitlines()
    if line and not line.startswith("#")
)


def documents(name: str, kind: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all((DEPLOY / name).read_text()) if each["kind"] == kind]


def start(tmp_path: Path, *words: str, **environment: str) -> list[str]:
    """Run the image's entry point with programs that print their arguments, and return what it starts."""
    for name in ("spark-submit", "java", "airflow"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\nprintf '%s\\n' {name} \"$@\"\n")
        program.chmod(0o755)
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SPARK_HOME": "/spark home", **environment}
    done = subprocess.run(
        ["bash", str(DEPLOY / "entrypoint.sh"), *words], env=variables, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_driver_is_started_with_what_spark_has_written_for_it(tmp_path: Path) -> None:
    words = ["--properties-file", "/opt/spark/conf/spark.properties", "local:///a.py", "--pipeline", "a b"]
    assert start(tmp_path, "driver", *words, SPARK_DRIVER_BIND_ADDRESS="10.0.0.7") == [
        *("spark-submit", "--deploy-mode", "client", "--conf", "spark.driver.bindAddress=10.0.0.7"),
        *words,
    ]


def test_an_executor_gets_the_options_of_its_jvm_in_their_order(tmp_path: Path) -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-Doption={number} x" for number in range(12)}
    environment = {
        "SPARK_DRIVER_URL": "spark://a@b:1",
        "SPARK_EXECUTOR_ID": "3",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_EXECUTOR_MEMORY": "1024m",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.8",
        "SPARK_EXECUTOR_POD_NAME": "exec-3",
        "SPARK_CONF_DIR": "/conf",
    }
    words = start(tmp_path, "executor", **options, **environment)
    assert words[:13] == ["java", *options.values()]
    assert words[13:18] == [
        *("-Xms1024m", "-Xmx1024m", "-cp", "/conf:/spark home/jars/*"),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
    ]
    given = dict(zip(words[18::2], words[19::2], strict=True))
    assert given == {
        "--driver-url": "spark://a@b:1",
        "--executor-id": "3",
        "--cores": "1",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.8",
        "--resourceProfileId": "0",
        "--podName": "exec-3",
    }


def test_the_programs_of_the_chart_are_started_as_they_are(tmp_path: Path) -> None:
    assert start(tmp_path, "bash", "-c", "exec \\\nairflow scheduler") == ["airflow", "scheduler"]


def test_the_image_is_built_on_the_one_that_the_page_builds_before() -> None:
    """Its first line is looked for on this machine first, and an image of another name is nowhere."""
    recipe, page = (DEPLOY / "Dockerfile").read_text(), (PROJECT / "docs" / "kubernetes.md").read_text()
    [base] = re.findall(r"^ARG BASE=(\S+)$", recipe, re.MULTILINE)
    assert base == f"streamplan:{__version__}"
    for text in (recipe, page):
        built = re.findall(r"docker build .*--tag (\S+)", text)
        assert built == [base, DEFAULTS["spark.kubernetes.container.image"]]


def test_the_image_is_built_without_buildkit_too() -> None:
    assert not re.search(r"^COPY --chmod", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)


def test_all_pods_have_one_image() -> None:
    image = VALUES["images"]["airflow"]
    deployments = documents("exporter.yaml", "Deployment") + documents("serve.yaml", "Deployment")
    images = {
        container["image"] for each in deployments for container in each["spec"]["template"]["spec"]["containers"]
    }
    images |= {f"{image['repository']}:{image['tag']}", DEFAULTS["spark.kubernetes.container.image"]}
    assert len(images) == 1


def test_the_roles_are_bound_to_the_service_accounts_of_the_chart_and_of_the_driver() -> None:
    bound = {
        (subject["namespace"], subject["name"], binding["roleRef"]["name"])
        for binding in documents("roles.yaml", "RoleBinding")
        for subject in binding["subjects"]
    }
    accounts = {
        role: VALUES[role]["serviceAccount"]["name"] for role in ("workers", "triggerer", "scheduler", "apiServer")
    }
    driver = DEFAULTS["spark.kubernetes.authenticate.driver.serviceAccountName"]
    assert bound == {
        ("streams", driver, "streamplan-driver"),
        ("airflow", accounts["workers"], "streamplan-driver"),
        *(("airflow", accounts[role], "streamplan-supervisor") for role in ("triggerer", "scheduler", "apiServer")),
    }


def test_nobody_may_read_a_secret() -> None:
    for role in documents("roles.yaml", "Role"):
        for rule in role["rules"]:
            assert "*" not in rule["resources"] + rule["verbs"]
            if "secrets" in rule["resources"]:
                assert rule["verbs"] == ["create"]


def test_selectors_select_their_pods() -> None:
    policies = {each["metadata"]["name"]: each for each in documents("network-policies.yaml", "NetworkPolicy")}
    for file in ("exporter.yaml", "serve.yaml"):
        [deployment], [service] = documents(file, "Deployment"), documents(file, "Service")
        labels = deployment["spec"]["template"]["metadata"]["labels"].items()
        for selector in (
            deployment["spec"]["selector"]["matchLabels"],
            service["spec"]["selector"],
            policies[deployment["metadata"]["name"]]["spec"]["podSelector"]["matchLabels"],
        ):
            assert selector.items() <= labels


def test_the_settings_of_the_chart_are_settings_of_streamplan() -> None:
    environment = {each["name"]: each["value"] for each in VALUES["env"]}
    settings = Settings.from_environment(environment)
    assert (settings.checkpoints, settings.instances, settings.deferrable) == ("s3a://streamplan/checkpoints", 2, False)
    mounted = {each["mountPath"] for each in VALUES["volumeMounts"]}
    assert {str(settings.home), environment["SPARK_CONF_DIR"]} == mounted
    assert {each["name"] for each in VALUES["volumes"]} == {each["name"] for each in VALUES["volumeMounts"]}


def test_no_secret_stands_in_spark_s_configurations() -> None:
    """spark-submit copies them into a config map."""
    assert not [name for name in DEFAULTS if re.search(r"(access|secret)\.key$|password|token", name)]


@pytest.mark.parametrize("page", ["docs/kubernetes.md"])
def test_every_file_and_every_secret_is_on_the_page(page: str) -> None:
    text = (PROJECT / page).read_text()
    assert not [file.name for file in DEPLOY.rglob("*") if file.is_file() and file.name not in text]
    secrets = {each["secretName"] for each in VALUES["secret"]}
    secrets |= {VALUES[name] for name in ("fernetKeySecretName", "apiSecretKeySecretName", "jwtSecretName")}
    secrets |= {VALUES["data"]["metadataSecretName"]}
    assert not [name for name in secrets if f"secret generic {name}" not in text]


def test_old_logs_are_deleted_as_often_as_the_chart_says(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    old, new, other, left = (
        logs / "run 1" / "task" / "1.log",
        logs / "run 2" / "1.log",
        logs / "run 1" / "note",
        logs / "run 0" / "task",
    )
    for file in (old, new, other):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    left.mkdir(parents=True)
    long_ago = time.time() - 16 * 86_400
    for path in (old, other, left):
        os.utime(path, (long_ago, long_ago))
    (tmp_path / "sleep").write_text(f'#!/bin/sh\necho "$@" > "{tmp_path}/slept"\nexit 3\n')  # which ends the loop
    (tmp_path / "sleep").chmod(0o755)
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "AIRFLOW_HOME": str(tmp_path)}
    variables |= {"AIRFLOW__LOG_RETENTION_DAYS": "15", "AIRFLOW__LOG_CLEANUP_FREQUENCY_MINUTES": "7"}
    done = subprocess.run(["bash", str(DEPLOY / "clean-logs.sh")], env=variables, timeout=60, check=False)
    assert done.returncode == 3
    assert (tmp_path / "slept").read_text() == "7m\n"
    assert not old.exists()
    assert not left.exists()
    assert new.exists()
    assert other.exists()


def test_no_pod_has_two_volumes_of_one_claim() -> None:
    """The kubelet would wait for the second one without end."""
    claims = [
        each["persistentVolumeClaim"]["claimName"] for each in VALUES["volumes"] if "persistentVolumeClaim" in each
    ]
    claims.append(VALUES["logs"]["persistence"]["existingClaim"])
    made = [each["metadata"]["name"] for each in documents("volume.yaml", "PersistentVolumeClaim")]
    assert sorted(claims) == sorted(made)
