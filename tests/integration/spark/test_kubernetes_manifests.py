"""``deploy/kubernetes/``: each manifest is what Kubernetes' API knows, by the model of it that Spark has (fabric8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession
from streamplan.settings import PROJECT

DEPLOY = PROJECT / "deploy" / "kubernetes"
MANIFESTS = [
    pytest.param(document, id=f"{file.name}: {document['kind']} {document['metadata']['name']}")
    for file in sorted(DEPLOY.glob("*.yaml"))
    if file.name != "values.yaml"
    for document in yaml.safe_load_all(file.read_text())
]


def unknown_fields(model: Any, value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of the fields that the model's classes do not have. fabric8 keeps them apart."""
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from unknown_fields(model.get(number), each, f"{path}[{number}]")
    elif (
        isinstance(value, dict)
        and str(model.getClass().getName()).startswith("io.fabric8.")
        and "Quantity" not in str(model.getClass().getName())
    ):
        extra = set(model.getAdditionalProperties()) if "getAdditionalProperties" in dir(model) else set()
        for name, each in value.items():
            if name in extra:
                yield f"{path}.{name}"
            elif isinstance(each, dict | list):
                yield from unknown_fields(getattr(model, f"get{name[0].upper()}{name[1:]}")(), each, f"{path}.{name}")


def read(spark: SparkSession, document: Any) -> Any:
    jvm: Any = spark._jvm
    return jvm.io.fabric8.kubernetes.client.utils.KubernetesSerialization().unmarshal(yaml.safe_dump(document))


@pytest.mark.parametrize("document", MANIFESTS)
def test_a_manifest_has_no_field_that_the_api_does_not_know(spark: SparkSession, document: Any) -> None:
    model = read(spark, document)
    assert model.getKind() == document["kind"]
    assert "GenericKubernetesResource" not in model.getClass().getName(), "such a kind is not of the API"
    assert list(unknown_fields(model, document)) == []


@pytest.mark.parametrize(
    "path", [("metadata",), ("spec",), ("spec", "template", "spec", "containers", 0), ("spec", "selector")]
)
def test_a_mistake_in_a_manifest_is_found(spark: SparkSession, path: tuple[Any, ...]) -> None:
    [document] = [
        each for each in yaml.safe_load_all((DEPLOY / "exporter.yaml").read_text()) if each["kind"] == "Deployment"
    ]
    place = document
    for step in path:
        place = place[step]
    place["imaginary"] = "x"
    [found] = unknown_fields(read(spark, document), document)
    assert found.endswith(".imaginary")
