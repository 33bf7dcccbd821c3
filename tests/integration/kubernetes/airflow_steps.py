"""What pods of Airflow do with the aggregator of the pipeline ``orders``, as a program: a step of :func:`main`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from types import SimpleNamespace
from typing import Any


def main(step: str, argument: str) -> dict[str, Any]:
    """Do a step and return its outcome.

    ================== ======================= ======================================================
    Step               Who                     Outcome
    ================== ======================= ======================================================
    ``execute`` run    a worker                ``trigger``: with what the task defers
    ``watch`` trigger  the triggerer           ``event``: what the trigger fires with
    ``kill`` trigger   the triggerer           nothing: the run was stopped
    ``resume`` event   a worker                ``error`` and ``text``: how the task ends
    ``ended`` run      the API server          nothing: the run has ended while no triggerer runs
    ================== ======================= ======================================================
    """
    from airflow.providers.apache.spark.hooks import spark_submit
    from airflow.sdk.bases.operator import ExecutorSafeguard
    from airflow.sdk.exceptions import AirflowException, TaskDeferred
    from streamplan.airflow import orphan_listener
    from streamplan.airflow.driver_pods import DriverPodTrigger
    from streamplan.airflow.supervised_job import AggregatorOperator
    from streamplan.processes import Owner

    ExecutorSafeguard.test_mode = True
    if getattr(spark_submit, "kube_client", None) is None:
        vars(spark_submit)["kube_client"] = object()  # a call of spark-submit needs no more of Airflow's provider
    task = AggregatorOperator(task_id="aggregate", pipeline="orders")

    def context(run: str) -> Any:
        store = SimpleNamespace(set=lambda key, value, retention: None)
        return {"ti": SimpleNamespace(dag_id="orders_aggregator", run_id=run), "task_state_store": store}

    async def fired(trigger: DriverPodTrigger) -> Any:
        [event] = [event async for event in trigger.run()]
        return event.payload

    try:
        match step:
            case "execute":
                task.execute(context(argument))
            case "watch":
                return {"event": asyncio.run(fired(DriverPodTrigger(**json.loads(argument))))}
            case "kill":
                asyncio.run(DriverPodTrigger(**json.loads(argument)).on_kill())
            case "resume":
                task.resume(context("resumed"), json.loads(argument))
            case "ended":
                for thread in orphan_listener.stop_processes_of(Owner("orders_aggregator", argument)):
                    thread.join()
            case _:
                raise ValueError(step)
    except TaskDeferred as deferred:
        return {"trigger": deferred.trigger.serialize()[1]}
    except AirflowException as error:
        return {"error": type(error).__name__, "text": str(error)}
    return {}


if __name__ == "__main__":
    outcome = main(*sys.argv[1:])
    sys.stdout.flush()
    os.write(1, f"\n{json.dumps(outcome)}\n".encode())
