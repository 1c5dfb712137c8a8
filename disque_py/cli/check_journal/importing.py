"""Imports: a new journal from the original's disque.aof, or from a file of jobs that `export` wrote.

Each job has several holders, and the importing node is one of them. Its id tells which one. The id comes from the
command line, from a nodes file, from the head of the file of jobs or, in the original's file, from the jobs themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster_bus.nodes_file import NodesFileError, parse
from persistence.aof_import import AofReader, common_holders, facts_of_blob
from persistence.install import Install
from persistence.items import NODE_BYTES, Facts
from persistence.jobs_file import JobsFileError, Origin, Pause, parse_line
from persistence.layouts import IS_DELIVERED
from persistence.new_journal import FreshJournal

Progress = Callable[[int, int], None]
# The id in the journal's header of an import without an id. No node has it, and a node reads it as its own id.
NOBODY: Final = bytes(NODE_BYTES)
SHOW_EVERY_LINES: Final = 1000


class MovingError(Exception):
    """An import that is not possible in this way; the text gives the reason and the next step."""


@dataclass
class Moved:
    """The result of an import: how many jobs were imported, and what happened to the others.

    once          at-most-once jobs among them that will not be queued
    torn_bytes    bytes of an incomplete record at the end of the original's file
    moved_to      the new place of a journal that existed before
    """

    jobs: int = 0
    expired: int = 0
    once: int = 0
    pauses: int = 0
    torn_bytes: int = 0
    moved_to: str = ""


@dataclass
class ImportOptions:
    """The options of an import.

    node             id of the node that has the jobs; b"": find out
    is_alone         forget the other holders
    with_once        queue at-most-once jobs that were not delivered
    moves_aside      move an existing journal away
    """

    node: bytes = b""
    is_alone: bool = False
    with_once: bool = False
    moves_aside: bool = False


def is_aof(path: Path) -> bool:
    """Return whether this looks like the original's file; an empty file does."""
    with path.open("rb") as file:
        return file.read(1) in (b"*", b"")


def node_of_file(path: Path) -> bytes:
    """Return the id of `myself` in a nodes file. Raises MovingError, OSError."""
    try:
        return parse(path.read_text(encoding="utf-8", errors="surrogateescape"))[0].id
    except NodesFileError as error:
        raise MovingError(f"{path}: {error}") from error


def import_jobs(source: Path, directory: str, options: ImportOptions, progress: Progress) -> Moved:
    """Make a new journal in `directory` from `source`. Raises MovingError, OSError, and ValueError for a bad file."""
    wall_ms = time.time_ns() // 1_000_000
    parent = Path(directory).absolute().parent
    if not parent.exists():
        raise MovingError(f"{parent} does not exist: create it")
    with Install(directory, moves_aside=options.moves_aside) as place:
        moved = Moved()
        if is_aof(source):
            _from_aof(source, place, options, moved, wall_ms, progress)
        else:
            _from_lines(source, place, options, moved, wall_ms, progress)
        place.commit()
        moved.moved_to = place.moved_to
    return moved


def _from_aof(
    source: Path, place: Install, options: ImportOptions, moved: Moved, wall_ms: int, progress: Progress
) -> None:
    reader = AofReader()
    total = source.stat().st_size
    with source.open("rb") as file:
        while piece := file.read(reader.piece_bytes):
            reader.feed(piece)
            progress(file.tell(), total)
    moved.torn_bytes = reader.torn_bytes
    node = options.node or _node_beside(source)
    if not node and not options.is_alone:
        holder_sets = reader.holder_sets()
        candidates = common_holders(holder_sets)
        if len(candidates) == 1:
            node = candidates.pop()
        elif any(holder_sets):
            raise MovingError(
                f"{source} names several nodes, and not the one that wrote it: give the original's nodes.conf with "
                "--nodes-file, the id with --node, or forget all other nodes with --alone"
            )
    if options.with_once and moved.torn_bytes:
        raise MovingError(
            f"{source} ends in the middle of a record, so its at-most-once jobs may have been delivered already:"
            " leave out --at-most-once-too"
        )

    def facts() -> Iterator[Facts]:
        for index, blob in enumerate(reader.blobs()):
            known = facts_of_blob(blob, index, wall_ms)
            if known is None:
                moved.expired += 1
            else:
                yield known

    journal = FreshJournal(place.folder, node or NOBODY, wall_ms)
    _add_all(journal, facts(), node, options, moved)


def _node_beside(source: Path) -> bytes:
    """Return the id in the nodes file beside the journal, where the original keeps it."""
    path = source.parent / "nodes.conf"
    return node_of_file(path) if path.is_file() else b""


def _from_lines(
    source: Path, place: Install, options: ImportOptions, moved: Moved, wall_ms: int, progress: Progress
) -> None:
    node = options.node
    if not node:
        with source.open("rb") as file:
            first = parse_line(file.readline(), 1, wall_ms)
            node = first.node if isinstance(first, Origin) else b""
    journal = FreshJournal(place.folder, node or NOBODY, wall_ms)
    total = source.stat().st_size

    def facts() -> Iterator[Facts]:
        done = 0
        ids: set[bytes] = set()
        with source.open("rb") as file:
            for number, line in enumerate(file, 1):
                done += len(line)
                if not number % SHOW_EVERY_LINES:
                    progress(done, total)
                said = parse_line(line, number, wall_ms)
                if isinstance(said, Pause):
                    journal.pause(said.queue, said.flags, said.version_ms, said.version_node)
                    moved.pauses += 1
                elif isinstance(said, Facts):
                    if said.id in ids:
                        raise JobsFileError(f"line {number}: an earlier line has the same job")
                    ids.add(said.id)
                    if said.expire_at_ms > wall_ms:
                        yield said
                    else:
                        moved.expired += 1

    _add_all(journal, facts(), node, options, moved)


def _add_all(journal: FreshJournal, facts: Iterator[Facts], node: bytes, options: ImportOptions, moved: Moved) -> None:
    """Write the jobs into the journal. Certain ones come last, as the format demands."""
    me = node or NOBODY
    certain: list[Facts] = []
    for known in facts:
        if options.is_alone:
            known = known._replace(holders=(me,))
        elif me not in known.holders:
            known = known._replace(holders=(*known.holders, me))
        if known.retry_ms or known.state == "acked":
            journal.add(known)
        elif options.with_once and not known.flags & IS_DELIVERED:
            certain.append(known)
        else:
            moved.once += 1
            journal.add(known)
    for known in certain:
        journal.add(known, is_certain=True)
    journal.finish()
    moved.jobs = journal.job_count
