"""disque-check-journal: inspect a node's journal, repair its torn end, export its jobs, or create one.

This module has the commands; persistence/check.py reads journals, report.py prints reports, and importing.py makes
journals. A journal is a directory (`<appendfilename>.d`), or the node's directory that it is in, or a backup. All
commands except `repair` and `import` only read, and may do so while the node runs. Exit status: 0 done and intact, 1
not done or not intact, 2 bad usage.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final, TypeVar

import click

from disque_py import __version__
from disque_py.cli.check_journal.importing import ImportOptions, Moved, MovingError, import_jobs, node_of_file
from disque_py.cli.check_journal.report import print_summary, record_line, summary
from disque_py.cli.counting import counted
from disque_py.cli.progress import Bar
from disque_py.output_errors import is_output_error, naming
from disque_py.program_commands import ProgramGroup
from disque_py.resp.sizes import human_bytes
from disque_py.shell_scripts import SHELLS, completion_script
from persistence.aof_import import AofError
from persistence.backup import DESCRIPTION_NAME, DescriptionError, decode_description, refuse_damaged, refuse_incomplete
from persistence.check import JobCollector, Reader, RecordFeed, Tally, read
from persistence.files import Files
from persistence.install import has_journal, is_in_use
from persistence.items import NODE_BYTES
from persistence.jobs_file import JobsFileError, Pause, job_line, origin_line, pause_line
from persistence.records import Block, FormatError
from persistence.recovery import DamagedJournalError, Recovery

# A running node may drop segments while they are read. Then the journal is read again, at most this many times.
TRIES: Final = 5
SHOW_EVERY_JOBS: Final = 1000
AnyReader = TypeVar("AnyReader", bound=Reader)
SOURCE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


class JournalPath(click.Path):
    """The type of an argument that is a directory with a journal."""

    def __init__(self) -> None:
        super().__init__(exists=True, path_type=Path)

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Return the path. A file is refused, with advice about the original's."""
        path = super().convert(value, param, ctx)
        if os.path.isfile(path):
            self.fail(
                f"'{value}' is a file, and a journal is a directory. The original's disque.aof is read by"
                " `disque-check-journal import`",
                param,
                ctx,
            )
        return path


DIRECTORY: Final = JournalPath()


