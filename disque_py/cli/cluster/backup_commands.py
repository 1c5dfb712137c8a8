"""disque-cluster backup and restore: options, confirmations and output. backups.py does the work.

A backup asks each running node for a copy of its journal. A restore puts a copy in the place of a node's journal, and
so needs the directory and a node that is not running. Every step that would overwrite or remove files needs an option.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from disque_py.cli.address import Target
from disque_py.cli.check_journal.report import moment
from disque_py.cli.cluster import backups
from disque_py.cli.cluster.backups import BackupError, Made
from disque_py.cli.cluster.options import directory_option, read_address, targets_of
from disque_py.cli.cluster.view import NodeView, look_around, look_at
from disque_py.cli.connection import ConnectError
from disque_py.cli.counting import counted
from disque_py.cli.progress import Bar
from disque_py.client import Address, DisqueError
from disque_py.resp.sizes import human_bytes
from persistence.backup import DescriptionError, is_name
from persistence.records import FormatError
from persistence.recovery import DamagedJournalError


@click.command(short_help="Copy the journals of running nodes.")
@click.argument("node", callback=read_address, required=False)
@directory_option
@click.option(
    "--only", "only", callback=read_address, multiple=True, help="Back up only this node (host:port); may be repeated."
)
@click.option("--name", default=backups.default_name, show_default="date and time", help="Name of the backup.")
@click.option(
    "--to", type=click.Path(path_type=Path), help="Collect the copies here: a directory, a .tar or a .tar.gz."
)
@click.option("--keep", is_flag=True, help="With --to: also keep the copies beside the journals.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per node.")
@click.pass_obj
def backup(
    access: Target,
    node: Address | None,
    directory: Path,
    only: tuple[Address, ...],
    name: str,
    to: Path | None,
    keep: bool,
    as_json: bool,
) -> None:
    """Make consistent copies of the journals of running nodes.

    The nodes are those in the cluster of NODE (host:port) or of --dir, or those named with --only. The copies are hard
    links beside the journals, so making them is quick. They need more and more space as the journals drop old data.
    Copy them to another disk and remove them, or use --to, which does both.
    """
    if not is_name(name):
        raise click.UsageError("--name takes letters, digits, '.', '-' and '_', 100 at most")
    if keep and to is None:
        raise click.UsageError("--keep needs --to")
    try:
        if to is not None:
            to = to.absolute()
            backups.refuse_occupied(to)
        views = [look_at(access.at(address)) for address in only]
        views = views or look_around(targets_of(access, node, directory)).nodes
        made = _make_all(access, views, name, as_json=as_json)
        if to is not None and made:
            paths = [each.path for _, each in made]
            backups.refuse_unreadable(paths)
            backups.refuse_foreign([(node_id, each.path) for node_id, each in made])
            with Bar("Gathering") as bar:
                backups.gather(paths, to, bar.show)
            if not keep:
                backups.remove_made(paths)
            if not as_json:
                click.echo(f"The copies are in {to}")
    except (BackupError, DescriptionError, OSError) as error:
        raise click.ClickException(text_of(error)) from error
    if len(made) < len(views):
        sys.exit(1)


def _make_all(access: Target, views: list[NodeView], name: str, *, as_json: bool) -> list[tuple[str, Made]]:
    """Have every node make a backup. Return the backups with the nodes' ids, and print failures."""
    made = []
    for view in views:
        row: dict[str, Any] = {"node": view.id, "address": str(view.address)}
        try:
            if view.error:
                raise ConnectError(view.error)
            each = backups.make(access.at(view.address), name)
        except (ConnectError, DisqueError) as error:
            row.update(error=str(error))
            if not as_json:
                click.echo(f"{view.name}: {error}", err=True)
        else:
            made.append((view.id, each))
            row.update(path=each.path, files=each.files, bytes=each.size)
            if not as_json:
                click.echo(f"{view.name}: {each.path} ({human_bytes(each.size)} in {counted(each.files, 'file')})")
        if as_json:
            click.echo(json.dumps(row))
    return made


@click.command(short_help="Restore a backup into a node's directory.")
@click.argument("source", metavar="BACKUP", type=click.Path(exists=True, path_type=Path))
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--node", default="", metavar="ID", help="The beginning of the node's id, if the backup has several nodes."
)
@click.option(
    "--new-id", is_flag=True, help="Don't restore the node's id: the node keeps its current id, or gets a new one."
)
@click.option("--force", is_flag=True, help="Move an existing journal, or another node's files, aside.")
@click.option(
    "--appendfilename", default="disque.aof", show_default=True, help="The value in the node's configuration."
)
@click.option(
    "--cluster-config-file", default="nodes.conf", show_default=True, help="The value in the node's configuration."
)
def restore(
    source: Path, directory: Path, node: str, new_id: bool, force: bool, appendfilename: str, cluster_config_file: str
) -> None:
    """Restore a backup into DIR, the `dir` of a node that is not running.

    BACKUP is a directory or a tar file that `backup` made. It is checked completely before anything changes. When the
    node is started, it asks the other holders about its jobs, and drops those that are done. At-most-once jobs are
    kept but not queued, because they may have been delivered since.

    The node gets its former id back, and so its place in the cluster. It must not run anywhere else. It also gets back
    the settings of queues, schedules, topics and users. With --new-id it is a new node with these jobs, and no settings
    are restored.
    """
    if directory.name == f"{appendfilename}.d":
        raise click.UsageError(
            f"{directory} is the journal's directory: give the directory that contains it, the node's `dir`"
        )
    try:
        backups.refuse_missing(directory.absolute().parent)
        with (
            Bar("Restoring") as bar,
            backups.opened(source, node) as (opened, description),
            _made_directory(directory),
        ):
            restored = backups.restore(
                opened,
                description,
                directory / f"{appendfilename}.d",
                directory / cluster_config_file,
                bar.show,
                is_new=new_id,
                moves_aside=force,
            )
    except (BackupError, DamagedJournalError, FormatError, DescriptionError, OSError) as error:
        raise click.ClickException(text_of(error)) from error
    identity = f"node {restored.node.hex()[:8]}" if restored.has_identity else "a node of another id"
    click.echo(
        f"{counted(restored.jobs, 'job')} ({human_bytes(restored.size)}) as of {moment(restored.made_at_ms)} UTC"
        f" are in {directory}, for {identity}{', with all settings' if restored.has_settings else ''}"
    )
    for path in restored.moved:
        click.echo(f"The former files are now in {path}")


@contextmanager
def _made_directory(directory: Path) -> Iterator[None]:
    """Make a directory if it is missing, and remove it again if the block fails."""
    is_new = not directory.exists()
    directory.mkdir(exist_ok=True)
    try:
        yield
    except BaseException:  # An interrupt, too.
        if is_new:
            shutil.rmtree(directory, ignore_errors=True)
        raise


def text_of(error: Exception) -> str:
    """Return the text of an error, with the file that it names."""
    if not isinstance(error, OSError):
        return str(error)
    text = error.strerror or str(error)
    return f"{error.filename}: {text}" if error.filename and str(error.filename) not in text else text
