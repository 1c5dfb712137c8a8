"""disque-bench: measure this server and others alternately, and say how far the figures can be trusted.

This module has the command line and the order of measurements. For each cell of a test all contestants are measured one
after the other, then all again: A B A B …. So a noisy minute affects all of them, and ratios are computed within a run.
Exit status: 0 done, 1 something could not be measured, 2 bad usage, 130 interrupted; measured figures are always shown.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from disque_py import __version__
from disque_py.cli.address import Tls
from disque_py.cli.bench import contestants, measures, page, proc, report
from disque_py.cli.bench.contestants import ChoiceError, Contestant
from disque_py.cli.bench.dialects import DIALECTS, Encryption
from disque_py.cli.bench.figures import Sample, lines_of
from disque_py.cli.bench.load import LoadError
from disque_py.cli.bench.measures import MEASURES, TESTS, Cell, Found, Measure, Plan
from disque_py.cli.bench.processes import GoneError, Line, LoginError, Running, ServerError, Servers, reason_of
from disque_py.cli.connection import TlsFileError, reason_to_hang_up, tls_context
from disque_py.cli.shell.suggestions import closest
from disque_py.program_commands import ProgramCommand
from disque_py.shell_scripts import completion_option

if TYPE_CHECKING:
    import ssl

RUNS: Final = 3
LIMIT_S: Final = 3600.0
BACKLOG_MAX: Final = 10_000_000
PIPELINE_MAX: Final = 1_000
CONNECTIONS_MAX: Final = 20_000
RATE_MAX: Final = 100_000
# The share of the free memory that jobs in the server of this installation may take.
MEMORY_SHARE: Final = 0.8
SCREEN_COLUMNS: Final = 150
# Above this load of the last minute the machine is busy with something else.
BUSY_LOAD: Final = 0.5
INTERRUPTED: Final = 130
# The bytes of an unexpected reply that an error shows.
REPLY_SHOWN: Final = 100
PASSWORD: Final = "DISQUECLI_AUTH"  # The same variable as for disque-cli.
# A node hangs up without a reply when TLS fails on its side.
HANG_UPS: Final = (ConnectionResetError, BrokenPipeError)
# The replies of Disque and Redis to a login that they don't need.
NO_PASSWORD: Final = ("but no password is set", "without any password configured")


class Numbers(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # Generic in newer versions of click only.
    """Whole numbers with commas between them."""

    name = "N,N,…"

    def __init__(self, most: int) -> None:
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Return the numbers, each once."""
        if isinstance(value, tuple):
            return value
        found = tuple(dict.fromkeys(int(word) for word in value.split(",") if word.strip().isdecimal()))
        if len(found) != len(set(value.split(","))) or not all(0 < number <= self._most for number in found):
            self.fail(f"{value!r} is not a list of numbers from 1 to {self._most:,}, such as 1,16", param, ctx)
        return found


def _complete_tests(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(test.name, help=test.summary) for test in TESTS.values() if test.name.startswith(incomplete)]


def _print_tests(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        width = max(map(len, TESTS))
        for test in TESTS.values():
            click.echo(f"{test.name:<{width}}  {test.summary}")
        found, missing = contestants.others()
        names = [contestants.OURS, *(one.name for one in found), "floor"]
        click.echo(f"\nContestants: {', '.join(names)}")
        if missing:
            click.echo(f"Not installed: {', '.join(missing)}")
        ctx.exit()


EXAMPLES: Final = """\b
Examples:
  disque-bench --quick                          check that everything works
  disque-bench ping cycle --html page.html      two tests, with charts
  disque-bench add -P 1,16 -c 50 --only disque-py --only redis-list
  disque-bench cycle --server 'old=/opt/old/bin/disque-server --port {port}'
  disque-bench backlog --jobs 1000000 --runs 1
  disque-bench ping --connect 127.0.0.1:7711    a server that is already running
  DISQUECLI_AUTH=secret disque-bench ping --connect 7711 --user ann
  disque-bench ping --connect localhost:7713 --tls --cacert ca.crt
"""


@click.command(
    cls=ProgramCommand,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog=EXAMPLES,
)
@click.argument("tests", nargs=-1, shell_complete=_complete_tests, metavar="[TEST]...")
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_print_tests,
              help="Print the tests and the contestants, and exit.")  # fmt: skip
