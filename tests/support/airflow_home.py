"""The directory and the settings of the Airflow of a test session."""

from __future__ import annotations

import tempfile
from pathlib import Path

from streamplan.settings import PROJECT

DAGS = PROJECT / "dags"
HOME = Path(tempfile.mkdtemp(prefix="streamplan airflow "))
VARIABLES = {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
    "AIRFLOW__CORE__PLUGINS_FOLDER": str(PROJECT / "plugins"),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__HOSTNAME_CALLABLE": "socket.gethostname",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME / 'airflow.db'}",
    "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(HOME / "logs"),
}
