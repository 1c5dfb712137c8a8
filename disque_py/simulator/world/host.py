"""SimHost: the process around a broker, for administrative commands (ports.Host), where there is no process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from disque_py.core.cron import DAY_S, date_of, day_of

if TYPE_CHECKING:
    from disque_py.core.queue_settings import Item
    from disque_py.simulator.world.machine import Machine
    from disque_py.storage.journal_service import JournalService


def _berlin(unix_s: int) -> int:
    """Return the offset: an hour, or two from the last Sunday of March to that of October, 1:00 UTC."""
    year = date_of(unix_s // DAY_S)[0]
    begin, end = (day_of(year, month, 31) - (day_of(year, month, 31) + 4) % 7 for month in (3, 10))
    return 7_200 if begin * DAY_S + 3_600 <= unix_s < end * DAY_S + 3_600 else 3_600


class SimHost:
    """The host of a broker, on behalf of its machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def rss_bytes(self) -> int:
        """Return the memory that the broker accounts for, which is the same on any computer."""
        return self._machine.broker.used_memory

    def cpu_seconds(self) -> tuple[float, float, float, float]:
        """Nothing takes any time here."""
        return 0.0, 0.0, 0.0, 0.0

    def info_fields(self) -> list[tuple[str, str]]:
        """No process, so little to say of it."""
        return [("process_id", str(self._machine.runs)), ("config_file", "")]

    def links_rejected(self) -> dict[str, int]:
        """Do nothing: no client is in this mode here."""
        return {}

    def apply_setting(self, name: str) -> None:
        """Of the process, only the journal and the log of events are there."""
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
        """No."""
        return False

    def rewrite_config(self, done: Callable[[OSError | None], None]) -> None:
        """There is none."""
        done(None)

    def save_nodes(self, done: Callable[[OSError | None], None]) -> None:
        """CLUSTER SAVECONFIG."""
        self._machine.save_nodes(done)

    def write_queue_settings(self, items: list[Item], is_void: bool, done: Callable[[OSError | None], None]) -> None:
        """QUEUE SET, and settings of other nodes."""
        self._machine.settings_disk.write(items, is_void, done)

    def write_votes(self, items: list[tuple[int, Any]], is_void: bool, done: Callable[[OSError | None], None]) -> None:
        """Grants and lists of voters."""
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
        """One zone with summer time, by the rule that Europe follows. Its name is Europe/Berlin."""
        return _berlin if name == "Europe/Berlin" else None

    # -- journal -----------------------------------------------------------------------------------

    def _journal_service(self) -> JournalService:
        journal_storage = self._machine.journal_storage
        if journal_storage is None:
            raise LookupError("there is no journal")
        return journal_storage.journal_service

    def journal_fields(self) -> list[tuple[str, str | int]]:
        """INFO persistence."""
        return [] if self._machine.journal_storage is None else self._journal_service().fields()

    def rewrite_journal(self) -> bool:
        """BGREWRITEAOF."""
        return self._machine.journal_storage is not None and self._journal_service().rewrite()

    def backup_journal(self, name: str, done: Callable[[tuple[str, int, int] | OSError], None]) -> None:
        """JOURNAL BACKUP."""
        if self._machine.journal_storage is None:
            done(OSError("there is no journal"))
        else:
            self._journal_service().backup(f"backups/{name}", b"", done)

    def reload_journal(self, done: Callable[[OSError | None], None]) -> None:
        """DEBUG LOADAOF."""
        journal_storage = self._machine.journal_storage
        if journal_storage is None:
            raise LookupError("there is no journal")
        journal_storage.reload(done)

    def shutdown_refusal(self) -> str:
        """Why SHUTDOWN would lose something."""
        return "" if self._machine.journal_storage is None else self._journal_service().refusal()

    def rewrite_for_shutdown(self, done: Callable[[OSError | None], None]) -> None:
        """SHUTDOWN REWRITE-AOF."""
        self._journal_service().rewrite_for_shutdown(lambda error: done(OSError(error) if error else None))

    # -- ends --------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """SHUTDOWN: the process dies after this turn. An operator starts it again."""
        machine = self._machine
        machine.world.later(1, self._end, machine.runs)

    def _end(self, run: int) -> None:
        machine = self._machine
        if machine.is_up and machine.runs == run:
            machine.die()

    def restart(self, delay_ms: int, *, graceful: bool) -> None:
        """DEBUG RESTART: dead, and up again."""
        machine = self._machine
        machine.world.later(1, self._end, machine.runs)
        machine.world.later(2 + delay_ms, self._begin, machine.runs)

    def _begin(self, run: int) -> None:
        machine = self._machine
        if not machine.is_up and machine.runs == run:
            machine.start()

    def crash(self, how: str) -> None:
        """DEBUG SEGFAULT and its kin."""
        self.shutdown()

    def sleep(self, seconds: float) -> None:
        """DEBUG SLEEP: the process stands still."""
        machine = self._machine
        machine.stop()
        machine.world.later(int(seconds * 1000), self._wake, machine.runs)

    def _wake(self, run: int) -> None:
        machine = self._machine
        if machine.is_up and machine.is_stopped and machine.runs == run:
            machine.go_on()

    def log(self, level: str, text: str) -> None:
        """Into the transcript."""
        self._machine.world.trace.write(self._machine.world.now_ms, f"{self._machine.name}  {text}")
