"""disque-cluster: start nodes on this machine, join nodes, inspect a cluster, remove a node, make backups.

This module has the commands. view.py asks the nodes, display.py prints, local_nodes.py starts and stops processes,
draining.py empties a node, and backup_commands.py has `backup` and `restore`. A cluster is named by any of its nodes
(host:port), or by the directory in which `start` made it. Exit status: 0 done, 1 not done or with problems, 2 bad
usage, 130 a start that was interrupted.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from disque_py import __version__
from disque_py.cli.address import Place, Target, Tls, parse_place
from disque_py.cli.cluster import draining, local_nodes
from disque_py.cli.cluster.backup_commands import backup, restore, text_of
from disque_py.cli.cluster.display import DrainDisplay, print_table, rows_of
from disque_py.cli.cluster.local_nodes import LocalError, LocalNode
from disque_py.cli.cluster.options import directory_option, read_address, read_place, targets_of
from disque_py.cli.cluster.starting import Interrupts, MadeDirectories
from disque_py.cli.cluster.view import (
    ClusterView,
    NodeView,
    look_around,
    meet,
    patient,
    wait_until_whole,
)
from disque_py.cli.cluster.voters import VoterStaysError, VotersView, first_voters, remove_voter, set_voters
from disque_py.cli.cluster.zones import Zone, option_words, read_zones, set_zones
from disque_py.cli.connection import ConnectError
from disque_py.cli.counting import counted, counted_of
from disque_py.cli.misplaced_options import with_place
from disque_py.cli.visible import visible
from disque_py.cli.visible_errors import VisibleErrors
from disque_py.client import Address, ConnectionLostError, DisqueError, ReplyError, commands
from disque_py.output_errors import is_output_error
from disque_py.shell_scripts import SHELLS, completion_script

JOIN_TIMEOUT_S: Final = 30.0
# Fewer characters of an id than this may name two nodes by accident.
ID_PREFIX_MIN: Final = 6
ID_LENGTH: Final = 40
# A shell's exit status after Ctrl-C, also used after SIGTERM and SIGHUP.
INTERRUPTED_STATUS: Final = 130


class Program(VisibleErrors):
    """The command group; turns expected errors into one line and exit status 1."""

    def run(self, ctx: click.Context) -> Any:
        """Run the command that was named."""
        try:
            return super().run(ctx)
        except click.NoSuchOption as error:
            raise _with_another_way(with_place(error, self)) from error
        except (LocalError, ConnectError, ReplyError, VoterStaysError, draining.HiddenJobsError) as error:
            raise click.ClickException(str(error)) from error
        except ConnectionLostError as error:
            raise click.ClickException(f"The connection broke: {error}") from error
        except OSError as error:
            if is_output_error(error):
                raise
            raise click.ClickException(text_of(error)) from error


def _with_another_way(error: click.NoSuchOption) -> click.NoSuchOption:
    """Return the error with advice for an option that users may expect here."""
    command = error.ctx.info_name if error.ctx is not None else ""
    if error.option_name in ("-p", "--host"):
        advice = "Write a node as HOST:PORT"
    elif command == "start" and "Put it before" not in error.message:
        advice = f"Options of the servers follow `--`: start … -- {error.option_name} …"
    else:
        return error
    return click.NoSuchOption(error.option_name, f"{error.message.rstrip('.')}. {advice}", ctx=error.ctx)


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="disque-cluster %(version)s")
@click.option(
    "-a", "--password", envvar="DISQUECLI_AUTH", default="", help="Password of the nodes (or DISQUECLI_AUTH)."
)
@click.option("--user", default="", help="User name to log in with.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds to wait for a reply (3).")
@click.option("--tls", is_flag=True, help="Use TLS for the connections.")
@click.option("--cacert", default="", help="File of the certificate authority to trust.")
@click.option("--cert", default="", help="File of this program's certificate.")
@click.option("--key", default="", help="File of this program's private key.")
@click.option("--insecure", is_flag=True, help="Don't check the nodes' certificates.")
@click.pass_context
def main(
    ctx: click.Context,
    password: str,
    user: str,
    timeout: float | None,
    tls: bool,
    cacert: str,
    cert: str,
    key: str,
    insecure: bool,
) -> None:
    """Start, join, inspect and shrink clusters of Disque nodes."""
    if not tls and (cacert or cert or key or insecure):
        raise click.UsageError("--cacert, --cert, --key and --insecure need --tls")
    if key and not cert:
        raise click.UsageError("--key needs --cert")
    ctx.obj = Target(
        user=user,
        password=password,
        tls=Tls(cacert, cert, key, insecure) if tls else None,
        connect_timeout_s=timeout,
    )


zones_option = click.option(
    "--zones",
    callback=read_zones,
    metavar="[DATACENTER/]ZONE,…",
    help="Zones of the nodes, assigned in rotation. They keep them after a restart.",
)


@main.command()
@click.option("-n", "--nodes", "count", type=click.IntRange(1, 100), help="Number of nodes (3).")
@click.option("--port", type=click.IntRange(1, local_nodes.PORT_MAX), help="The first of consecutive ports.")
@zones_option
@directory_option
@click.argument("server_options", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def start(
    access: Target,
    count: int | None,
    port: int | None,
    zones: Sequence[Zone],
    directory: Path,
    server_options: Sequence[str],
) -> None:
    """Start nodes on this machine and join them.

    Without --port the ports begin at 7711, or anywhere if those are in use. Words after `--` are options of every
    server, for example `disque-cluster start -n 5 -- --maxmemory 2gb`.

    If --dir has stopped nodes, they are started again on their ports, and still know each other. They get the server
    options of the last start; words after `--` change these. Without --zones they keep theirs. Running nodes are not
    touched. If a running node does not answer, it is reported, the exit status is 1, and the started nodes keep
    running.

    With --tls the ports accept only TLS, and the servers need `--tls-cert-file` and so on.
    """
    if server_options and not server_options[0].startswith("--"):
        raise click.UsageError(
            f"start takes options of the servers, which begin with --, and not '{server_options[0]}':"
            " start … -- --maxmemory 2gb"
        )
    before = local_nodes.load_nodes(directory)
    running = [node for node in before if node.is_alive]
    _refuse_other_cluster(directory, before, len(running), count, port)
    if before:
        ports = [node.port for node in before]
        local_nodes.check_free([node.port for node in before if node not in running])
    else:
        ports = local_nodes.choose_ports(port, count or 3)
    last = local_nodes.load_options(directory)
    if last.with_tls and access.tls is None:
        raise click.ClickException(
            f"The nodes of {directory} accept only TLS: start them with --tls and its files, as before"
        )
    kept = local_nodes.kept_names(last.server, server_options)
    server_options, zones = local_nodes.changed_options(last.server, server_options), tuple(zones) or last.zones
    options = local_nodes.StartOptions(server_options, zones, access.tls is not None, last.removed)
    access = _with_password_of(access, server_options)
    nodes: list[LocalNode] = []
    made = None if before else MadeDirectories(directory, ports)
    interrupts = Interrupts()
    try:
        with interrupts.caught(), _undone_if_it_fails(interrupts, nodes, running, made):
            _make_directory(directory)
            for at, number in enumerate(ports):
                still = next((node for node in running if node.port == number), None)
                words = [*server_options, *(option_words(zones[at % len(zones)]) if zones else ())]
                with interrupts.held():
                    node = still or local_nodes.launch(directory, number, words, with_tls=access.tls is not None)
                    nodes.append(node)
                    local_nodes.save_nodes(directory, nodes + before[len(nodes) :], last)
            local_nodes.await_ready(access, directory, [node for node in nodes if node not in running])
            local_nodes.save_nodes(directory, nodes, options)
            silent = local_nodes.silent_nodes(access, running)
            addresses = [node.address for node in nodes if node not in silent]
            cluster = _join_started(access, addresses, is_whole=not silent)
    except KeyboardInterrupt:
        files = "their files were removed" if made is not None else "their files stay"
        click.echo(f"Interrupted: the nodes that were started are stopped again, and {files}", err=True)
        raise click.exceptions.Exit(INTERRUPTED_STATUS) from None
    print_table(cluster)
    _refuse_silent(silent, directory)
    also = f"Options:  {', '.join(kept)} as in the last start\n" if kept else ""
    click.echo(f"\n{also}Connect:  disque-cli -p {ports[0]}\nStop:     disque-cluster stop --dir {directory}")


def _refuse_other_cluster(
    directory: Path, before: Sequence[LocalNode], running: int, count: int | None, port: int | None
) -> None:
    """Refuse a start if all nodes of the directory run, or if it asks for others. Raises ClickException."""
    if not before:
        return
    if running == len(before):
        raise click.ClickException(f"Nodes of {directory} are running already; see {_command('status', directory)}")
    if count not in (None, len(before)) or port not in (None, before[0].port):
        raise click.ClickException(
            f"{directory} has a stopped cluster of {counted(len(before), 'node')} from port {before[0].port} on. Start"
            f" it without -n and --port, remove it with {_command('stop --remove', directory)}, or choose another --dir"
        )


def _join_started(access: Target, addresses: Sequence[Address], *, is_whole: bool) -> ClusterView:
    """Join the started nodes. If no node is silent, wait until the cluster is complete, and make voters."""
    if not is_whole:
        return _meet_only(access, addresses)
    _join(access, [Place(address) for address in addresses])
    targets = [access.at(address) for address in addresses]
    _set_voters(look_around(targets), targets)
    return look_around(targets)


def _refuse_silent(silent: dict[LocalNode, str], directory: Path) -> None:
    """Report running nodes that do not answer, with their reasons. Raises ClickException if there are any."""
    for node, reason in silent.items():
        failure = reason if " login: " in reason else f"does not answer: {reason}"
        click.echo(f"The node on port {node.port} (process {node.pid}) is running but {failure}", err=True)
    if silent:
        raise click.ClickException(
            f"Not all nodes answer. The started nodes keep running; see {_command('status', directory)}"
        )


@contextmanager
def _undone_if_it_fails(
    interrupts: Interrupts, nodes: Sequence[LocalNode], running: Sequence[LocalNode], made: MadeDirectories | None
) -> Iterator[None]:
    """Stop the nodes that were started in this block, and remove the made directories, unless it ends well."""
    try:
        yield
    except BaseException as error:
        with interrupts.held():
            # Half of a new cluster is useless. After an error, nodes that have joined a running cluster stay.
            if not running or isinstance(error, KeyboardInterrupt):
                local_nodes.stop_nodes([node for node in nodes if node not in running])
            if made is not None:
                made.remove()
        raise


def _make_directory(directory: Path) -> None:
    """Make the directory of a cluster. Raises ClickException."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"Can't make the directory {text_of(error)}; name another one with --dir") from error
    try:
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise click.ClickException(
            f"{directory} can't be written ({error.strerror}); name another directory with --dir"
        ) from error