@click.option("--server", "commands", multiple=True, metavar="[NAME=]COMMAND",
              help="Measure one more Disque server, which this command starts with {port} and {dir}.")  # fmt: skip
@click.option("--connect", "addresses", multiple=True, metavar="[PROTOCOL=][HOST:]PORT",
              help="Measure a running server on this machine; jobs that are left stay in it.")  # fmt: skip
@click.option("--user", default="", help="User name to log in with at the servers of --connect.")
@click.option("-a", "--password", envvar=PASSWORD, default="",
              help=f"Password for the servers of --connect (or {PASSWORD}).")  # fmt: skip
@click.option("--tls", "is_tls", is_flag=True, help="Use TLS for the servers of --connect.")
@click.option("--cacert", default="", help="File of the certificate authority to trust.")
@click.option("--cert", default="", help="File of this program's certificate.")
@click.option("--key", default="", help="File of this program's private key.")
@click.option("--insecure", is_flag=True, help="Don't check the certificates of the servers.")
@click.option("--only", "names", multiple=True, metavar="NAME", help="Measure this contestant; may be repeated.")
@click.option("--without", "skipped", multiple=True, metavar="NAME", help="Leave this contestant out.")
@click.option("--reference", metavar="NAME", help="The contestant that ratios refer to (default: the first).")
@click.option("--quick", is_flag=True, help="Small sizes and one run, to check that everything works.")
@click.option("--runs", type=click.IntRange(1, 100), help=f"Measurements of each figure ({RUNS}).")
@click.option("--seconds", type=click.FloatRange(0.05, 600), help="Seconds of each measurement (1).")
@click.option("-P", "--pipelines", type=Numbers(PIPELINE_MAX), help="Requests in one write (1,4,16,100).")
@click.option("-c", "--connections", type=Numbers(CONNECTIONS_MAX), help="Connections (1,50,500,5000).")
@click.option("--rate", "rates", type=Numbers(RATE_MAX), help="Requests per second of `latency` (1000,5000).")
@click.option("--jobs", type=click.IntRange(100, BACKLOG_MAX), help="Jobs of `backlog` (100,000).")
@click.option("--queues", type=click.IntRange(1, 100_000), help="Queues of `queues` (1,000).")
@click.option("--body", type=click.IntRange(1, 60_000), help="Bytes of a job's body (100).")
@click.option(
    "--limit", type=click.FloatRange(1), default=LIMIT_S, help="Start no measurement after this many seconds (3600)."
)
@click.option("--json", "json_file", type=click.Path(dir_okay=False, writable=True, path_type=Path),
              help="Write all samples and summaries to this file.")  # fmt: skip
@click.option("--html", "html_file", type=click.Path(dir_okay=False, writable=True, path_type=Path),
              help="Write a page with charts to this file; needs the extra [bench].")  # fmt: skip
