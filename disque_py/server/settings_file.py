"""Settings file: from the command line to Settings, and from Settings back into the config file.

The package config/ has the syntax; this module has the files. A rewrite never leaves a half-written file: a new file is
written and synced beside the old one, and then takes its name.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from disque_py.config.conf_file import ConfigError, ConfigReader, Problem
from disque_py.config.directives import BY_NAME
from disque_py.config.rewriting import rewrite
from disque_py.config.settings import HIDDEN, Settings, close_name
from disque_py.server import renames
from persistence.files import sync_directory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


PRIVATE: Final = 0o600
# The warning for each name of Configuration.ignored.
IGNORED: Final = "the environment variable {} names no directive and is ignored"


@dataclass(slots=True)
class Configuration:
    """The configuration of a program, and its sources.

    path            the config file, absolute; "" without one (standard input is none)
    included        directives set by included files, see rewriting.rewrite
    is_default      whether neither file nor options were given
    ignored         environment variables that begin with DISQUE_ and name no directive
    """

    settings: Settings
    path: str = ""
    included: set[str] = field(default_factory=set)
    is_default: bool = False
    ignored: list[str] = field(default_factory=list)


def load(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> Configuration:
    """Read `[file | -] [--name value …]` and the environment. ConfigError with all problems.

    Paths inside stay unchanged and refer to `settings.dir`, which becomes absolute. The caller changes to it.
    """
    configuration = Configuration(Settings())
    reader = ConfigReader(configuration.settings, os.getcwd(), _read, os.path.isdir, renames.check_line)
    options = list(arguments)
    if options and not options[0].startswith("--"):
        source = options.pop(0)
        if source == "-":
            reader.read_text(_decoded(sys.stdin.buffer.read()), "standard input")
        else:
            configuration.path = os.path.abspath(source)
            reader.read_text(_read_main(source, options), source)
    count = reader.read_environment(environ)
    reader.read_options(options)
    reader.finish(renames.conflicts(configuration.settings.rename_command))
    configuration.included = reader.included
    configuration.ignored = reader.ignored
    configuration.is_default = not arguments and not count
    return configuration


def rewriting(configuration: Configuration) -> Callable[[], None]:
    """Return a function for a thread that does CONFIG REWRITE with the values of now. It may raise OSError."""
    path = configuration.path
    settings = configuration.settings.copy()

    def write_file() -> None:
        try:
            old_text = _read(path)
        except FileNotFoundError:
            old_text = ""
        replace_file(path, rewrite(old_text, settings, configuration.included))

    return write_file


def replace_file(path: str, text: str) -> None:
    """Replace the file's text in one step. Its permissions stay, and a link stays a link. OSError.

    A file that was removed is made anew for its owner alone, because it may have secrets. The owner and the group stay
    if the process may give files away. Otherwise a rewrite by root would take the file from the user as which the next
    start runs.
    """
    path = os.path.realpath(path)
    directory = os.path.dirname(path)
    temporary = os.path.join(directory, f".{os.path.basename(path)}.{os.getpid()}.new")
    before = None
    mode = PRIVATE
    with contextlib.suppress(FileNotFoundError):
        before = os.stat(path)
        mode = before.st_mode & 0o777
    # A file that a crash left may have other permissions, and a link would lead elsewhere.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    try:
        with open(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)
            file.flush()
            if before is not None:
                with contextlib.suppress(OSError):
                    os.fchown(file.fileno(), before.st_uid, before.st_gid)
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
    sync_directory(directory)


def _read(path: str) -> str:
    with open(path, "rb") as file:
        return _decoded(file.read())


def _decoded(data: bytes) -> str:
    """Decode files and standard input alike in any locale. A comment in Latin-1 is no error."""
    return data.decode("utf-8", "surrogateescape")


def _read_main(path: str, options: Sequence[str]) -> str:
    try:
        return _read(path)
    except OSError as error:
        reason = (
            f"can't open config file '{path}': {error.strerror or error}. Give the path of a file that the node's user"
            f" may read, or directives as --name value{_meant(path, options)}"
        )
        raise ConfigError([Problem(path, 0, "", reason)]) from None


def _meant(source: str, options: Sequence[str]) -> str:
    """Return a suggestion if the first word is an option with one dash, such as -p; else an empty text."""
    word = source.lstrip("-")
    name = "port" if word == "p" else close_name(word)
    if not source.startswith("-") or not name:
        return ""
    value = options[0] if options and not options[0].startswith("--") else ""
    if value and BY_NAME[name].is_secret:
        value = HIDDEN
    return f". Did you mean --{name} {value}".rstrip() + "?"