def _command(words: str, directory: Path) -> str:
    """Return a command for this directory, as the user may copy it. The default directory needs no --dir."""
    place = "" if directory == local_nodes.default_directory() else f" --dir {shlex.quote(str(directory))}"
    return f"`disque-cluster {words}{place}`"


def _with_password_of(access: Target, server_options: Sequence[str]) -> Target:
    """Return the target with the password of the new nodes, if the caller gave none."""
    words = list(server_options)
    if access.password or "--requirepass" not in words[:-1]:
        return access
    return replace(access, password=words[words.index("--requirepass") + 1])


def _meet_only(access: Target, addresses: Sequence[Address]) -> ClusterView:
    """Join the nodes that answer, and look once, because a cluster with a silent node can't become complete."""
    for address in addresses[1:]:
        meet(access.at(addresses[0]), address)
    return look_around([access.at(address) for address in addresses])


def _join(access: Target, places: Sequence[Place]) -> ClusterView:
    """Join nodes into one cluster and wait until it is complete. Raises ClickException if it is not in time."""
    twice = next((place for at, place in enumerate(places) if place.address in _addresses(places[:at])), None)
    if twice is not None:
        raise click.UsageError(f"{twice.address} is named twice")
    targets = [access.at(place.address) for place in places]
    for place in places[1:]:
        meet(targets[0], place.address, place.bus_port)
    cluster = wait_until_whole(targets, JOIN_TIMEOUT_S)
    problems = cluster.problems()
    if problems:
        raise click.ClickException("The cluster is not ready:\n" + "\n".join(f"  {problem}" for problem in problems))
    return cluster