class Program(ProgramGroup):
    """The command group; turns expected errors into one line and exit status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except (DamagedJournalError, FormatError, MovingError, AofError, JobsFileError, DescriptionError) as error:
            raise click.ClickException(str(error)) from error
        except OSError as error:
            if is_output_error(error):
                raise
            text = error.strerror or str(error)
            where = f"{error.filename}: " if error.filename and str(error.filename) not in text else ""
            raise click.ClickException(where + text) from error


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="disque-check-journal %(version)s")
def main() -> None:
    """Inspect, verify, repair, dump, export and import the journal of a node.

    A journal is the directory <appendfilename>.d (disque.aof.d) inside a node's `dir`. You may also give the `dir`, or
    a backup.
    """


@main.command(short_help="Show the state, jobs and segments of a journal.")
@click.argument("directory", type=DIRECTORY)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def info(directory: Path, as_json: bool) -> None:
    """Show what is in a journal: node, state, jobs, records, and segments with their live and dead bytes."""
    path = journal_in(directory)
    recovery, tally, in_use = read_journal(path, Tally, "Reading")
    tally.settle()
    row = summary(str(path), recovery, tally, is_in_use=in_use)
    if as_json:
        click.echo(json.dumps(row))
    else:
        print_summary(row)


@main.command(short_help="Check every byte of a journal.")
@click.argument("directory", type=DIRECTORY)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def verify(directory: Path, as_json: bool) -> None:
    """Read all of a journal and check every byte of it. Exit status 1 if it is damaged or torn.

    If a node is writing the journal, its end is not checked.
    """
    path = journal_in(directory)
    problem = ""
    try:
        recovery, tally, in_use = read_journal(path, Tally, "Verifying")
        if recovery.newest is None:
            problem = "there is no journal in this directory"
        elif recovery.torn is not None and not in_use:
            name, offset, count = recovery.torn
            problem = (
                f"{name}: the last {count:,} bytes, from byte {offset} on, are an incomplete block: the machine or the"
                " process died while they were written. A node with aof-load-truncated yes cuts them off when it"
                f" starts, and so does `disque-check-journal repair {path}`"
            )
        _check_backup(path, recovery)
    except (DamagedJournalError, FormatError, DescriptionError) as damaged:
        problem = str(damaged)
    if as_json:
        row: dict[str, Any] = {"directory": str(path), "whole": not problem, "problem": problem or None}
        click.echo(json.dumps(row))
    elif not problem:
        end = ", and a node is writing it" if in_use else ""
        segments = counted(len(tally.segments), "segment")
        click.echo(f"OK: {counted(tally.job_count, 'job')}, {human_bytes(tally.bytes)} in {segments}{end}")
    else:
        click.echo(problem, err=True)
    if problem:
        sys.exit(1)


def _check_backup(path: Path, recovery: Recovery) -> None:
    """Check that a backup has all that its description names. A journal that is not a backup passes."""
    description_path = path / DESCRIPTION_NAME
    if description_path.is_file():
        description = decode_description(description_path.read_bytes())
        folder = Files(str(path), readonly=True)
        try:
            refuse_incomplete(folder, description.files | {name: it.size for name, it in description.beside.items()})
        finally:
            folder.close()
        for name in description.beside:
            refuse_damaged(name, (path / name).read_bytes(), description)
        if recovery.newest is None or recovery.position != description.position:
            raise DamagedJournalError(f"{path} is shorter than the backup was when it was made. Copy it again")


@main.command(short_help="Cut off an incomplete block at the end.")
@click.argument("directory", type=DIRECTORY)
@click.option("--yes", is_flag=True, help="Don't ask.")
def repair(directory: Path, yes: bool) -> None:
    """Cut off a torn tail: the block that was being written when the machine stopped.

    With `appendfsync always` this loses nothing that was acknowledged. Damage elsewhere can't be repaired, and is not
    touched: restore a backup, or use the copies on other nodes.
    """
    path = journal_in(directory)
    folder = Files(str(path))
    try:
        with Bar("Reading") as bar:
            recovery = read(folder, Tally(), bar.show)
        if recovery.torn is None:
            click.echo("Nothing to repair: the journal is intact")
            return
        name, offset, count = recovery.torn
        click.echo(f"{name}: the last {count:,} bytes, from byte {offset} on, are an incomplete block.")
        if not yes:
            click.confirm("Cut them off?", abort=True)
        recovery.repair()
        click.echo(
            "Cut off. At-most-once jobs of this journal will not be queued again, because their deliveries are unknown"
        )
    finally:
        folder.close()


@main.command(short_help="Print records or jobs as JSON.")
@click.argument("directory", type=DIRECTORY)
@click.option("--jobs", "as_jobs", is_flag=True, help="Print live jobs instead of records, in the format of `export`.")
@click.option("--no-bodies", is_flag=True, help="Leave the bodies out.")
def dump(directory: Path, as_jobs: bool, no_bodies: bool) -> None:
    """Print every record of a journal, or every job, as one line of JSON."""
    path = journal_in(directory)
    if as_jobs:
        _write_jobs(path, sys.stdout, with_bodies=not no_bodies)
        return

    def show(number: int, block: Block, kind: int, item: Any) -> None:
        sys.stdout.write(record_line(number, block, kind, item, with_body=not no_bodies) + "\n")

    recovery, _, _ = read_journal(path, lambda: RecordFeed(show), "Reading", tries=1)
    if recovery.torn is not None:
        click.echo(f"{recovery.torn[0]}: {recovery.torn[2]:,} bytes after the last complete record", err=True)


@main.command(short_help="Write the jobs of a journal to a file.")
@click.argument("directory", type=DIRECTORY)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def export(directory: Path, file: Path) -> None:
    """Write the jobs of a journal to FILE, one line of JSON per job; `-` is standard output.

    At-most-once jobs that may have been delivered are written as delivered.
    """
    path = journal_in(directory)
    if str(file) == "-":
        _write_jobs(path, sys.stdout, with_bodies=True)
        return
    with naming(file), file.open("x", encoding="utf-8") as lines:
        try:
            count = _write_jobs(path, lines, with_bodies=True)
            lines.flush()
        except BaseException:  # An interrupt, too: see below.
            file.unlink()  # Half of the jobs would look like all of them.
            raise
    click.echo(f"{counted(count, 'job')} written to {file}")


def _write_jobs(path: Path, lines: IO[str], *, with_bodies: bool) -> int:
    """Write the jobs of a journal that are not expired. Return their number."""
    recovery, gathering, _ = read_journal(path, JobCollector, "Reading")
    now_ms = time.time_ns() // 1_000_000
    write = lines.write
    write(origin_line(recovery.newest.node if recovery.newest is not None else b"", now_ms) + "\n")
    for name, (flags, version_ms, version_node) in gathering.pauses.items():
        write(pause_line(Pause(name, flags, version_ms, version_node)) + "\n")
    count = 0
    total = len(gathering)
    with Bar("Writing") as bar:
        for facts in gathering.jobs(is_certain=recovery.is_clean, is_whole=recovery.torn is None):
            if facts.expire_at_ms > now_ms:
                write(job_line(facts, with_body=with_bodies) + "\n")
                count += 1
                if not count % SHOW_EVERY_JOBS:
                    bar.show(count, total)
    return count


@main.command(name="import", short_help="Make a journal from another journal's jobs.")
@click.argument("source", type=SOURCE)
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--node", default="", metavar="ID", help="Id of the node that has the jobs (40 hex digits).")
@click.option("--nodes-file", type=SOURCE, help="The original's nodes.conf, which has the id.")
@click.option("--alone", is_flag=True, help="Forget which other nodes hold copies.")
@click.option(
    "--at-most-once-too", is_flag=True, help="Also queue at-most-once jobs. Use it only if none was delivered."
)
@click.option("--force", is_flag=True, help="Move an existing journal aside.")
def import_(
    source: Path, directory: Path, node: str, nodes_file: Path | None, alone: bool, at_most_once_too: bool, force: bool
) -> None:
    """Make a journal in DIRECTORY from SOURCE: the original's disque.aof, or a file that `export` wrote.

    DIRECTORY is the journal itself, <appendfilename>.d, of a node that is not running. Imported jobs are queued when
    their retry time is over. To queue jobs immediately that were in a queue before, start the node with
    --aof-enqueue-jobs-once yes. At-most-once jobs are kept, but not queued, because they may have been delivered
    before. A node keeps the id of its own nodes file, whatever id the jobs have.
    """
    if node and nodes_file is not None:
        raise click.UsageError("give either --node or --nodes-file, not both")
    options = ImportOptions(_node_id(node, nodes_file), alone, at_most_once_too, force)
    with Bar("Importing") as bar:
        moved = import_jobs(source, str(directory), options, bar.show)
    _tell(moved, directory)


def _node_id(word: str, nodes_file: Path | None) -> bytes:
    if nodes_file is not None:
        return node_of_file(nodes_file)
    try:
        node = bytes.fromhex(word)
    except ValueError:
        node = b"-"
    if node and len(node) != NODE_BYTES:
        raise click.UsageError(f"--node: '{word}' is not a node's id (40 hex digits)")
    return node


def _tell(moved: Moved, directory: Path) -> None:
    click.echo(
        f"{counted(moved.jobs, 'job')} imported into {directory}"
        + (f", {moved.expired:,} expired" if moved.expired else "")
    )
    if moved.once:
        click.echo(
            f"{counted(moved.once, 'at-most-once job')} among them may have been delivered and will not be queued"
        )
    if moved.torn_bytes:
        click.echo(
            f"The file ends in the middle of a record: its last {moved.torn_bytes:,} bytes were left out", err=True
        )
    if moved.moved_to:
        click.echo(f"The previous journal is now in {moved.moved_to}")


@main.command(short_help="Print a script for TAB completion.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script for TAB completion of disque-check-journal.

    For bash: `eval "$(disque-check-journal completion bash)"` in ~/.bashrc.
    """
    click.echo(completion_script(main, "disque-check-journal", shell))


def journal_in(directory: Path) -> Path:
    """Return the directory itself, or the one journal in it. Raises ClickException if there is none or several."""
    if has_journal(str(directory)):
        return directory
    found = [path for path in sorted(directory.glob("*.d")) if path.is_dir() and has_journal(str(path))]
    if len(found) > 1:
        raise click.ClickException(f"{directory} has {len(found)} journals: {', '.join(path.name for path in found)}")
    if not found:
        raise click.ClickException(f"{directory} has no journal")
    return found[0]


def read_journal(
    path: Path, make_reader: Callable[[], AnyReader], label: str, tries: int = TRIES
) -> tuple[Recovery, AnyReader, bool]:
    """Read all of a journal, and change nothing. Return its recovery, the filled reader, and whether a node uses it."""
    while True:
        reader = make_reader()
        folder = Files(str(path), readonly=True)
        in_use = is_in_use(str(path))
        try:
            with Bar(label) as bar:
                return read(folder, reader, bar.show), reader, in_use
        except (FileNotFoundError, DamagedJournalError):
            tries -= 1
            if not in_use or not tries:
                raise
        finally:
            folder.close()


if __name__ == "__main__":
    main(prog_name="disque-check-journal")
