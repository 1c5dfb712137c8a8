"""SimHost: the stand-in for the process around a broker, for administrative commands (ports.Host).

Figures of a process are constants here, so that traces are the same on any computer. Work on files goes to the
machine's simulated disks, and the end of the process to the machine itself (machine.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from disque_py.core.cron import DAY_S, date_of, day_of

if TYPE_CHECKING:
    from disque_py.core.queue_settings import Item
    from disque_py.simulator.world.machine import Machine
    from disque_py.storage.journal_service import JournalService


def _berlin(unix_s: int) -> int:
    """Return the offset: two hours from the last Sunday of March to that of October (1:00 UTC), else one hour."""
    year = date_of(unix_s // DAY_S)[0]
    begin, end = (day_of(year, month, 31) - (day_of(year, month, 31) + 4) % 7 for month in (3, 10))
    return 7_200 if begin * DAY_S + 3_600 <= unix_s < end * DAY_S + 3_600 else 3_600


class SimHost:
    """The host of a broker. Its machine does the work."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def rss_bytes(self) -> int:
        """Return the memory that the broker accounts for, which is the same on any computer."""
        return self._machine.broker.used_memory

    def cpu_seconds(self) -> tuple[float, float, float, float]:
        """Return zeros: no work takes CPU time here."""
        return 0.0, 0.0, 0.0, 0.0

    def info_fields(self) -> list[tuple[str, str]]:
        """Return the few fields that make sense without a process."""
        return [("process_id", str(self._machine.runs)), ("config_file", "")]

    def links_rejected(self) -> dict[str, int]:
        """Return no counters: links are not rejected here."""
        return {}

    def apply_setting(self, name: str) -> None:
        """Apply a setting of the journal or the log of events. Other settings of the process have no effect here."""
        journal_storage, event_logs = self._machine.journal_storage, self._machine.event_logs
        if event_logs is not None and name == "events":
            event_logs.service.switch()
        elif event_logs is not None and name in ("appendfsync", "events-max-bytes", "events-max-age"):
            event_logs.service.set_limits()
        if journal_storage is not None and name == "appendfsync":
            journal_storage.journal_service.set_policy()
        elif journal_storage is not None and name == "appendonly":
            journal_storage.journal_service.switch()

    def has_config_file(self) -> bool:
        """Return False: there is no configuration file."""
        return False

    def rewrite_config(self, done: Callable[[OSError | None], None]) -> None:
        """Do nothing: there is no configuration file."""
        done(None)

    def save_nodes(self, done: Callable[[OSError | None], None]) -> None:
        """Write the nodes file, for CLUSTER SAVECONFIG."""
        self._machine.save_nodes(done)

    def write_queue_settings(self, items: list[Item], is_void: bool, done: Callable[[OSError | None], None]) -> None:
        """Write queue settings, of QUEUE SET and of other nodes."""
        self._machine.settings_disk.write(items, is_void, done)

    def write_votes(self, items: list[tuple[int, Any]], is_void: bool, done: Callable[[OSError | None], None]) -> None:
        """Write grants and lists of voters."""
        self._machine.votes_disk.write(items, is_void, done)

    def write_acl_file(self, text: bytes, done: Callable[[OSError | None], None]) -> None:
        """No machine has an ACL file."""
        done(None)

    def read_acl_file(self, take: Callable[[bytes], None], done: Callable[[OSError | None], None]) -> None:
        """No machine has an ACL file."""
        take(b"")
        done(None)

    def audit(self, line: str) -> None:
        """No machine has an audit log."""

    def random_bytes(self, count: int) -> bytes:
        """Return bytes of the machine's own generator, the same for each run of a seed."""
        return self._machine.broker.rng.randbytes(count)

    def time_zone(self, name: str) -> Callable[[int], int] | None:
        """Return the offsets of Europe/Berlin, the only known zone, with Europe's rule for summer time."""
        return _berlin if name == "Europe/Berlin" else None

    # -- journal -----------------------------------------------------------------------------------

    def _journal_service(self) -> JournalService:
        journal_storage = self._machine.journal_storage
        if journal_storage is None:
            raise LookupError("there is no journal")
        return journal_storage.journal_service

    def journal_fields(self) -> list[tuple[str, str | int]]:
        """Return the fields of INFO persistence."""
        return [] if self._machine.journal_storage is None else self._journal_service().fields()

    def nodes_file_trouble(self) -> str:
        """Return an empty text: writes of the nodes file do not fail."""
        return ""

    def rewrite_journal(self) -> bool:
        """Begin to rewrite the journal, for BGREWRITEAOF, and return whether that is possible."""
        return self._machine.journal_storage is not None and self._journal_service().rewrite()

    def backup_journal(
        self, name: str, settings: list[Item], done: Callable[[tuple[str, int, int] | OSError], None]
    ) -> None:
        """Back up the journal, for JOURNAL BACKUP."""
        if self._machine.journal_storage is None:
            done(OSError("there is no journal"))
        else:
            self._journal_service().backup(f"backups/{name}", {}, done)

    def reload_journal(self, done: Callable[[OSError | None], None]) -> None:
        """Load the journal again, for DEBUG LOADAOF."""
        journal_storage = self._machine.journal_storage
        if journal_storage is None:
            raise LookupError("there is no journal")
        journal_storage.reload(done)

    def shutdown_refusal(self) -> str:
        """Return the reason why SHUTDOWN would lose jobs; empty if it would not."""
        return "" if self._machine.journal_storage is None else self._journal_service().refusal()

    def rewrite_for_shutdown(self, done: Callable[[OSError | None], None]) -> None:
        """Rewrite the journal, for SHUTDOWN REWRITE-AOF."""
        self._journal_service().rewrite_for_shutdown(lambda error: done(OSError(error) if error else None))

    # -- ends --------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """End the process after this turn, for SHUTDOWN. An operator starts it again."""
        machine = self._machine
        machine.world.later(1, self._end, machine.runs)

    def _end(self, run: int) -> None:
        machine = self._machine
        if machine.is_up and machine.runs == run:
            machine.die()

    def restart(self, delay_ms: int, *, graceful: bool) -> None:
        """Restart the process, for DEBUG RESTART."""
        machine = self._machine
        machine.world.later(1, self._end, machine.runs)
        machine.world.later(2 + delay_ms, self._begin, machine.runs)

    def _begin(self, run: int) -> None:
        machine = self._machine
        if not machine.is_up and machine.runs == run:
            machine.start()

    def crash(self, how: str) -> None:
        """Kill the process, for DEBUG SEGFAULT and similar commands."""
        self.shutdown()

    def sleep(self, seconds: float) -> None:
        """Stop the process for a time, for DEBUG SLEEP."""
        machine = self._machine
        machine.stop()
        machine.world.later(int(seconds * 1000), self._wake, machine.runs)

    def _wake(self, run: int) -> None:
        machine = self._machine
        if machine.is_up and machine.is_stopped and machine.runs == run:
            machine.go_on()

    def log(self, level: str, text: str) -> None:
        """Write a log line into the transcript."""
        self._machine.world.trace.write(self._machine.world.now_ms, f"{self._machine.name}  {text}")
