"""Reads config files with their `include` lines, the environment, and the directives of the command line.

Later lines win. The environment comes after the file, and the command line comes last (spec D1). All problems are
collected, so one attempt to start shows all of them. The reader opens files only through `read` and `is_directory`.

A variable `DISQUE_<DIRECTIVE>` sets one directive: DISQUE_TCP_BACKLOG sets tcp-backlog. Other programs set variables
with this prefix, too. Kubernetes does for the addresses of a service with the name disque. So an unknown name is an
error only if it looks like a misspelt directive. The other unknown names are in `ignored`.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from disque_py.config.directives import BY_NAME, INCLUDE
from disque_py.config.kinds import WRONG_COUNT
from disque_py.config.settings import HIDDEN, DirectiveError, Settings, close_name
from disque_py.resp.words import UnbalancedQuotesError, quote_text, split_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

COMMAND_LINE: Final = "the command line"
UNEXPECTED: Final = "unexpected argument: give directives as --name value"
NEXT_STEP: Final = (
    "Correct this and start again. conf/disque.conf explains each directive; `disque-server --test-config` checks a"
    " configuration without starting a node."
)

PREFIX: Final = "DISQUE_"
# Variables that other programs of this project read. They do not name directives.
OTHER_VARIABLES: Final = (
    "DISQUE_CHECKOUT_AGAIN",
    "DISQUE_PY_ASSERTS",
    "DISQUE_PY_COMPILE",
    "DISQUE_RESTARTED",
    "DISQUE_URL",
    "DISQUE_VENV",
    "DISQUE_WORKER_PARENT",
)
# Variables that click derives from the names of the project's programs, for shell completion and for options.
OF_PROGRAMS: Final = re.compile(r"_?DISQUE_\w+_COMPLETE|DISQUE_(?:EXPORTER|GATEWAY)(?:_\w+)?")
# Variables in which Kubernetes and Docker links give containers the address of a service called disque or disque-….
SERVICE: Final = re.compile(
    r"DISQUE_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_\w+)?)"
)
SERVICE_PORT: Final = re.compile(r"(?:tcp|udp|sctp)://")

# Directives of Redis whose values are secrets, or contain some.
SECRETS_OF_REDIS: Final = ("masterauth", "user")

# Deeper nesting means that a file includes itself.
INCLUDE_DEPTH_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Problem:
    """A line that can't be accepted.

    line_number is the line of a file, or the number of an option on the command line, from 1. It is 0 if the problem
    is not in a single line.
    """

    source: str
    line_number: int
    line: str
    reason: str


class ConfigError(Exception):
    """The error of a configuration that can't be used. `problems` has at least one entry."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(f"{len(problems)} problems in the configuration")
        self.problems = tuple(problems)

    def report(self) -> str:
        """Return source, line and reason of each problem, and the operator's next step, for standard error."""
        parts = ["*** FATAL CONFIG FILE ERROR ***"]
        for problem in self.problems:
            has_line = problem.line_number and problem.source != COMMAND_LINE
            parts.append(f"Reading {problem.source}" + (f", at line {problem.line_number}" if has_line else ""))
            if problem.line_number:
                parts.append(f">>> '{problem.line}'")
            parts.append(problem.reason)
        return "\n".join((*parts, NEXT_STEP)) + "\n"


