"""Taskiq on Disque: broker, result backend, schedule source.

    from disque_py.integrations.taskiq import DisqueBroker, DisqueResultBackend

    broker = DisqueBroker("disque://127.0.0.1:7711").with_result_backend(
        DisqueResultBackend("disque://127.0.0.1:7711")
    )

docs/integrations/taskiq.md has the options. broker.py adds and fetches messages, results.py keeps results and progress,
and schedules.py makes the cluster add messages at planned times.
"""

from disque_py.integrations.taskiq.broker import DisqueBroker
from disque_py.integrations.taskiq.results import DisqueResultBackend
from disque_py.integrations.taskiq.schedules import DisqueScheduleSource

__all__ = ["DisqueBroker", "DisqueResultBackend", "DisqueScheduleSource"]
