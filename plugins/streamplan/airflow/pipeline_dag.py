"""What every DAG of a pipeline has: its id, its tags, its owner, and the page that explains it."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG

from streamplan.model.pipeline import Pipeline

OWNER = "streamplan"


def dag_of(pipeline: Pipeline, what: str, doc: str, **arguments: Any) -> DAG:
    """``<name>_<what>``. The first sentence of ``doc`` is its description."""
    return DAG(
        dag_id=f"{pipeline.name}_{what}",
        dag_display_name=f"{pipeline.name}_{what}",
        description=" ".join(doc.split(".")[0].replace("**", "").split()) + ".",
        doc_md="\n".join(line.strip() for line in doc.strip().splitlines()),
        catchup=False,
        tags=["streamplan", pipeline.name, what],
        default_args={"owner": OWNER, "retries": 0},
        **({"schedule": None, "is_paused_upon_creation": False, "render_template_as_native_obj": True} | arguments),
    )
