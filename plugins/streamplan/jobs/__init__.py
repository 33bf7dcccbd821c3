"""The jobs: programs that Airflow's tasks start, by spark-submit or as a process. Each is a file with a ``main()``.

spark-submit takes a file and no module, so a task names the file in this package.
"""