def _addresses(places: Sequence[Place]) -> list[Address]:
    return [place.address for place in places]


def _set_voters(cluster: ClusterView, targets: Sequence[Target]) -> None:
    """Make the first nodes voters if the cluster has none. Print a note if that fails."""
    chosen = first_voters(cluster, targets)
    if not chosen:
        return
    try:
        set_voters(targets[0], chosen)
    except (ConnectError, DisqueError) as error:
        click.echo(f"Note: the cluster has no voters, so it grants no claims and locks: {error}", err=True)


@main.command()
@directory_option
@click.option("--remove", is_flag=True, help="Also delete all files of the nodes, with their jobs.")
def stop(directory: Path, remove: bool) -> None:
    """Stop the nodes that `start` started."""
    nodes = local_nodes.load_nodes(directory)
    if not nodes:
        raise click.ClickException(f"No cluster was started in {directory}; name its --dir")
    alive = [node for node in nodes if node.is_alive]
    killed = local_nodes.stop_nodes(nodes)
    for node in killed:
        click.echo(f"The node on port {node.port} did not stop and was killed", err=True)
    click.echo(_stopped_text(len(alive), len(nodes)))
    if remove:
        for port in (*(node.port for node in nodes), *local_nodes.load_options(directory).removed):
            shutil.rmtree(local_nodes.node_directory(directory, port), ignore_errors=True)
        (directory / local_nodes.STATE_FILE).unlink()
    if killed:
        sys.exit(1)