class ConfigReader:
    """A reader that applies sources, one after the other, to a Settings object.

    included        names of directives that included files set
    ignored         names of environment variables that begin with DISQUE_ and name no directive
    check           called after each line with settings and the directive's name; raises DirectiveError to refuse it
    directory       the base of relative paths; a `dir` line changes it for the lines after it
    """

    def __init__(
        self,
        settings: Settings,
        directory: str,
        read: Callable[[str], str],
        is_directory: Callable[[str], bool],
        check: Callable[[Settings, str], None] = lambda settings, name: None,
    ) -> None:
        self.settings = settings
        self.directory = directory
        self.included: set[str] = set()
        self.ignored: list[str] = []
        self._check = check
        self._read = read
        self._is_directory = is_directory
        self._problems: list[Problem] = []
        settings.dir = directory

    def read_text(self, text: str, source: str, depth: int = 0) -> None:
        """Apply the lines of a file. Reports of problems name the file by `source`."""
        for line_number, raw in enumerate(text.split("\n"), 1):
            line = raw.strip()
            if not line or line.startswith("#"):
                continue
            try:
                self._apply(split_text(line), depth)
            except (DirectiveError, UnbalancedQuotesError) as error:
                self._problems.append(Problem(source, line_number, _without_secret(line), str(error)))

    def read_environment(self, environ: Mapping[str, str]) -> int:
        """Apply the variables that name directives, in the table's order. Return their number.

        An empty variable counts as not set. The value is one word. A directive of several words takes the words that
        follow its name in a config line. Several lines are allowed.
        """
        wanted = {_variable(name): name for name in (INCLUDE, *BY_NAME)}
        found = [(variable, name) for variable, name in wanted.items() if environ.get(variable, "").strip()]
        count = 0
        for variable, name in found:
            value = environ[variable]
            if name.endswith("port") and SERVICE_PORT.match(value):
                continue
            count += 1
            directive = BY_NAME.get(name)
            try:
                if directive is not None and directive.kind.takes_many_words:
                    for line in filter(str.strip, value.splitlines()):
                        self._apply([name, *split_text(line)], 0)
                else:
                    self._apply([name, value], 0)
            except (DirectiveError, UnbalancedQuotesError) as error:
                self._problems.append(Problem(f"the environment variable {variable}", 0, "", str(error)))
        for variable in sorted(environ):
            if not variable.startswith(PREFIX) or variable in wanted or not environ[variable]:
                continue
            if variable in OTHER_VARIABLES or OF_PROGRAMS.fullmatch(variable) or SERVICE.fullmatch(variable):
                continue
            if meant := close_name(variable.removeprefix(PREFIX).replace("_", "-")):
                reason = f"there is no such directive. Did you mean {_variable(meant)}?"
                self._problems.append(Problem(f"the environment variable {variable}", 0, "", reason))
            elif not (variable.endswith("PORT") and SERVICE_PORT.match(environ[variable])):
                self.ignored.append(variable)
        return count

    def read_options(self, options: Sequence[str]) -> None:
        """Apply groups of `--name value …`. An argument keeps its blanks."""
        groups: list[list[str]] = []
        for word in options:
            if word.startswith("--") and len(word) > 2:
                groups.append([word[2:]])
            elif groups:
                groups[-1].append(word)
            else:
                self._problems.append(Problem(COMMAND_LINE, 1, word, UNEXPECTED))
        for number, group in enumerate(groups, 1):
            try:
                self._apply(group, 0)
            except DirectiveError as error:
                line = "--" + " ".join([group[0], *map(quote_text, group[1:])])
                self._problems.append(Problem(COMMAND_LINE, number, _without_secret(line), str(error)))

    def finish(self, conflicts: Sequence[str] = ()) -> None:
        """End the reading. ConfigError if there were problems, or if values conflict."""
        if not self._problems:
            found = (*self.settings.conflicts(), *conflicts)
            self._problems.extend(Problem("the configuration", 0, "", text) for text in found)
        if self._problems:
            raise ConfigError(self._problems)

    def _apply(self, words: Sequence[str], depth: int) -> None:
        if not words:
            return
        name = words[0].lower()
        if name == INCLUDE:
            self._include(words[1:], depth)
            return
        old = self.settings.set_text(name, words[1:])
        try:
            self._check(self.settings, name)
        except DirectiveError:
            self.settings.restore(name, old)
            raise
        if depth:
            self.included.add(name)
        if name == "dir":
            path = posixpath.normpath(posixpath.join(self.directory, self.settings.dir))
            if not self._is_directory(path):
                self.settings.restore(name, old)
                raise DirectiveError(f"Can't chdir to '{path}': no such directory. Create it, or change dir")
            self.settings.dir = self.directory = path

    def _include(self, words: Sequence[str], depth: int) -> None:
        if len(words) != 1:
            raise DirectiveError(f"{WRONG_COUNT}: give the path of one file")
        if depth >= INCLUDE_DEPTH_MAX:
            raise DirectiveError(
                f"files include each other more than {INCLUDE_DEPTH_MAX} deep: remove the `include` of a file in itself"
            )
        path = posixpath.join(self.directory, words[0])
        try:
            text = self._read(path)
        except OSError as error:
            raise DirectiveError(f"can't read '{path}': {error.strerror or error}") from None
        except ValueError as error:  # A NUL byte.
            raise DirectiveError(f"can't read '{path}': {error}") from None
        self.read_text(text, path, depth + 1)


def _variable(name: str) -> str:
    """Return the name of the environment variable that sets a directive."""
    return PREFIX + name.upper().replace("-", "_")


def _without_secret(line: str) -> str:
    """Return the line with its secret hidden, because reports end up in logs. A misspelled line may have one, too."""
    word, *rest = line.split(None, 1)
    name, sign, _ = word.partition("=")
    plain = name.removeprefix("--").strip("'\"").lower()
    directive = BY_NAME.get(plain) or BY_NAME.get(close_name(plain))
    is_secret = directive.is_secret if directive is not None else plain in SECRETS_OF_REDIS
    return f"{name}{sign} {HIDDEN}" if is_secret and (sign or rest) else line
