"""The part of the build that pyproject.toml can't describe: mypyc compiles the pure modules to C.

disque-py is plain Python and runs from source. Its pure modules (no sockets, files, threads) are fully typed, so mypyc
can translate them. Behaviour stays the same, at twice the speed (docs/performance.md). A wheel has compiled modules if
the build finds a C compiler and Python's headers. DISQUE_PY_COMPILE=no makes a wheel of pure Python.
DISQUE_PY_COMPILE=yes fails if it can't compile, instead of falling back to Python. An editable install stays Python.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# Every module below these folders becomes C, unless a line in it gives the reason why it stays Python. The simulator is
# not among them: it was a fifth of all C code, and gains a seventh of its time, because the broker in it is compiled.
FOLDERS = (
    "cluster_bus",
    "persistence",
    "disque_py/commands",
    "disque_py/core",
    "disque_py/node",
    "disque_py/resp",
    "disque_py/storage",
)
# Modules for the outside that every command or turn passes: the values in force, the way from the event loop to the
# broker.
FILES = (
    "cluster_bus/link.py",
    "disque_py/config/settings.py",
    "disque_py/server/clock.py",
    "disque_py/server/connection.py",
    "disque_py/server/turn_loop.py",
)
STAYS_PYTHON = re.compile(r"^# Stays Python: \S.*\.$", re.MULTILINE)
# Modules that no command of a producer or a consumer passes. The C compiler does not optimize them, because it would
# spend more than half of its time on that.
SELDOM = (
    "cluster_bus/failure.py",
    "cluster_bus/handshake.py",
    "cluster_bus/heartbeat.py",
    "cluster_bus/membership.py",
    "cluster_bus/nodes_file.py",
    "disque_py/commands/acl.py",
    "disque_py/commands/auditing.py",
    "disque_py/commands/batches.py",
    "disque_py/commands/clients.py",
    "disque_py/commands/cluster.py",
    "disque_py/commands/configuring.py",
    "disque_py/commands/debugging.py",
    "disque_py/commands/describing.py",
    "disque_py/commands/events.py",
    "disque_py/commands/hello.py",
    "disque_py/commands/info.py",
    "disque_py/commands/latency.py",
    "disque_py/commands/latency_report.py",
    "disque_py/commands/locks.py",
    "disque_py/commands/logins.py",
    "disque_py/commands/monitoring.py",
    "disque_py/commands/moving.py",
    "disque_py/commands/permissions.py",
    "disque_py/commands/queue_settings.py",
    "disque_py/commands/queues.py",
    "disque_py/commands/scanning.py",
    "disque_py/commands/schedules.py",
    "disque_py/commands/server.py",
    "disque_py/commands/shares.py",
    "disque_py/commands/subcommands.py",
    "disque_py/commands/tasks.py",
    "disque_py/commands/topics.py",
    "disque_py/commands/voters.py",
    "disque_py/core/access_log.py",
    "disque_py/core/asking.py",
    "disque_py/core/cron.py",
    "disque_py/core/electing.py",
    "disque_py/core/firing.py",
    "disque_py/core/gathering.py",
    "disque_py/core/keeping.py",
    "disque_py/core/leaving.py",
    "disque_py/core/locking.py",
    "disque_py/core/moving.py",
    "disque_py/core/pattern_interest.py",
    "disque_py/core/pausing.py",
    "disque_py/core/queue_settings.py",
    "disque_py/core/rebalance.py",
    "disque_py/core/recalling.py",
    "disque_py/core/recurring.py",
    "disque_py/core/repair.py",
    "disque_py/core/repair_state.py",
    "disque_py/core/replacing.py",
    "disque_py/core/reset.py",
    "disque_py/core/scan.py",
    "disque_py/core/settings_sync.py",
    "disque_py/core/task_jobs.py",
    "disque_py/core/task_state.py",
    "disque_py/core/tasks.py",
    "disque_py/core/topics.py",
    "disque_py/core/units.py",
    "disque_py/core/users.py",
    "disque_py/core/visible_events.py",
    "disque_py/core/voter_list.py",
    "disque_py/core/voter_memory.py",
    "disque_py/core/windows.py",
    "disque_py/storage/body_recovery.py",
    "disque_py/storage/event_readers.py",
    "disque_py/storage/journal_info.py",
    "disque_py/storage/reloading.py",
    "persistence/backup.py",
    "persistence/pages.py",
    "persistence/search.py",
)
PIECES = 4  # Of the modules of each level: enough for two to four cores.
MODULE_C = "__native_"  # So mypyc names the C file of a module, with three underscores for each dot.
BUILDS = {"bdist_wheel", "build", "build_ext"}


def wanted() -> str:
    """Return the value of DISQUE_PY_COMPILE: yes, no or auto."""
    word = os.environ.get("DISQUE_PY_COMPILE", "auto")
    if word not in ("yes", "no", "auto"):
        sys.exit(f"DISQUE_PY_COMPILE is {word!r}; it may be yes, no or auto")
    return word


def has_compiler() -> bool:
    """Return whether the compiler that Python was built with and Python's headers are installed."""
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return sys.implementation.name == "cpython" and shutil.which(compiler.split()[0]) is not None and header.exists()


