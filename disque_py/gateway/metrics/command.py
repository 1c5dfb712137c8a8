"""disque-exporter: the command line.

    disque-exporter                                       # the node 127.0.0.1:7711, on 127.0.0.1:9711
    disque-exporter --discover --node 10.0.0.1:7711       # all nodes of its cluster

Options of the connection are those of disque-cli. The password may be in DISQUECLI_AUTH, which keeps it out of process
lists. Exit status: 0 ended by a signal, 1 can't listen or the extra `[metrics]` is missing, 2 bad usage.
"""

from __future__ import annotations

import os
import signal
import ssl
import threading
from typing import Any, Final

import click

from disque_py import __version__
from disque_py.client import Address, ClientOptions
from disque_py.client.address import parse_address, parse_url
from disque_py.client.options import ClientSettings, make_options, settings_of_url
from disque_py.client.tls import trusting
from disque_py.gateway.metrics.selection import LIMIT_DEFAULT, Selection
from disque_py.gateway.metrics.watching import Watchers
from disque_py.gateway.variables import unknown_variables
from disque_py.program_commands import ProgramCommand
from disque_py.shell_scripts import completion_option

PROGRAM: Final = "disque-exporter"
ENVIRONMENT: Final = "DISQUE_EXPORTER"
LISTEN_PORT: Final = 9711
LISTEN_DEFAULT: Final = f"127.0.0.1:{LISTEN_PORT}"
TIMEOUT_DEFAULT_S: Final = 1.0
CLIENT_NAME: Final = PROGRAM


