"""An Airflow DAG: each hour a scan of one cluster into the lake, then its report and its metrics.

Copy it into the DAG folder of Airflow 3. The workers need Java 17 and `pip install 'rebal[fleet]'`;
the lake's credentials come from their environment.
"""

import shlex
from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator  # pyright: ignore
from airflow.sdk import DAG  # pyright: ignore

LAKE = "s3://lakes/kafka"
SCAN = ["rebal", "fleet", "scan", "-b", "kafka-1:9092", "--out", LAKE]
# Without --exit-zero a blocked group would make the task fail: exit code 3.
REPORT = ["rebal", "fleet", "report", LAKE, "--exit-zero", "--out", "/srv/reports/fleet.html"]
METRICS = ["rebal", "fleet", "metrics", LAKE, "--out", "/var/lib/node_exporter/rebal.prom"]

with DAG(
    dag_id="rebal_fleet",
    schedule="7 * * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    # Of two scans of one cluster the lake keeps the first and the other fails.
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
) as dag:
    scan = BashOperator(
        task_id="scan",
        bash_command=shlex.join(SCAN),
        execution_timeout=timedelta(minutes=50),
    )
    report = BashOperator(task_id="report", bash_command=shlex.join(REPORT))
    metrics = BashOperator(task_id="metrics", bash_command=shlex.join(METRICS))
    scan >> [report, metrics]
