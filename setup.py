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
# not among them. It was a fifth of all C code, and became faster by a seventh only: the broker in it is compiled
# anyway.
FOLDERS = (
    "cluster_bus",
    "persistence",
    "disque_py/commands",
    "disque_py/core",
    "disque_py/node",
    "disque_py/resp",
    "disque_py/storage",
)
# Modules of the outside that run for every command or turn: the values in force, and the path from the event loop to
# the broker.
FILES = (
    "cluster_bus/link.py",
    "disque_py/config/settings.py",
    "disque_py/server/clock.py",
    "disque_py/server/connection.py",
    "disque_py/server/turn_loop.py",
)
STAYS_PYTHON = re.compile(r"^# Stays Python: \S.*\.$", re.MULTILINE)
# Modules that a job passes on its way: added, copied, handed over, fetched, acknowledged, written and read as a record;
# also jobs with attributes, claims, caps and topics. Only these are optimized, because the C compiler spends more than
# half of its time on that (docs/performance.md). tests/house/test_optimized_modules.py sends jobs through the broker
# and looks for missing modules.
OFTEN = (
    "cluster_bus/codec.py",
    "cluster_bus/columns.py",
    "cluster_bus/link.py",
    "cluster_bus/node.py",
    "cluster_bus/node_table.py",
    "cluster_bus/outgoing.py",
    "disque_py/commands/adding.py",
    "disque_py/commands/arguments.py",
    "disque_py/commands/connection.py",
    "disque_py/commands/ending.py",
    "disque_py/commands/fetching.py",
    "disque_py/commands/options.py",
    "disque_py/core/acks.py",
    "disque_py/core/broker.py",
    "disque_py/core/capping.py",
    "disque_py/core/caps.py",
    "disque_py/core/changing.py",
    "disque_py/core/claim_messages.py",
    "disque_py/core/claim_stamps.py",
    "disque_py/core/client.py",
    "disque_py/core/client_acks.py",
    "disque_py/core/delivery.py",
    "disque_py/core/ends.py",
    "disque_py/core/errored_ids.py",
    "disque_py/core/event_packing.py",
    "disque_py/core/events.py",
    "disque_py/core/exclusive.py",
    "disque_py/core/expiring_ids.py",
    "disque_py/core/fanout.py",
    "disque_py/core/filters.py",
    "disque_py/core/handover.py",
    "disque_py/core/holding.py",
    "disque_py/core/id_sets.py",
    "disque_py/core/ids.py",
    "disque_py/core/interest.py",
    "disque_py/core/job.py",
    "disque_py/core/job_attributes.py",
    "disque_py/core/job_snapshot.py",
    "disque_py/core/journaling.py",
    "disque_py/core/keying.py",
    "disque_py/core/keys.py",
    "disque_py/core/lifecycle.py",
    "disque_py/core/memory.py",
    "disque_py/core/node_sets.py",
    "disque_py/core/ordering.py",
    "disque_py/core/outbox.py",
    "disque_py/core/patterns.py",
    "disque_py/core/priority_queue.py",
    "disque_py/core/producer_waits.py",
    "disque_py/core/pulls.py",
    "disque_py/core/record_packing.py",
    "disque_py/core/queue.py",
    "disque_py/core/replica_sets.py",
    "disque_py/core/replication.py",
    "disque_py/core/requeue.py",
    "disque_py/core/restoring.py",
    "disque_py/core/rivals.py",
    "disque_py/core/schedule.py",
    "disque_py/core/shared_copies.py",
    "disque_py/core/sorted_jobs.py",
    "disque_py/core/stats.py",
    "disque_py/core/taking.py",
    "disque_py/core/timers.py",
    "disque_py/core/tokens.py",
    "disque_py/core/tombstones.py",
    "disque_py/core/zones.py",
    "disque_py/node/commit_position.py",
    "disque_py/node/dispatch.py",
    "disque_py/node/output_commit.py",
    "disque_py/node/turn.py",
    "disque_py/resp/replies.py",
    "disque_py/resp/requests.py",
    "disque_py/server/clock.py",
    "disque_py/server/connection.py",
    "disque_py/server/turn_loop.py",
    "disque_py/storage/event_log_service.py",
    "disque_py/storage/loading.py",
    "persistence/event_log.py",
    "persistence/event_records.py",
    "persistence/journal.py",
    "persistence/layouts.py",
    "persistence/records.py",
    "persistence/recovery.py",
    "persistence/write_queue.py",
)
PIECES = 4  # Of the modules of each level: enough for two to four cores.
MODULE_C = "__native_"  # So mypyc names the C file of a module, with three underscores for each dot.
BUILDS = {"bdist_wheel", "build", "build_ext"}