def _nodes(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[Address, ...]:
    """Return addresses. Raises click's usage error for any other text."""
    try:
        return tuple(map(parse_address, value))
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def _listen(ctx: click.Context, param: click.Parameter, value: str) -> Address:
    """Return the address to serve. Raises click's usage error for any other text."""
    try:
        return parse_address(value, LISTEN_PORT)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


@click.command(
    cls=ProgramCommand, context_settings={"auto_envvar_prefix": ENVIRONMENT, "help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, message=f"{PROGRAM} %(version)s")
@click.option(
    "-n",
    "--node",
    multiple=True,
    callback=_nodes,
    metavar="HOST:PORT",
    help="A node to ask; may be repeated.  [default: 127.0.0.1:7711]",
)
@click.option("-u", "--url", default="", help="disque://[user:password@]host:port[,host:port], disques:// for TLS.")
@click.option("--discover", is_flag=True, help="Also ask the nodes of the cluster that HELLO names.")
@click.option(
    "-l",
    "--listen",
    default=LISTEN_DEFAULT,
    show_default=True,
    callback=_listen,
    metavar="HOST:PORT",
    help="Address of the HTTP server.",
)
@click.option(
    "-t",
    "--timeout",
    type=click.FloatRange(0.05, 60),
    default=TIMEOUT_DEFAULT_S,
    show_default=True,
    help="Seconds that a scrape waits for a node.",
)
@click.option(
    "--queue",
    multiple=True,
    metavar="PATTERN",
    help="Give labels to queues that match (*, ?, [ab]); may be repeated.  [default: all]",
)
@click.option(
    "--not-queue",
    multiple=True,
    metavar="PATTERN",
    help="Give no labels to queues that match; may be repeated.",
)
@click.option(
    "--metrics-max-queues",
    type=click.IntRange(0, 100_000),
    default=LIMIT_DEFAULT,
    show_default=True,
    help="The most queues with labels; the others are counted as _other.",
)
@click.option(
    "--no-events", is_flag=True, help="Don't read events, so that there are no counters and durations of queues."
)
@click.option(
    "-a",
    "--password",
    envvar=["DISQUE_EXPORTER_PASSWORD", "DISQUECLI_AUTH"],
    default="",
    help="Password (or DISQUECLI_AUTH).",
)
@click.option("--user", default="", help="User name to log in with.")
@click.option("--tls", is_flag=True, help="Use TLS for the connections.")
@click.option("--cacert", default="", help="File of the certificate authority to trust.")
@click.option("--cert", default="", help="File of this program's certificate.")
@click.option("--key", default="", help="File of this program's private key.")
@click.option("--insecure", is_flag=True, help="Don't check the nodes' certificates.")
@completion_option(PROGRAM)
def main(**words: Any) -> None:
    """Serve the figures of nodes to Prometheus, on /metrics.

    Each option can be an environment variable, for example DISQUE_EXPORTER_LISTEN.
    """
    prefix = ENVIRONMENT + "_"
    known = [prefix + param.name.upper() for param in main.params if param.name and param.expose_value]
    for warning in unknown_variables(os.environ, prefix, known):
        click.echo(f"{PROGRAM}: {warning}", err=True)
    listen: Address = words["listen"]
    if listen.path:
        raise click.UsageError("--listen takes host:port, not a socket")
    named, options = connection_of(words)
    selection = Selection(words["queue"], words["not_queue"], words["metrics_max_queues"])
    watchers = Watchers(named, options, selection, discovers=words["discover"])
    events = None if words["no_events"] else (options, selection)
    _serve((listen.host, listen.port), watchers, words["timeout"], events)


def connection_of(words: dict[str, Any]) -> tuple[tuple[Address, ...], ClientOptions]:
    """Return the nodes and the options of connections that the command line names. Raises click.UsageError."""
    has_files = bool(words["cacert"] or words["cert"] or words["key"] or words["insecure"])
    try:
        url_nodes, settings = settings_of_url(words["url"]) if words["url"] else ((), ClientSettings())
        is_tls = words["tls"] or (bool(words["url"]) and parse_url(words["url"]).tls)
    except (OSError, ValueError) as error:
        raise click.UsageError(f"--url: {error}") from error
    if has_files and not is_tls:
        raise click.UsageError("--cacert, --cert, --key and --insecure need --tls")
    if words["key"] and not words["cert"]:
        raise click.UsageError("--key needs --cert")
    if words["tls"] or has_files:
        settings["tls"] = _context(words)
    if words["user"]:
        settings["username"] = words["user"]
    if words["password"]:
        settings["password"] = words["password"]
    # Late nodes may answer after a scrape is over. Their look then shows that they are back.
    patience_s = max(5.0, 2 * words["timeout"])
    settings.setdefault("name", CLIENT_NAME)
    settings["timeout"] = settings["connect_timeout"] = patience_s
    options = make_options((*words["node"], *url_nodes), settings)
    return options.seeds, options


def _context(words: dict[str, Any]) -> ssl.SSLContext:
    file = f"--cacert {words['cacert']}"
    try:
        context = trusting(words["cacert"])
        if words["insecure"]:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if words["cert"]:
            file = f"--cert {words['cert']}" + (f" with --key {words['key']}" if words["key"] else "")
            context.load_cert_chain(words["cert"], words["key"] or None)
    except OSError as error:
        raise click.UsageError(f"{file} can't be used: {error.strerror or error}") from error
    return context


def _serve(
    address: tuple[str, int], watchers: Watchers, timeout_s: float, events: tuple[ClientOptions, Selection] | None
) -> None:
    """Serve until SIGTERM or SIGINT. `events` has the options for reading events, and the queues to count."""
    try:
        from disque_py.gateway.metrics.followers import Followers, reader_name
        from disque_py.gateway.metrics.transitions import Tally
        from disque_py.gateway.metrics.web import MetricsServer
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("prometheus_client"):
            raise
        raise click.ClickException("prometheus_client is missing: pip install 'disque-py[metrics]'") from error
    followers = None if events is None else Followers(events[0], reader_name(address[1]), Tally(events[1]))
    try:
        server = MetricsServer(address, watchers, timeout_s, followers)
    except OSError as error:
        raise click.ClickException(f"can't listen on {Address(*address)}: {error.strerror or error}") from error
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        click.echo(f"{PROGRAM}: serving http://{Address(address[0], server.server_port)}/metrics", err=True)
        ended.wait()
        server.shutdown()
    if followers is not None:
        followers.close()
    watchers.close()


if __name__ == "__main__":
    main(prog_name=PROGRAM)
