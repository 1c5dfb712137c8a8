"""The options of disque-cli: tables of all options, and the parser that fills ShellOptions from them.

Parsing stops at the first word that is not an option. The rest is the command, so the command's words may start with a
dash. If an option is given twice, the last one wins.

Spec X1; the other options follow redis-cli. docs/cli.md lists the differences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from disque_py.cli.address import HOST_DEFAULT, PORT_DEFAULT, Target, Tls, parse_port, parse_target
from disque_py.cli.shell.formats import CSV, FORMATTED, JSON, RAW
from disque_py.cli.shell.suggestions import closest
from disque_py.client import Address
from disque_py.shell_scripts import SHELLS

PIPE_TIMEOUT_S_DEFAULT: Final = 30.0

# The modes. Without a mode, the program runs a command or reads commands.
COMMANDS: Final = ""
HELP: Final = "help"
VERSION: Final = "version"
LATENCY: Final = "latency"
LATENCY_HISTORY: Final = "latency-history"
INTRINSIC_LATENCY: Final = "intrinsic-latency"
STAT: Final = "stat"
BIGQUEUES: Final = "bigqueues"
SCAN: Final = "scan"
QUEUES: Final = "queues"
PIPE: Final = "pipe"
HEALTH: Final = "health"
COMPLETION: Final = "completion"
# Their options are these names behind two dashes.
MODES: Final = (
    LATENCY,
    LATENCY_HISTORY,
    INTRINSIC_LATENCY,
    STAT,
    BIGQUEUES,
    SCAN,
    QUEUES,
    PIPE,
    HEALTH,
    COMPLETION,
)


class UsageError(Exception):
    """An invalid command line; the text is the line to print."""


@dataclass(slots=True)
class ShellOptions:
    """The options of a command line.

    url               the server, if it was given as a URL; else see host, port and path
    password          -a, or DISQUECLI_AUTH
    protocol          2, 3, or None: 2, but 3 for JSON if the server has it
    format            None: formatted on a terminal, raw elsewhere
    repeat            None: once; negative: for ever
    interval_s        seconds between repetitions, samples or scans; None: the mode's default
    stdin_tag         the argument that standard input replaces
    words             the command
    """

    url: Target | None = None
    host: str = HOST_DEFAULT
    port: int = PORT_DEFAULT
    path: str = ""
    user: str = ""
    password: str = ""
    timeout_s: float | None = None
    protocol: int | None = None
    tls: bool = False
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    insecure: bool = False
    repeat: int | None = None
    interval_s: float | None = None
    stdin_last: bool = False
    stdin_tag: bytes | None = None
    format: str | None = None
    delimiter: bytes = b"\n"
    mode: str = COMMANDS
    intrinsic_s: float = 0.0
    completion_shell: str = ""
    pattern: str = "*"
    pipe_timeout_s: float = PIPE_TIMEOUT_S_DEFAULT
    is_once: bool = False
    words: list[str] = field(default_factory=list)

    def target(self) -> Target:
        """Return the server to connect to, with its login and TLS."""
        url = self.url or Target()
        address = url.address if self.url else Address(self.host, self.port, self.path)
        with_tls = self.tls or url.tls is not None
        tls = Tls(self.ca_file, self.cert_file, self.key_file, self.insecure).over(url.tls)
        return Target(
            address=address,
            user=self.user or url.user,
            password=self.password or url.password,
            protocol=self.protocol or (3 if self.format is JSON else 2),
            protocol_is_preferred=self.protocol is None,
            tls=tls if with_tls else None,
            connect_timeout_s=self.timeout_s,
        )


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"'{text}' is not a whole number") from None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ValueError(f"'{text}' is not a number of seconds")
    return seconds


def _positive_seconds(text: str) -> float:
    seconds = _seconds(text)
    if not seconds:
        raise ValueError("must be more than 0 seconds")
    return seconds


def _shell(text: str) -> str:
    if text not in SHELLS:
        raise ValueError(f"'{text}' is not one of {', '.join(SHELLS)}")
    return text


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


# Options with a value: the field for the value, and the function that reads it.
VALUES: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "-h": ("host", str),
    "-p": ("port", parse_port),
    "-s": ("path", str),
    "-a": ("password", str),
    "--pass": ("password", str),
    "--user": ("user", str),
    "-u": ("url", parse_target),
    "-t": ("timeout_s", _positive_seconds),
    "-r": ("repeat", _integer),
    "-i": ("interval_s", _seconds),
    "-X": ("stdin_tag", _bytes),
    "-d": ("delimiter", _bytes),
    "--cacert": ("ca_file", str),
    "--cert": ("cert_file", str),
    "--key": ("key_file", str),
    "--pattern": ("pattern", str),
    "--pipe-timeout": ("pipe_timeout_s", _seconds),
    "--intrinsic-latency": ("intrinsic_s", _positive_seconds),
    "--completion": ("completion_shell", _shell),
}

# Options without a value: the field, and its new value.
FLAGS: Final[Mapping[str, tuple[str, Any]]] = {
    "-x": ("stdin_last", True),
    "--raw": ("format", RAW),
    "--no-raw": ("format", FORMATTED),
    "--csv": ("format", CSV),
    "--json": ("format", JSON),
    "-2": ("protocol", 2),
    "-3": ("protocol", 3),
    "--tls": ("tls", True),
    "--insecure": ("insecure", True),
    "--latency": ("mode", LATENCY),
    "--latency-history": ("mode", LATENCY_HISTORY),
    "--stat": ("mode", STAT),
    "--bigqueues": ("mode", BIGQUEUES),
    "--queues": ("mode", QUEUES),
    "--once": ("is_once", True),
    "--scan": ("mode", SCAN),
    "--pipe": ("mode", PIPE),
    "--health": ("mode", HEALTH),
    "--help": ("mode", HELP),
    "-v": ("mode", VERSION),
    "--version": ("mode", VERSION),
}


def parse_options(arguments: Sequence[str], environment: Mapping[str, str]) -> ShellOptions:
    """Return the options in the arguments (without the program's name). Raises UsageError for invalid ones."""
    options = ShellOptions(password=environment.get("DISQUECLI_AUTH", ""))
    given: list[str] = []
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "-":
        option = arguments[at]
        if option in FLAGS:
            name, value = FLAGS[option]
            setattr(options, name, value)
            at += 1
        elif option == "-h" and at + 1 == len(arguments):
            options.mode = HELP
            at += 1
        elif option in VALUES and at + 1 < len(arguments):
            _set_value(options, option, arguments[at + 1])
            at += 2
        else:
            raise UsageError(f"Unrecognized option or bad number of args for: '{option}'{_meant(option)}")
        given.append(option)
    options.words = list(arguments[at:])
    _check_sense(options, given)
    return options


# Long names that other programs have, and their short names here.
OTHER_NAMES: Final[Mapping[str, str]] = {
    "--host": "-h",
    "--hostname": "-h",
    "--port": "-p",
    "--socket": "-s",
    "--url": "-u",
    "--uri": "-u",
    "--password": "-a",
    "--timeout": "-t",
    "--repeat": "-r",
    "--interval": "-i",
}


# Options of the original's program that have no meaning here, and what to do instead.
GONE: Final[Mapping[str, str]] = {
    "-n": "There are no numbered databases, leave it out",
    "-c": "Nodes redirect no client, leave it out",
    "--bigkeys": "Use --bigqueues",
    "--slave": "Use disque-cli events --follow",
    "--rdb": "Use disque-cluster backup",
    "--eval": "There are no scripts, send the commands one by one",
}


def _meant(option: str) -> str:
    """Return advice for an unknown option: its name here, or the known one most like it; empty if there is none."""
    if (advice := GONE.get(option)) is not None:
        return f". {advice}"
    if (short := OTHER_NAMES.get(option.partition("=")[0])) is not None:
        return f". Use {short}"
    # The dashes are left out, because they would make all options similar.
    long_names = [known.lstrip("-") for known in (*FLAGS, *VALUES) if known.startswith("--")]
    name = None if option in VALUES else closest(option.lstrip("-"), long_names)
    return f". Did you mean '--{name}'?" if name else ""


def _set_value(options: ShellOptions, option: str, text: str) -> None:
    name, read = VALUES[option]
    try:
        setattr(options, name, read(text))
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
    if option == "--intrinsic-latency":
        options.mode = INTRINSIC_LATENCY
    elif option == "--completion":
        options.mode = COMPLETION


def _check_sense(options: ShellOptions, given: Sequence[str]) -> None:
    """Refuse combinations in which one of the given options would be silently ignored."""
    if options.stdin_last and options.stdin_tag is not None:
        raise UsageError("-x and -X can't be used together: both read standard input")
    if (options.stdin_last or options.stdin_tag is not None) and not options.words:
        raise UsageError("-x and -X need a command")
    if options.stdin_tag is not None and options.stdin_tag not in map(_bytes, options.words):
        raise UsageError(f"-X: no argument is '{options.stdin_tag.decode(errors='replace')}'")
    if options.mode not in (COMMANDS, HELP, VERSION) and options.words:
        raise UsageError(f"--{options.mode} takes no command, but got '{options.words[0]}'")
    modes = list(dict.fromkeys(option for option in given if option.removeprefix("--") in MODES))
    if len(modes) > 1 and options.mode not in (HELP, VERSION):
        raise UsageError(f"{modes[0]} and {modes[1]} can't be used together")
    if "--pattern" in given and options.mode not in (SCAN, QUEUES, BIGQUEUES, HELP, VERSION):
        raise UsageError("--pattern works only with --scan, --queues and --bigqueues")
    if "--pipe-timeout" in given and options.mode not in (PIPE, HELP, VERSION):
        raise UsageError("--pipe-timeout works only with --pipe")
    if options.is_once and options.mode is not QUEUES:
        raise UsageError("--once works only with --queues; -r 1 runs any other mode or command once")
    if options.format is JSON and options.mode in (INTRINSIC_LATENCY, PIPE):
        raise UsageError(f"--{options.mode} has no JSON output: leave out --json")
    if not options.tls and (options.url is None or options.url.tls is None):
        for option, is_given in (
            ("--cacert", options.ca_file),
            ("--cert", options.cert_file),
            ("--key", options.key_file),
            ("--insecure", options.insecure),
        ):
            if is_given:
                raise UsageError(f"{option} needs --tls")
    if options.key_file and not options.cert_file:
        raise UsageError("--key needs --cert")


USAGE: Final = """\
disque-cli {version}

Usage: disque-cli [OPTIONS] [command [arg ...]]

Send a command to a node, and print the reply. Without a command: start an interactive shell, or
run the commands on standard input, one per line.

Connection
  -h <host>            Server (default 127.0.0.1).
  -p <port>            Port (default 7711).
  -s <path>            Unix socket, instead of host and port.
  -u <url>             disque://[user:password@]host:port, disques:// for TLS (also redis://).
  -a <password>        Password; DISQUECLI_AUTH in the environment keeps it out of process lists.
  --user <name>        Log in with a user name (HELLO 2 AUTH name password).
  -t <seconds>         Give up connecting after this time.
  -2, -3               Protocol RESP2 (default) or RESP3.
  --tls                Use TLS. --cacert <file> is the certificate authority to trust, --cert <file> and
                       --key <file> are this program's certificate and key. --insecure does not check the
                       server's certificate.

Commands
  -r <n>               Run the command n times (negative: without end). With --stat: n lines.
  -i <seconds>         Pause between repetitions, fractions allowed; also the interval of --stat,
                       --queues, --latency-history and the pause between steps of --scan and --bigqueues.
  -x                   Read the last argument from standard input.
  -X <tag>             Replace the argument <tag> by standard input:
                       disque-cli -X body ADDJOB queue body 0 < file

Output
  --raw, --no-raw      Print plain values (default into pipes), or formatted ones (default on a terminal).
  --csv, --json        Print comma-separated values, or one JSON value per reply.
  -d <text>            Delimiter between the elements of an array in raw output (default: a new line).

Modes
  --stat               Jobs, queues, memory, clients and requests, one line per second.
  --latency            Round trips of PING: minimum, maximum, average.
  --latency-history    The same, a new line every 15 s (or -i).
  --intrinsic-latency <seconds>
                       The stalls of this machine itself; needs no server.
  --scan               Names of the queues of this node; --pattern <glob> selects.
  --queues             The queues of the whole cluster: jobs by status, age, rates, settings, pauses.
                       The table is refreshed in place; --pattern selects, --once shows it once,
                       --json prints an object per queue.
  --bigqueues          The longest queues of this node.
  --pipe               Send protocol or inline commands from standard input, and count the replies;
                       give up after --pipe-timeout <seconds> without a reply (default 30, 0: never).
  events --follow      The events of jobs on this node, as they happen: one line for each change,
                       JSON into pipes.
  --health             Exit with status 0 if the node answers and works, else print the reason and exit with 1.
  --completion <shell> Script for TAB completion in bash, zsh or fish: eval "$(disque-cli --completion bash)"
  --help, -v           Print this help, or the version.

Exit status: 0 after a reply, 1 after an error reply or if there was no connection or reply, 130 after Ctrl-C.

Examples
  disque-cli ADDJOB mail '{{"to":"ann"}}' 0 RETRY 60
  disque-cli GETJOB TIMEOUT 1000 FROM mail
  disque-cli -r 10 -i 1 QLEN mail
  disque-cli --stat
  disque-cli --queues
  disque-cli help addjob

For `queue set`, `job cancel` and the like see disque-admin --help; for clusters disque-cluster --help.
"""
