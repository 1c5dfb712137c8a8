"""disque-worker: the command line of a worker.

    disque-worker shop.tasks:app                       # ten tasks at a time
    disque-worker shop.tasks:app -c 4 --processes 4    # four processes with four tasks each
    disque-worker shop.tasks:app --reload              # restarts when a file of the program changes

Exit status: 0 ended by a signal, 1 ended by an error, 2 bad usage, or the program can't be imported.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click

import disque_py
from disque_py import __version__
from disque_py.client.errors import DisqueError
from disque_py.client.options import settings_of_url
from disque_py.program_commands import ProgramCommand
from disque_py.shell_scripts import completion_option
from disque_py.tasks.app import App
from disque_py.tasks.source_watch import SourceWatch
from disque_py.tasks.supervisor import PARENT_VARIABLE, TICK_S, USAGE_STATUS, Supervisor
from disque_py.tasks.worker import CONCURRENCY, GRACE_S, AppWorker

PROGRAM: Final = "disque-worker"
LEVELS: Final = ("debug", "info", "warning", "error")

_log: Final = logging.getLogger("disque_py.tasks")


class ProgramError(click.ClickException):
    """The program of the user can't be imported, or has no app of this name."""

    exit_code = USAGE_STATUS


def load(target: str) -> App:
    """Return the app that `module:name` names; the default name is `app`. Raises ProgramError."""
    module_name, _, name = target.partition(":")
    if os.sep in module_name or module_name.endswith(".py"):
        raise ProgramError(f"{module_name}: it is a path, and no name of a module. {_advice(module_name, name)}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except SystemExit as error:
        raise ProgramError(f"{module_name} can't be imported: it calls sys.exit({error.code!r})") from error
    except Exception as error:  # The program may raise anything.
        if isinstance(error, ModuleNotFoundError) and error.name in _parents(module_name):
            raise ProgramError(
                f"{module_name} can't be imported: there is no module {error.name} in {os.getcwd()} or on the Python "
                "path. Start the worker in the folder of the program, or correct the name"
            ) from error
        traceback.print_exc()
        raise ProgramError(f"{module_name} can't be imported: {error}") from error
    module = found
    for part in (name or "app").split("."):
        found = getattr(found, part, None)
    if not isinstance(found, App):
        others = " or ".join(
            f"{module_name}:{other}" for other, value in vars(module).items() if isinstance(value, App)
        )
        raise ProgramError(
            f"{module_name} has no App called {name or 'app'!r}" + (f". Write {others}" if others else "")
        )
    return found


def _parents(module_name: str) -> list[str]:
    """Return a module's name, after those of the packages that it is in."""
    parts = module_name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _advice(path: str, name: str) -> str:
    """Return how to name the module of a file."""
    file = os.path.normpath(path.removesuffix(".py"))
    if os.path.isabs(file) or file.startswith(os.pardir):
        return "Start it in the folder of the program"
    return f"Write {file.replace(os.sep, '.')}" + (f":{name}" if name else "")


def _check_url(url: str, source: str) -> None:
    """Raise ProgramError for a URL that no client takes."""
    try:
        settings_of_url(url)
    except ValueError as error:
        raise ProgramError(f"{source}: {error}") from error


@click.command(cls=ProgramCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message=f"{PROGRAM} %(version)s")
@click.argument("target", metavar="MODULE[:APP]")
@click.option("-c", "--concurrency", type=click.IntRange(1, 10_000), default=CONCURRENCY, show_default=True,
              help="Tasks that a process runs at a time.")  # fmt: skip
@click.option("-p", "--processes", type=click.IntRange(1, 1_000), default=1, show_default=True,
              help="Worker processes. A process that crashes is restarted.")  # fmt: skip
@click.option("-q", "--queue", "queues", multiple=True, metavar="NAME",
              help="Serve this queue; may be repeated.  [default: the queues of the tasks]")  # fmt: skip
@click.option("--grace", type=click.FloatRange(0), default=GRACE_S, show_default=True, metavar="SECONDS",
              help="Seconds for running tasks after SIGTERM. A second signal ends this time.")  # fmt: skip
@click.option("--url", metavar="URL", help="The nodes, instead of those of the app.")
@click.option("--schedules/--no-schedules", default=True, help="Install the app's schedules.  [default: yes]")
@click.option("--prune", is_flag=True, help="Remove schedules that the app no longer declares.")
@click.option("--reload", "reloads", is_flag=True, help="Restart when a Python file changes, for development.")
@click.option("--reload-dir", "folders", multiple=True, type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="Folder to watch; may be repeated.  [default: the working directory]")  # fmt: skip
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="Lowest level to log.")
@completion_option(PROGRAM)
def main(
    target: str,
    concurrency: int,
    processes: int,
    queues: tuple[str, ...],
    grace: float,
    url: str | None,
    schedules: bool,
    prune: bool,
    reloads: bool,
    folders: tuple[Path, ...],
    log_level: str,
) -> None:
    """Run the tasks of an app until SIGTERM or SIGINT.

    MODULE is a module in the working directory or on the Python path, such as shop.tasks. APP is the name of the app
    in it; the default is `app`.
    """
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(process)d %(levelname)s %(message)s")
    if "" in queues:
        raise click.UsageError("-q needs the name of a queue")
    if folders and not reloads:
        raise click.UsageError("--reload-dir needs --reload")
    if url is not None:
        _check_url(url, "--url")
    if processes > 1 or reloads:
        command = _worker_command(target, concurrency, queues, grace, url, schedules, prune, log_level)
        watch = SourceWatch(folders or [Path.cwd()]) if reloads else None
        sys.exit(Supervisor(command, processes, grace, watch).run())
    app = load(target)
    if url is not None:
        app.url = url
    _check_url(app.url, "The URL of the app")
    try:
        worker = AppWorker(app, queues=queues, concurrency=concurrency, grace_s=grace, schedules=schedules, prune=prune)
    except ValueError as error:
        raise ProgramError(str(error)) from error
    _log.info("%s tasks of %s from %s, %s at a time", len(app.tasks), target, ", ".join(worker.queues), concurrency)
    _end_with_parent(worker)
    try:
        worker.run()
    except DisqueError as error:
        raise click.ClickException(str(error)) from error
    if worker.busy_threads:
        # Python would wait for these threads when it ends. Their jobs are back in the queue.
        _log.warning("%d tasks were still running in threads after the grace period", worker.busy_threads)
        logging.shutdown()
        with suppress(OSError, ValueError):  # Its reader may be gone, or the program may have closed it.
            sys.stdout.flush()
        os._exit(0)