def wanted() -> str:
    """Return the value of DISQUE_PY_COMPILE: yes, no or auto."""
    word = os.environ.get("DISQUE_PY_COMPILE", "auto")
    if word not in ("yes", "no", "auto"):
        sys.exit(f"DISQUE_PY_COMPILE is {word!r}: set it to yes, no or auto")
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
    """Return C files that include those of mypyc, and whether their code is optimized.

    Each module's C file includes a header of a megabyte. The files of a piece share one reading of it. The optimized
    pieces come first, because they take longest, so no core waits long for the last one.
    """
    often = {MODULE_C + re.sub(r"\.py$", ".c", path).replace("/", "___") for path in OFTEN}
    of_modules = [source for source in sources if Path(source).name.startswith(MODULE_C)]
    heaps: list[tuple[int, str, bool, list[str]]] = []
    for is_often, word in ((True, "often"), (False, "seldom")):
        heaps += [(0, f"piece_{at}_{word}.c", is_often, []) for at in range(PIECES)]
    for source in sorted(of_modules, key=lambda source: (-os.path.getsize(source), source)):
        is_often = Path(source).name in often
        smallest = min(heap for heap in heaps if heap[2] == is_often)
        heaps.remove(smallest)
        heaps.append((smallest[0] + os.path.getsize(source), smallest[1], is_often, [*smallest[3], source]))
    made = []
    for _, name, is_often, heap in sorted(heaps, key=lambda heap: (heap[2], heap[:2]), reverse=True):
        if heap:
            path = Path(heap[0]).with_name(name)
            path.write_text("".join(f'#include "{Path(source).name}"\n' for source in sorted(heap)), encoding="utf-8")
            made.append((str(path), is_often))
    return made + [(source, True) for source in sources if source not in of_modules]


class Build(build_ext):
    """A build that uses all cores. Without DISQUE_PY_COMPILE=yes, a failed build makes pure Python."""

    def finalize_options(self) -> None:
        """Build extensions side by side: there is a small one for each module, besides the large one with all code."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extensions(self) -> None:
        """Compile the large extension in pieces, as many at once as there are cores."""
        self.read_header_once()
        compile_in_order = self.compiler.compile
        is_unix = self.compiler.compiler_type == "unix"
        # C code needs no unwind tables, and they take time. Modules call each other directly if their functions are not
        # exported; only the functions that Python itself looks up are.
        always = ["-fno-asynchronous-unwind-tables", "-fvisibility=hidden"] if is_unix else []
        unoptimized = ["-O0"] if is_unix else []

        def compile_at_once(sources: list[str], *args: Any, **options: Any) -> list[str]:
            if len(sources) == 1:
                return compile_in_order(sources, *args, **options)
            usual = options.pop("extra_postargs", None) or []

            def compile_piece(piece: tuple[str, bool]) -> list[str]:
                source, is_often = piece
                more = always if is_often else always + unoptimized
                return compile_in_order([source], *args, extra_postargs=[*usual, *more], **options)

            with ThreadPoolExecutor(os.cpu_count()) as pool:
                return [file for files in pool.map(compile_piece, pieces(sources)) for file in files]

        self.compiler.compile = compile_at_once
        super().build_extensions()

    def read_header_once(self) -> None:
        """Translate Python.h for gcc, which reads it for each of the small extensions.

        Other compilers, and gcc if the flags differ, don't find the translation and read the header itself. Files that
        include it more than once can't use it.
        """
        if self.compiler.compiler_type != "unix" or not self.extensions:
            return
        folder = Path(self.build_temp) / "header"
        folder.mkdir(parents=True, exist_ok=True)
        header = Path(sysconfig.get_path("include")) / "Python.h"
        translated = folder / "Python.h.gch"
        flags = [*self.extensions[0].extra_compile_args, f"-I{header.parent}", "-o", str(translated)]
        try:
            self.compiler.spawn([*self.compiler.compiler_so, *flags, "-x", "c-header", str(header)])
        except Exception as error:
            sys.stderr.write(f"Python.h is read as text: {error}\n")
            return
        for extension in self.extensions:
            if len(extension.sources) == 1:
                extension.include_dirs = [str(folder), *extension.include_dirs]

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