def _stopped_text(stopped: int, total: int) -> str:
    if not stopped:
        return "The node was not running" if total == 1 else f"None of the {total} nodes was running"
    others = "the other node was" if total - stopped == 1 else "the others were"
    return f"Stopped {counted_of(stopped, total, 'node')}" + (f"; {others} not running" if stopped < total else "")


@main.command(short_help="Show the nodes of a cluster.")
@click.argument("node", callback=read_address, required=False)
@directory_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per node.")
@click.pass_obj
def status(access: Target, node: Address | None, directory: Path, as_json: bool) -> None:
    """Show the nodes of the cluster of NODE (host:port), or of the cluster in --dir.

    Exit status 1 if a node can't be reached.
    """
    cluster = look_around(targets_of(access, node, directory))
    if as_json:
        for row in rows_of(cluster):
            click.echo(json.dumps(row))
    else:
        print_table(cluster)
    for view in cluster.nodes:
        if view.error:
            click.echo(visible(view.reason), err=True)
    if any(view.error for view in cluster.nodes):
        sys.exit(1)


@main.command(short_help="Check the links of all nodes, and the voters.")
@click.argument("node", callback=read_address, required=False)
@directory_option
@click.pass_obj
def check(access: Target, node: Address | None, directory: Path) -> None:
    """Check that every node knows, reaches and trusts every other one, and that the voters can vote.

    The exit status is 1 if there is a problem. Lines that begin with "Note:" are hints, not problems.
    """
    cluster = look_around(targets_of(access, node, directory))
    voters = VotersView(cluster)
    problems = cluster.problems() + voters.problems()
    for problem in problems:
        click.echo(visible(problem))
    notes = [f"{view.name} is leaving the cluster" for view in cluster.nodes if view.is_leaving]
    for note in notes + voters.hints():
        click.echo(visible(f"Note: {note}"))
    if problems:
        sys.exit(1)
    count = len(cluster.nodes)
    click.echo(f"OK: {count} nodes, each linked to every other" if count > 1 else "OK: 1 node")


@main.command(short_help="Join running nodes into one cluster.")
@click.argument("nodes", callback=read_place, nargs=-1, required=True)
@zones_option
@click.pass_obj
def create(access: Target, nodes: Sequence[Place], zones: Sequence[Zone]) -> None:
    """Join running nodes (host:port[@bus-port] …) into one cluster.

    The first three nodes become voters, which grant claims and locks, unless the cluster has voters already.
    """
    _join(access, nodes)
    targets = [access.at(place.address) for place in nodes]
    set_zones(targets, zones)
    _set_voters(look_around(targets), targets)
    print_table(look_around(targets))


@main.command("add-node", short_help="Join a running node to a cluster.")
@click.argument("new", callback=read_place)
@click.argument("existing", callback=read_place)
@click.pass_obj
def add_node(access: Target, new: Place, existing: Place) -> None:
    """Join the running node NEW to the cluster of the node EXISTING."""
    cluster = _join(access, [existing, new])
    print_table(cluster)
    for view in cluster.nodes:
        if view.address == new.address and view.is_leaving:
            click.echo(
                f"Note: {view.name} is leaving, so it takes no jobs. To let it take jobs: "
                f"disque-cli -h {new.address.host} -p {new.address.port} CLUSTER LEAVING no",
                err=True,
            )


