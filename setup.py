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

# Every module below these folders becomes C, unless a line in it gives the reason why it stays Python.
FOLDERS = (
    "cluster_bus",
    "persistence",
    "disque_py/commands",
    "disque_py/core",
    "disque_py/node",
    "disque_py/resp",
    "disque_py/simulator",
    "disque_py/storage",
)
# Modules elsewhere that every command or turn passes: the values in force, the way from the event loop to the broker.
FILES = (
    "disque_py/config/settings.py",
    "disque_py/server/clock.py",
    "disque_py/server/connection.py",
    "disque_py/server/turn_loop.py",
)
STAYS_PYTHON = re.compile(r"^# Stays Python: \S.*\.$", re.MULTILINE)
MODULE = "__native_"
PIECES = 4
HOTOPT = os.environ.get("HOTOPT", "").split()
COLDOPT = os.environ.get("COLDOPT", "").split()
COLD = re.compile(os.environ.get("COLD", "___simulator___"))


def is_hot(source: str) -> bool:
    return not COLD.search(source)


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
        path.relative_to(here).as_posix() for path in found if not STAYS_PYTHON.search(path.read_text(encoding="utf-8"))
    )


def pieces(sources: list[str], has_levels: bool) -> list[tuple[str, list[str]]]:
    """Return C files that include these, and the options of each. A piece reads the long common header once.

    The largest pieces come first, so that no core waits long for the last one.
    """
    modules = [source for source in sources if Path(source).name.startswith(MODULE)]
    whole = [(source, []) for source in sources if source not in modules]
    made = []
    for name, options in (("hot", HOTOPT), ("cold", COLDOPT)):
        chosen = [source for source in modules if is_hot(source) == (name == "hot")]
        heaps: list[list[str]] = [[] for _ in range(PIECES)]
        sizes = [0] * PIECES
        for source in sorted(chosen, key=os.path.getsize, reverse=True):
            at = sizes.index(min(sizes))
            heaps[at].append(source)
            sizes[at] += os.path.getsize(source)
        for at, heap in enumerate(heaps):
            path = Path(modules[0]).with_name(f"__piece_{name}_{at}.c")
            path.write_text("".join(f'#include "{Path(source).name}"\n' for source in sorted(heap)), encoding="utf-8")
            made.append((str(path), options if has_levels else []))
    return made + whole


class Build(build_ext):
    """A build that uses all cores. Without DISQUE_PY_COMPILE=yes, a failed build makes pure Python."""

    def finalize_options(self) -> None:
        """Build extensions side by side: there is a small one for each module, besides the large one with all code."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extensions(self) -> None:
        """Compile the large extension in a few pieces, as many at once as there are cores."""
        compile_in_order = self.compiler.compile

        def compile_at_once(sources: list[str], *args: Any, **options: Any) -> list[str]:
            if len(sources) == 1:
                return compile_in_order(sources, *args, **options)
            unit = options.pop("extra_postargs", None) or []
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                made = pool.map(
                    lambda piece: compile_in_order([piece[0]], *args, extra_postargs=[*unit, *piece[1]], **options),
                    pieces(sources, self.compiler.compiler_type == "unix"),
                )
                return [file for files in made for file in files]

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
    # one unit of C. Calls between modules are as fast as in a single unit, and several cores compile sooner.
    options = ["--ignore-missing-imports", "--no-warn-unused-ignores"]
    try:
        return mypycify([*options, *modules()], opt_level="1", debug_level="0", multi_file=True)
    except SystemExit:  # mypyc can't compile, and has printed the reason.
        if wanted() == "yes":
            raise
        sys.stderr.write("not compiled, so this will be pure Python: mypyc refuses\n")
        return []


if __name__ == "__main__":
    setup(ext_modules=compiled(), cmdclass={"build_ext": Build})