def modules() -> list[str]:
    """Return the modules that are compiled, as paths relative to this folder."""
    here = Path(__file__).resolve().parent
    found = [path for folder in FOLDERS for path in (here / folder).rglob("*.py") if path.name != "__init__.py"]
    found += [here / name for name in FILES]
    return sorted(
        {
            path.relative_to(here).as_posix()
            for path in found
            if not STAYS_PYTHON.search(path.read_text(encoding="utf-8"))
        }
    )


def pieces(sources: list[str]) -> list[tuple[str, bool]]:
    """Return C files that include those of mypyc, and whether their code is run seldom.

    Each module's C file includes a header of a megabyte. The files of a piece share one reading of it. The longest
    pieces come first, so no core waits long for the last one.
    """
    seldom = tuple(MODULE_C + re.sub(r"\.py$", ".c", path).replace("/", "___") for path in SELDOM)
    of_modules = [source for source in sources if Path(source).name.startswith(MODULE_C)]
    heaps: list[tuple[int, str, bool, list[str]]] = []
    for is_seldom, word in ((False, "often"), (True, "seldom")):
        heaps += [(0, f"piece_{at}_{word}.c", is_seldom, []) for at in range(PIECES)]
    for source in sorted(of_modules, key=lambda source: (-os.path.getsize(source), source)):
        is_seldom = Path(source).name.startswith(seldom)
        smallest = min(heap for heap in heaps if heap[2] == is_seldom)
        heaps.remove(smallest)
        heaps.append((smallest[0] + os.path.getsize(source), smallest[1], is_seldom, [*smallest[3], source]))
    made = []
    for _, name, is_seldom, heap in sorted(heaps, reverse=True):
        if heap:
            path = Path(heap[0]).with_name(name)
            path.write_text("".join(f'#include "{Path(source).name}"\n' for source in sorted(heap)), encoding="utf-8")
            made.append((str(path), is_seldom))
    return made + [(source, False) for source in sources if source not in of_modules]


class Build(build_ext):
    """A build that uses all cores. Without DISQUE_PY_COMPILE=yes, a failed build makes pure Python."""

    def finalize_options(self) -> None:
        """Build extensions side by side: there is a small one for each module, besides the large one with all code."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extensions(self) -> None:
        """Compile the large extension in pieces, as many at once as there are cores."""
        compile_in_order = self.compiler.compile
        unoptimized = ["-O0"] if self.compiler.compiler_type == "unix" else []

        def compile_at_once(sources: list[str], *args: Any, **options: Any) -> list[str]:
            if len(sources) == 1:
                return compile_in_order(sources, *args, **options)
            usual = options.pop("extra_postargs", None) or []

            def compile_piece(piece: tuple[str, bool]) -> list[str]:
                source, is_seldom = piece
                level = unoptimized if is_seldom else []
                return compile_in_order([source], *args, extra_postargs=[*usual, *level], **options)

            with ThreadPoolExecutor(os.cpu_count()) as pool:
                return [file for files in pool.map(compile_piece, pieces(sources)) for file in files]

        self.compiler.compile = compile_at_once
        super().build_extensions()

    def run(self) -> None:
        """Compile, or print the reason why not."""
        try:
            super().run()
        except Exception as error:
            if wanted() == "yes":
                raise
            sys.stderr.write(f"not compiled, so this will be pure Python: {error}\n")
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions = []


def compiled() -> list[Extension]:
    """Return the extensions to compile; none if that is not wanted or not possible."""
    if wanted() == "no" or not BUILDS & set(sys.argv) or (wanted() == "auto" and not has_compiler()):
        return []
    from mypyc.build import mypycify

    # When a wheel is built, the libraries are not installed, so mypy must not report them as missing. Each module is
    # one C file, and several are compiled as one (`pieces`). Calls between modules are as fast as within one.
    options = ["--ignore-missing-imports", "--no-warn-unused-ignores"]
    # Assertions stay; a build without them shows what they cost (docs/performance.md).
    is_bare = os.environ.get("DISQUE_PY_ASSERTS") == "no"
    try:
        return mypycify([*options, *modules()], opt_level="1", debug_level="0", multi_file=True, strip_asserts=is_bare)
    except SystemExit:  # mypyc can't compile, and has printed the reason.
        if wanted() == "yes":
            raise
        sys.stderr.write("not compiled, so this will be pure Python: mypyc refuses\n")
        return []


if __name__ == "__main__":
    setup(ext_modules=compiled(), cmdclass={"build_ext": Build})