def _worker_command(
    target: str,
    concurrency: int,
    queues: tuple[str, ...],
    grace: float,
    url: str | None,
    schedules: bool,
    prune: bool,
    log_level: str,
) -> list[str]:
    """Return the command that starts one worker with the options of this command line."""
    # The package may be in a checkout that only this process has in its path.
    home = str(Path(disque_py.__file__).parents[1])
    start = f"import sys; sys.path.append({home!r}); from disque_py.tasks.command import main; main()"
    words = [sys.executable, "-c", start, target, "--concurrency", str(concurrency), "--grace", str(grace)]
    words += ["--log-level", log_level, "--schedules" if schedules else "--no-schedules"]
    for queue in queues:
        words += ["--queue", queue]
    if url is not None:
        words += ["--url", url]
    return [*words, "--prune"] if prune else words


def _end_with_parent(worker: AppWorker) -> None:
    """Stop when the supervisor of this worker is gone."""
    parent = os.environ.pop(PARENT_VARIABLE, None)  # A task may start another worker, whose parent is this process.
    if parent is None:
        return

    def look() -> None:
        while str(os.getppid()) == parent:
            time.sleep(4 * TICK_S)
        worker.stop_from_thread()

    threading.Thread(target=look, name="disque-parent", daemon=True).start()


if __name__ == "__main__":
    main(prog_name=PROGRAM)
