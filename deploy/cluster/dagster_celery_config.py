"""Celery's settings on workers, found by dagster-celery because this folder is on their PYTHONPATH."""

import multiprocessing
import os

from celery.signals import worker_process_init

broker_url = result_backend = os.environ["CASEBITS_BROKER"]
broker_connection_retry_on_startup = True
# A worker that is busy takes no run that another one could begin.
worker_disable_prefetch = True
# The state of a run's task is how the daemon sees that its process died; it must outlive the longest run.
result_expires = 7 * 24 * 3600
# What a run leaked ends with its process.
worker_max_tasks_per_child = 100


@worker_process_init.connect
def _may_have_children(**_: object) -> None:
    # Celery's processes are daemonic, which multiprocessing takes for a ban; those of a run end with it by themselves.
    multiprocessing.current_process()._config["daemon"] = False