@click.option("--markdown", is_flag=True, help="Print Markdown instead of tables for a terminal.")
@completion_option("disque-bench")
@click.version_option(__version__, message="disque-bench %(version)s")
def main(
    tests: tuple[str, ...],
    commands: tuple[str, ...],
    addresses: tuple[str, ...],
    user: str,
    password: str,
    is_tls: bool,
    cacert: str,
    cert: str,
    key: str,
    insecure: bool,
    names: tuple[str, ...],
    skipped: tuple[str, ...],
    reference: str | None,
    quick: bool,
    runs: int | None,
    seconds: float | None,
    pipelines: tuple[int, ...] | None,
    connections: tuple[int, ...] | None,
    rates: tuple[int, ...] | None,
    jobs: int | None,
    queues: int | None,
    body: int | None,
    limit: float,
    json_file: Path | None,
    html_file: Path | None,
    markdown: bool,
) -> None:
    """Compare this Disque server with other brokers on this machine, alternately.

    Without TEST all tests run, which takes about an hour; --list names them. The program starts the servers on free
    loopback ports, and stops them at the end. Redis and beanstalkd are measured if they are installed.
    """
    if unknown := [name for name in tests if name not in TESTS]:
        raise click.UsageError(f"there is no test '{unknown[0]}'.{_meant(unknown[0])} The tests are {', '.join(TESTS)}")
    try:
        if html_file is not None:
            page.matplotlib()
        chosen, notes = _contestants(commands, addresses, names, skipped)
    except (ChoiceError, page.NoChartsError) as error:
        raise click.UsageError(str(error)) from error
    if user and not addresses:
        raise click.UsageError("--user is for servers of --connect; the others are started without passwords")
    if is_tls and not addresses:
        raise click.UsageError("--tls is for servers of --connect; the others are started without TLS")
    if (cacert or cert or key or insecure) and not is_tls:
        raise click.UsageError("--cacert, --cert, --key and --insecure need --tls")
    if reference is not None and reference not in [one.name for one in chosen]:
        raise click.UsageError(f"--reference {reference} is not one of the servers that are measured")
    access = Access(user, password, Tls(cacert, cert, key, insecure) if is_tls else None)
    chosen = _ready_to_measure(chosen, access)
    _refuse_unwritable(json_file, html_file)
    plan = Plan().quick() if quick else Plan()
    given: dict[str, Any] = {
        "seconds": seconds,
        "pipelines": pipelines,
        "connections": connections,
        "rates": rates,
        "backlog": jobs,
        "queues": queues,
        "body": b"x" * body if body else None,
    }
    plan = replace(plan, **{name: value for name, value in given.items() if value is not None})
    plan, left_out = measures.fitting(plan, measures.raise_file_limit(), proc.memory_available())
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    bench = Bench(chosen, plan, runs or (1 if quick else RUNS), limit, [*notes, *left_out])
    machine = proc.machine()
    if float(machine["load at the start"]) > BUSY_LOAD:
        bench.notes.append("The machine was busy with something else at the start; trust only the ratios.")
    is_interrupted = False
    try:
        bench.measure(tests or tuple(TESTS))
    except KeyboardInterrupt:
        is_interrupted = True
        bench.notes.append("Interrupted: these are the figures that were measured before.")
    _show(bench, machine, reference or chosen[0].name, json_file, html_file, as_markdown=markdown)
    sys.exit(INTERRUPTED if is_interrupted else 1 if bench.has_failed else 0)


def _meant(name: str) -> str:
    found = closest(name, TESTS)
    return f" Did you mean '{found}'?" if found else ""


@dataclass(frozen=True, slots=True)
class Access:
    """The login and the encryption for running servers. tls: None without encryption."""

    user: str
    password: str
    tls: Tls | None


def _ready_to_measure(chosen: Sequence[Contestant], access: Access) -> list[Contestant]:
    """Return the contestants, with a login for the running servers that have passwords, and with TLS if it is wanted.

    Raises ClickException for one that can't be measured, before an hour is spent on the others.
    """
    try:
        context = None if access.tls is None else tls_context(access.tls)
    except TlsFileError as error:
        raise click.ClickException(str(error)) from error
    return [one if one.is_started else _looked_at(_reached(one, access, context), access.tls) for one in chosen]


def _reached(one: Contestant, access: Access, context: ssl.SSLContext | None) -> Contestant:
    dialect = one.dialect if context is None else one.dialect.with_tls(Encryption(context, one.host))
    if access.user or access.password:
        dialect = dialect.with_login(access.user, access.password)
    return replace(one, dialect=dialect)


def _looked_at(one: Contestant, tls: Tls | None) -> Contestant:
    """Return a running server that answers a PING; without a login if it has no passwords. Raises ClickException."""
    where = f"--connect: the server at port {one.port}"
    try:
        with Line(one.port, one.dialect) as line:
            reply = line.request(one.dialect.ping())
    except LoginError as error:
        if any(text in str(error.strerror) for text in NO_PASSWORD):
            return _looked_at(replace(one, dialect=DIALECTS[one.dialect.name].with_tls(one.dialect.tls)), tls)
        raise click.ClickException(
            f"{where} refused the login: {error.strerror}. Check --user, -a and the environment variable {PASSWORD}"
        ) from error
    except ConnectionRefusedError as error:
        raise click.ClickException(
            f"--connect: no server answers at port {one.port}: {reason_of(error)}. Start it, or leave it out"
        ) from error
    except OSError as error:
        reason = reason_of(error) + (reason_to_hang_up(tls) if isinstance(error, HANG_UPS) else "")
        raise click.ClickException(f"{where} can't be measured: {reason}") from error
    except EOFError as error:
        raise click.ClickException(f"{where} can't be measured: {error}{reason_to_hang_up(tls)}") from error
    said = reply[:REPLY_SHOWN].decode(errors="replace").strip()
    if reply.startswith(b"-NOAUTH"):
        raise click.ClickException(
            f"{where} wants a login: {said[1:]} Pass the password with -a, or in the environment variable {PASSWORD}"
        )
    if reply.startswith(b"-NOPERM"):
        raise click.ClickException(f"{where} refuses this user: {said[1:]}. Name another one with --user")
    if not reply.startswith(one.dialect.pong):
        raise click.ClickException(
            f"{where} does not speak the protocol {one.dialect.name}: it answered {said!r}. Name its protocol, as in "
            f"--connect redis-list={one.port}, or leave it out"
        )
    return one


