"""What the broker needs from the outside, as protocols.

Each has two real implementations: the server's and the simulator's. The core never imports
a clock, a socket or a file; it gets these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster_bus.node import Node


class Clock(Protocol):
    """Time, read by the driver once per turn."""

    def now_ms(self) -> int:
        """Monotonic milliseconds that also count suspended time (CLOCK_BOOTTIME)."""

    def wall_ms(self) -> int:
        """Unix time in milliseconds."""

    def stopwatch_ns(self) -> int:
        """For measuring durations of commands; never for decisions."""


class Wire(Protocol):
    """Transport of the bus: one outgoing link per node, opened and closed on membership's word."""

    def dial(self, node: Node) -> None:
        """Start connecting to node.host:node.bus_port; the outcome is reported to membership."""

    def hang_up(self, node: Node) -> None:
        """Drop our outgoing link to the node, established or not."""

    def send(self, node: Node, frame: bytes) -> None:
        """Queue a frame on the established outgoing link; dropped when there is none."""


class ClientPort(Protocol):
    """A connection as the core sees it."""

    def wake(self) -> None:
        """The client has replies waiting or may go on with its pipeline: look at it this turn."""

    def close(self, *, after_replies: bool) -> None:
        """Close the connection, at once or when everything written has been taken."""

    def input_bytes(self) -> int:
        """Bytes received and not yet executed."""

    def output_bytes(self) -> int:
        """Reply bytes that the client has not taken yet."""


class LineMaker(Protocol):
    """Makes lines of many events beside the loop (core/event_lines.py says how they look)."""

    def make(self, blocks: list[tuple[int, int, bytes]], done: Callable[[tuple[bytes, bytes] | None], None]) -> None:
        """Lines of (first event, wall clock ms, packed events), and where each ends, as machine integers of type "I".

        `done` is called from the loop, perhaps at once; with None if nobody can do it now.
        """


class Host(Protocol):
    """The process around the broker, for administrative commands.

    A method that writes a file takes `done`, which is called exactly once: within a turn when the file is on disk, or
    with the OSError that prevented it. That may be before the method returns (core/deferred_reply.py).
    """

    def rss_bytes(self) -> int:
        """Resident set size of the process."""

    def cpu_seconds(self) -> tuple[float, float, float, float]:
        """System, user, children's system, children's user CPU time."""

    def info_fields(self) -> list[tuple[str, str]]:
        """What INFO shows and only the process knows, by the names INFO gives it.

        disque_build_id, os, arch_bits, multiplexing_api, gcc_version (of the interpreter's compiler), process_id,
        tcp_port, executable, config_file (absolute, empty without one), mem_allocator. Further names end the server
        section.
        """

    def links_rejected(self) -> dict[str, int]:
        """Bus connections that were closed before or for what they said: reason -> how many since the start."""

    def apply_setting(self, name: str) -> None:
        """A directive was changed with CONFIG SET: put it into effect (loglevel, maxclients, dir …).

        A failure is a config.settings.DirectiveError with the whole reply; the caller puts the old value back.
        """

    def has_config_file(self) -> bool:
        """Whether there is one to rewrite."""

    def rewrite_config(self, done: Callable[[OSError | None], None]) -> None:
        """Write the config file anew, with the values in force now, after those asked for before (CONFIG REWRITE)."""

    def save_nodes(self, done: Callable[[OSError | None], None]) -> None:
        """Write and fsync the nodes file as it is now (CLUSTER SAVECONFIG)."""

    def journal_fields(self) -> list[tuple[str, str | int]]:
        """INFO persistence, by the original's names first."""

    def rewrite_journal(self) -> bool:
        """Start BGREWRITEAOF; False: one is running. OSError if the journal is off and can't be made."""

    def backup_journal(self, name: str, done: Callable[[tuple[str, int, int] | OSError], None]) -> None:
        """JOURNAL BACKUP: `done` hears where it is, of how many files and bytes, or why there is none."""

    def reload_journal(self, done: Callable[[OSError | None], None]) -> None:
        """Forget all jobs and read them back from the journal (DEBUG LOADAOF); LookupError if there is none."""

    def shutdown_refusal(self) -> str:
        """Why SHUTDOWN would lose what was promised; empty if it wouldn't."""

    def rewrite_for_shutdown(self, done: Callable[[OSError | None], None]) -> None:
        """All jobs into a fresh journal, also when it is off, so that SHUTDOWN REWRITE-AOF may follow; OSError."""

    def shutdown(self) -> None:
        """Stop the server after this turn."""

    def restart(self, delay_ms: int, *, graceful: bool) -> None:
        """DEBUG RESTART and CRASH-AND-RECOVER: after `delay_ms` exec the same program with the same arguments.

        Graceful: the config file, if there is one, is rewritten and the server shut down first. OSError or LookupError
        if it can't be done; then the server goes on.
        """

    def crash(self, how: str) -> None:
        """Die on purpose (DEBUG SEGFAULT, ASSERT, OOM); `how` is segfault, assert or oom."""

    def sleep(self, seconds: float) -> None:
        """DEBUG SLEEP: block the whole process."""

    def log(self, level: str, text: str) -> None:
        """One line into the server's log; level is debug, verbose, notice or warning."""