@main.command("remove-node", short_help="Remove a node without losing a copy.")
@click.argument("node")
@click.option("--via", callback=read_address, help="Another node of the cluster, if NODE is an id or does not answer.")
@directory_option
@click.option(
    "--timeout", "timeout_s", type=float, help="Seconds to wait until the node is drained (default: no limit)."
)
@click.option("--shutdown", is_flag=True, help="Stop the node's process at the end.")
@click.option("--dead", is_flag=True, help="The node is gone for good: only make the other nodes forget it.")
@click.pass_obj
def remove_node(
    access: Target,
    node: str,
    via: Address | None,
    directory: Path,
    timeout_s: float | None,
    shutdown: bool,
    dead: bool,
) -> None:
    """Remove NODE (host:port, or the beginning of its id) from its cluster without losing a copy.

    A voter leaves the list of voters first. The node moves its jobs to the other nodes. When it has none, the other
    nodes forget it. If you interrupt the command, the node stays in the leaving state: run the command again, or
    cancel the removal with `disque-cli … CLUSTER LEAVING no`.
    """
    cluster, leaver = _find(access, node, via, directory)
    if leaver.error and leaver.answers:
        raise click.ClickException(leaver.reason)
    if dead != bool(leaver.error):
        raise click.ClickException(
            f"{leaver.name} answers, so remove it without --dead"
            if dead
            else f"{leaver.error}. If the node is gone for good, use --dead: its copies of jobs are lost with it"
        )
    if len(cluster.nodes) == 1:
        raise click.ClickException(f"{leaver.name} is the only node of its cluster")
    if VotersView(cluster).role_of(leaver) in ("voter", "mute"):
        left = remove_voter(cluster, leaver, access)
        click.echo(f"{leaver.name} is no longer a voter. Voters left: {left}")
    if not dead:
        _drain(access.at(leaver.address), leaver, timeout_s)
    if shutdown and not dead:
        _shut_down(access.at(leaver.address))
    failures = draining.forget_everywhere(cluster, leaver, access)
    for failure in failures:
        click.echo(failure, err=True)
    if failures:
        raise click.ClickException(f"Send CLUSTER FORGET {leaver.id} to those nodes within a minute")
    click.echo(f"{leaver.name} is out of the cluster" + ("" if shutdown or dead else "; its process still runs"))
    own = next((each for each in local_nodes.load_nodes(directory) if each.address == leaver.address), None)
    if own is not None and (shutdown or not own.is_alive):
        files = local_nodes.leave_out(directory, own.address)
        click.echo(f"{_command('start', directory)} will not start it again. Its files are in {files}")


def _find(access: Target, node: str, via: Address | None, directory: Path) -> tuple[ClusterView, NodeView]:
    """Return the cluster, and the one node in it that `node` names."""
    is_id = ID_PREFIX_MIN <= len(node) <= ID_LENGTH and all(char in "0123456789abcdef" for char in node.lower())
    if is_id:
        cluster = look_around(targets_of(access, via, directory))
        found = [view for view in cluster.nodes if view.id.startswith(node.lower())]
    else:
        try:
            address = parse_place(node).address
        except ValueError as error:
            raise click.UsageError(f"{error}, and it is not the beginning of an id") from error
        cluster = look_around([access.at(address)] if via is None else [access.at(via), access.at(address)])
        found = [view for view in cluster.nodes if view.address == address]
        first = cluster.nodes[0]
        if len(cluster.nodes) == 1 and first.error:
            advice = "" if first.answers else ". Name another node of the cluster with --via"
            raise click.ClickException(first.reason + advice)
    if len(found) != 1:
        raise click.ClickException(f"'{node}' names {len(found)} of the {counted(len(cluster.nodes), 'node')} found")
    if not found[0].id:
        raise click.ClickException(f"No node of the cluster knows '{node}'")
    return cluster, found[0]


def _drain(target: Target, leaver: NodeView, timeout_s: float | None) -> None:
    """Wait until the node is empty, and show its progress.

    Raises ClickException when the time is over, after Ctrl-C, or if the connection breaks.
    """
    try:
        with patient(target) as node:
            draining.leave(node)
            with DrainDisplay(leaver) as display:
                last = draining.drain(node, timeout_s, display.show)
    except KeyboardInterrupt:
        place = f"-h {leaver.address.host} -p {leaver.address.port}"
        raise click.ClickException(
            f"{leaver.name} goes on leaving, and no node has forgotten it. Run this again to finish, or cancel with"
            f" `disque-cli {place} CLUSTER LEAVING no`"
        ) from None
    except ConnectionLostError as error:
        raise click.ClickException(
            f"The connection broke: {error}. No node has forgotten {leaver.name}. When it answers, run this again."
            " If it is gone for good, use --dead with --via: its copies of jobs are lost with it"
        ) from error
    if last.remaining:
        reasons = "".join(f"\n  {reason}" for reason in last.reasons)
        raise click.ClickException(
            f"{last.jobs} still on {leaver.name}, which goes on moving jobs. Run this again to wait longer.{reasons}"
        )


def _shut_down(target: Target) -> None:
    # A successful SHUTDOWN closes the connection.
    with patient(target) as node, suppress(ConnectionLostError):
        node.run(commands.execute("SHUTDOWN"))


@main.command(short_help="Print a script for TAB completion.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script for TAB completion of disque-cluster.

    For bash: `eval "$(disque-cluster completion bash)"` in ~/.bashrc.
    """
    click.echo(completion_script(main, "disque-cluster", shell))


main.add_command(backup)
main.add_command(restore)

if __name__ == "__main__":
    main(prog_name="disque-cluster")