def _refuse_unwritable(*files: Path | None) -> None:
    """Raise ClickException for a new file in a place where it can't be, before an hour is spent on its content."""
    for file in files:
        if file is not None and not file.exists() and not os.access(file.parent, os.W_OK):
            raise click.ClickException(f"WRITE {file}: {file.parent} is missing, or can't be written")


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Do the same as Ctrl-C, which a running loop turns into an orderly end."""
    signal.raise_signal(signal.SIGINT)


def _contestants(
    commands: Sequence[str], addresses: Sequence[str], names: Sequence[str], skipped: Sequence[str]
) -> tuple[list[Contestant], list[str]]:
    """Return the contestants, ours first, and a note about missing programs. Raises ChoiceError."""
    found, missing = contestants.others()
    everything = [
        contestants.ours(int(proc.memory_available() * MEMORY_SHARE)),
        *(contestants.from_command(text, number) for number, text in enumerate(commands, 1)),
        *(contestants.from_address(text) for text in addresses),
        *found,
        contestants.floor(),
    ]
    chosen = contestants.chosen(everything, names, skipped)
    if not chosen:
        raise ChoiceError("no contestant is left; leave out a --without")
    notes = [f"Not measured, because not installed: {', '.join(missing)}."] if missing and not names else []
    return chosen, notes


@dataclass(slots=True)
class Bench:
    """A run: measures the contestants alternately, and keeps the samples."""

    contestants: Sequence[Contestant]
    plan: Plan
    runs: int
    limit_s: float
    notes: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    has_failed: bool = False
    _deadline_s: float = 0.0

    def measure(self, tests: Sequence[str]) -> None:
        """Measure these tests. After a KeyboardInterrupt, the samples so far are kept."""
        self._deadline_s = time.monotonic() + self.limit_s
        wanted = [measure for measure in MEASURES if set(measure.tests) & set(tests)]
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            total = sum(len(m.cells(self.plan)) * self.runs * len(self._suiting(m)) for m in wanted)
            task = bar.add_task("", total=total)
            for measure in wanted:
                self._measure(measure, set(tests), _shower(bar, task))

    def _suiting(self, measure: Measure) -> list[Contestant]:
        return [
            one
            for one in self.contestants
            if measure.suits(one.dialect) and (measure.nodes == 1 or (one.is_started and "{port}" in str(one.command)))
        ]

    def _measure(self, measure: Measure, tests: set[str], show: Callable[[str, int], None]) -> None:
        """Measure all cells of a measure with all contestants that support it."""
        suiting = self._suiting(measure)
        cells = measure.cells(self.plan)
        with Servers() as servers:
            started: dict[str, Running] = {}
            for one in suiting:
                show(f"{measure.tests[0]}: {one.name} starts", 0)
                try:
                    started[one.name] = servers.start(one, measure.nodes)
                    self.versions.setdefault(one.name, started[one.name].version)
                except (ServerError, OSError, EOFError) as error:
                    self._fail(f"{measure.tests[0]}: {_text_of(error)}")
                    show("", len(cells) * self.runs)
            gone: set[str] = set()
            for cell in cells:
                broken = set(gone)
                for run in range(self.runs):
                    for name, running in started.items():
                        show(f"{'/'.join(measure.tests)} {cell.text}: {name}", 0)
                        if name not in broken and not self._is_late():
                            try:
                                self._sample(measure, cell, running, run, tests)
                            except (LoadError, ServerError, OSError, EOFError) as error:
                                self._fail(f"{measure.tests[0]} {cell.text}, {name}: {_text_of(error)}")
                                broken.add(name)
                                if isinstance(error, GoneError) and not measure.is_fresh:
                                    gone.add(name)
                                    self.notes.append(f"Nothing more of {'/'.join(measure.tests)} with {name}.")
                        show("", 1)

    def _sample(self, measure: Measure, cell: Cell, running: Running, run: int, tests: set[str]) -> None:
        if measure.is_fresh and running.contestant.is_started:
            with Servers() as servers:
                found = self._run(measure, cell, servers.start(running.contestant, measure.nodes))
        else:
            found = self._run(measure, cell, running)
        for test, values in found.items():
            if test in tests:
                self.samples.append(Sample(test, cell.text, running.contestant.name, run, values))

    def _run(self, measure: Measure, cell: Cell, running: Running) -> Found:
        """Measure once. Raises GoneError if the server is of no more use, otherwise LoadError, OSError, EOFError.

        A server that still answers is emptied, so that the jobs of a failed measurement don't disturb the next one.
        """
        try:
            return measure.run(running, cell, self.plan)
        except (LoadError, OSError, EOFError) as error:
            try:
                running.check()
                running.flush()
            except GoneError as gone:
                raise GoneError(f"{_text_of(error)}; {gone}") from error
            except (OSError, EOFError):
                pass
            raise

    def _is_late(self) -> bool:
        if time.monotonic() < self._deadline_s:
            return False
        text = f"The limit of {self.limit_s:g} s was reached; the rest was not measured."
        if text not in self.notes:
            self.notes.append(text)
            self.has_failed = True
        return True

    def _fail(self, text: str) -> None:
        self.notes.append(f"Not measured: {text}")
        self.has_failed = True


def _text_of(error: Exception) -> str:
    return reason_of(error) if isinstance(error, (OSError, EOFError)) else str(error)


def _shower(bar: Progress, task: TaskID) -> Callable[[str, int], None]:
    def show(text: str, steps: int) -> None:
        bar.update(task, advance=steps, description=text or None)

    return show


def _show(
    bench: Bench, machine: dict[str, str], reference: str, json_file: Path | None, html_file: Path | None,
    *, as_markdown: bool,
) -> None:  # fmt: skip
    """Write the files and print the figures. Nothing keeps the files from being written."""
    lines = lines_of(bench.samples, {test.name: test.metric for test in TESTS.values()}, reference)
    found = report.Report(machine, bench.versions, reference, bench.notes, bench.samples, lines)
    trouble = None
    for file, make in ((json_file, report.as_json), (html_file, page.page)):
        if file is not None:
            try:
                write_whole(file, make(found))
            except OSError as error:
                trouble = trouble or error
    try:
        if as_markdown:
            click.echo(report.markdown(found), nl=False)
        else:
            _print(found)
    except OSError:
        if trouble is None:
            raise  # ProgramCommand tells the user.
    if trouble is not None:
        raise click.ClickException(f"WRITE {trouble.filename}: {trouble.strerror}") from trouble


def _print(found: report.Report) -> None:
    console = Console(width=None if sys.stdout.isatty() else SCREEN_COLUMNS, highlight=False)
    for name, value in found.machine.items():
        console.print(f"{name}: {value}", markup=False)
    for name, version in found.contestants.items():
        console.print(f"  {name} {version}", markup=False)
    console.print()
    for table in report.screen_tables(found):
        console.print(table)
        console.print()
    for text in [*found.notes, *report.warnings_of(found)]:
        console.print(text, style="yellow", markup=False)


def write_whole(file: Path, text: str) -> None:
    """Write a file so that it has either all of the text or what it had before. Raises OSError with the file's name."""
    is_plain = (file.is_file() or not file.exists()) and not file.absolute().is_relative_to("/dev")
    target = file.resolve() if is_plain else file
    is_replaced = is_plain and os.access(target.parent, os.W_OK)
    fresh = target.with_name(f"{target.name}.{os.getpid()}.new") if is_replaced else target
    try:
        fresh.write_text(text, encoding="utf-8")
        if is_replaced:
            fresh.replace(target)
    except BaseException as error:  # An interrupt, too, must leave no half of a file.
        if is_replaced:
            fresh.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise OSError(error.errno, error.strerror, str(file)) from error


if __name__ == "__main__":
    main(prog_name="disque-bench")
