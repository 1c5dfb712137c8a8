"""`manage.py disque_worker`: run the tasks of a backend until SIGTERM or SIGINT."""

from __future__ import annotations

import signal
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from disque_py.integrations.django.backend import DisqueBackend
from disque_py.integrations.django.framework import DEFAULT_TASK_BACKEND_ALIAS, task_backends
from disque_py.integrations.django.worker import DisqueWorker


class Command(BaseCommand):
    """The worker as a command of Django."""

    help = "Run tasks from Disque until SIGTERM or SIGINT. Running tasks are finished first."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--backend", default=DEFAULT_TASK_BACKEND_ALIAS, help="alias of the backend in TASKS")
        parser.add_argument(
            "--queues", default="", help="names of queues, separated by commas; by default all queues of the backend"
        )
        parser.add_argument("--threads", type=int, default=4, help="number of tasks that run at a time")
        parser.add_argument("--burst", action="store_true", help="stop when no task comes for a second")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the worker."""
        backend = task_backends[options["backend"]]
        if not isinstance(backend, DisqueBackend):
            raise CommandError(f"TASKS[{options['backend']!r}] is not a backend of Disque")
        queues = [name for name in options["queues"].split(",") if name]
        unknown = sorted(set(queues) - backend.queues) if backend.queues else []
        if unknown:
            raise CommandError(f"the backend has no queue {', '.join(unknown)}")
        if options["threads"] < 1:
            raise CommandError("--threads must be at least 1")
        worker = DisqueWorker(backend, queues=queues, threads=options["threads"], burst=options["burst"])
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: worker.stop())
        self.stdout.write(f"worker {worker.id}: {options['threads']} threads")
        worker.run()
