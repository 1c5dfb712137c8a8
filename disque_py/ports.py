"""Ports: the protocols that the outside implements for the broker.

Each has two real implementations: the server's and the simulator's. The core never imports a clock, a socket or a file.
It gets these ports instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster_bus.node import Node
    from disque_py.core.queue_settings import Item


class Clock(Protocol):
    """The time. The driver reads it once per turn."""

    def now_ms(self) -> int:
        """Return monotonic milliseconds that also count suspended time (CLOCK_BOOTTIME)."""

    def wall_ms(self) -> int:
        """Return Unix time in milliseconds."""

    def stopwatch_ns(self) -> int:
        """Return nanoseconds for measuring durations of commands. They never decide anything."""


class Wire(Protocol):
    """The transport of the bus: one outgoing link per node, which membership opens and closes."""

    def dial(self, node: Node) -> None:
        """Begin to connect to node.host:node.bus_port. Membership gets the outcome."""

    def hang_up(self, node: Node) -> None:
        """Drop our outgoing link to the node, established or not."""

    def send(self, node: Node, frame: bytes) -> None:
        """Queue a frame on the established outgoing link. Without a link the frame is dropped."""


class ClientPort(Protocol):
    """A client's connection as the core sees it."""

    def wake(self) -> None:
        """Look at the client in this turn: it has replies waiting, or may go on with its pipeline."""

    def close(self, *, after_replies: bool) -> None:
        """Close the connection, at once or when the client has taken all replies."""

    def input_bytes(self) -> int:
        """Return the bytes received and not yet executed."""

    def output_bytes(self) -> int:
        """Return the reply bytes that the client has not taken yet."""


class LineMaker(Protocol):
    """A maker of event lines that works beside the loop (core/event_lines.py defines their format)."""

    def make(self, blocks: list[tuple[int, int, bytes]], done: Callable[[tuple[bytes, bytes] | None], None]) -> None:
        """Make lines of blocks (first event, wall clock ms, packed events).

        `done` gets the lines, and where each ends as machine integers of type "I". It gets None if no maker works now.
        It is called from the loop, perhaps at once.
        """


class Host(Protocol):
    """The process around the broker, for administrative commands.

    A method that writes a file takes `done`. It is called exactly once, within a turn: when the file is on disk, or
    with the OSError that prevented it. That may be before the method returns (core/deferred_reply.py).
    """

    def rss_bytes(self) -> int:
        """Return the resident set size of the process."""

    def cpu_seconds(self) -> tuple[float, float, float, float]:
        """Return the CPU time used: system, user, children's system, children's user."""

    def info_fields(self) -> list[tuple[str, str]]:
        """Return the fields of INFO that only the process knows, by their names in INFO.

        disque_build_id, os, arch_bits, multiplexing_api, gcc_version (of the interpreter's compiler), process_id,
        tcp_port, executable, config_file (absolute, empty without one), mem_allocator. Further names end the server
        section.
        """

    def links_rejected(self) -> dict[str, int]:
        """Return reason -> number of bus connections closed for it since the start, before or after their hello."""

    def apply_setting(self, name: str) -> None:
        """Put a directive into effect that CONFIG SET has changed (loglevel, maxclients, dir …).

        A failure is a config.settings.DirectiveError with the whole reply. The caller restores the old value.
        """

    def has_config_file(self) -> bool:
        """Return whether there is a config file to rewrite."""

    def rewrite_config(self, done: Callable[[OSError | None], None]) -> None:
        """Rewrite the config file with the values in force now (CONFIG REWRITE). Rewrites happen in order."""

    def save_nodes(self, done: Callable[[OSError | None], None]) -> None:
        """Write and fsync the nodes file as it is now (CLUSTER SAVECONFIG)."""

    def write_queue_settings(self, items: list[Item], is_void: bool, done: Callable[[OSError | None], None]) -> None:
        """Put queue settings into their file and sync it. With `is_void`, all that it held before is forgotten.

        One write is under way at a time. A write that fails may leave some of its settings in the file.
        """

    def write_votes(self, items: list[tuple[int, Any]], is_void: bool, done: Callable[[OSError | None], None]) -> None:
        """Put items of a voter's memory into its file and sync it (core/voter_memory.py).

        With `is_void`, all that the file held before is forgotten. One write is under way at a time.
        """

    def write_acl_file(self, text: bytes, done: Callable[[OSError | None], None]) -> None:
        """Replace the ACL file, which only this user of the system may read, and sync it. Writes happen in order."""

    def read_acl_file(self, take: Callable[[bytes], None], done: Callable[[OSError | None], None]) -> None:
        """Read the ACL file: `take` gets its text before `done`."""

    def audit(self, line: str) -> None:
        """Add a line to the audit log."""

    def random_bytes(self, count: int) -> bytes:
        """Return bytes that can not be guessed, for passwords."""

    def time_zone(self, name: str) -> Callable[[int], int] | None:
        """Return a function that tells a zone's seconds east of UTC at a Unix time in seconds.

        None if there is no zone of this IANA name. The function is the same for the life of the process.
        """

    def journal_fields(self) -> list[tuple[str, str | int]]:
        """Return the fields of INFO persistence, the original's first."""

    def nodes_file_trouble(self) -> str:
        """Return the system's error if the nodes file can't be written now; otherwise an empty text."""

    def rewrite_journal(self) -> bool:
        """Start BGREWRITEAOF. Return False if one is running. OSError if the journal is off and can't be made."""

    def backup_journal(
        self, name: str, settings: list[Item], done: Callable[[tuple[str, int, int] | OSError], None]
    ) -> None:
        """Run JOURNAL BACKUP. `done` gets the backup's path, number of files and bytes, or the error.

        settings   all queue settings, which the backup contains
        """

    def reload_journal(self, done: Callable[[OSError | None], None]) -> None:
        """Forget all jobs and read them back from the journal (DEBUG LOADAOF). LookupError without a journal."""

    def shutdown_refusal(self) -> str:
        """Return why SHUTDOWN would lose jobs that were promised to be kept; empty if it wouldn't."""

    def rewrite_for_shutdown(self, done: Callable[[OSError | None], None]) -> None:
        """Write all jobs into a fresh journal, also when it is off, for SHUTDOWN REWRITE-AOF."""

    def shutdown(self) -> None:
        """Stop the server after this turn."""

    def restart(self, delay_ms: int, *, graceful: bool) -> None:
        """Execute the same program with the same arguments after `delay_ms` (DEBUG RESTART and CRASH-AND-RECOVER).

        A graceful restart first rewrites the config file, if there is one, and shuts the server down. OSError or
        LookupError if that can't be done; then the server goes on.
        """

    def crash(self, how: str) -> None:
        """Die on purpose (DEBUG SEGFAULT, ASSERT, OOM); `how` is segfault, assert or oom."""

    def sleep(self, seconds: float) -> None:
        """Block the whole process (DEBUG SLEEP)."""

    def log(self, level: str, text: str) -> None:
        """Write one line to the server's log. Levels are debug, verbose, notice and warning."""
