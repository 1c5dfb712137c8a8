"""`--test-config`: finds the problems that a start would have with a configuration, without changing anything.

The checks are the steps of a start, in its order (node_lifecycle.py), with the same texts. Each step has a way to look
without opening (probes.py): no port is taken, no file is opened for writing, no lock is taken. So a configuration may
be tried while a node runs with it. A port or a lock in use is no problem here. settings_file.load has found the
problems of single lines before.

Of a journal only the heads of its files are read: reading all of it may take minutes. `disque-check-journal` does that.
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from cluster_bus.node import ID_BYTES
from disque_py.log_lines import line
from disque_py.node.dispatch import catalog
from disque_py.server import listeners, probes, process, tls
from disque_py.server.bus_adapter import bus_addresses
from disque_py.server.event_storage import events_directory
from disque_py.server.file_writer import FileWriter
from disque_py.server.node_lifecycle import (
    cluster_files,
    journal_directory,
    journal_not_loaded,
    myself,
    refuse_foreign_journal,
    refuse_missing_journal,
    users_in_file,
)
from disque_py.server.spill_storage import spill_directory
from disque_py.server.start_error import (
    AUDIT_LOG,
    DIRECTORY,
    FEW_FILES,
    JOURNAL,
    LOG_FILE,
    SPILL,
    StartError,
    Step,
)
from disque_py.server.user_files import SYSLOG
from persistence.files import Files
from persistence.records import FormatError
from persistence.recovery import DamagedJournalError, Recovery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from disque_py.config.settings import Settings


@dataclass
class Findings:
    """The lines that a start with a configuration would print.

    problems   reasons why it would fail
    warnings   lines that it would log, about files without which a node runs
    """

    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def look(settings: Settings) -> Findings:
    """Look at files, addresses and certificates as a start would."""
    findings = Findings()
    start = os.getcwd()
    try:
        os.chdir(settings.dir)  # Relative paths refer to it.
    except OSError as error:
        findings.problems.append(str(DIRECTORY.refused(settings.dir, error)))
        return findings
    try:
        for check in _checks(settings):
            try:
                check()
            except StartError as error:
                findings.problems.append(str(error))
        if not findings.problems:  # A start that fails does not come to these lines.
            findings.warnings.extend(_warnings(settings))
    finally:
        os.chdir(start)
    findings.problems = list(dict.fromkeys(findings.problems))
    return findings


def _checks(settings: Settings) -> Iterator[Callable[[], object]]:
    """Return the steps of a start that may fail, in its order. Each raises the StartError of the start."""
    if settings.logfile:
        yield partial(_look, LOG_FILE, settings.logfile, probes.writable)
    yield partial(_look_at_file_limit, settings)
    nodes, queue_settings, votes = cluster_files(settings, FileWriter(), lambda level, text: None)
    yield nodes.look
    yield queue_settings.load
    yield votes.load
    yield partial(listeners.refuse_repeated, settings)
    if settings.port:
        yield partial(listeners.look_at_port, settings, settings.port)
    if settings.tls_port:
        yield partial(listeners.look_at_port, settings, settings.tls_port)
        yield partial(tls.clients_context, settings)
    if settings.unixsocket:
        yield partial(listeners.look_at_socket, os.path.abspath(settings.unixsocket))
    yield partial(myself, settings, bytes(ID_BYTES))
    yield partial(bus_addresses, settings.cluster_seeds)
    yield partial(tls.bus_contexts, settings)
    if settings.audit_log not in ("", SYSLOG):
        yield partial(_look, AUDIT_LOG, settings.audit_log, probes.writable)
    if settings.aclfile:
        yield partial(users_in_file, settings, catalog())
    yield partial(listeners.look_at_bus, settings)
    if settings.maxmemory_spill:
        yield partial(_look, SPILL, spill_directory(settings), probes.ownable)
    if settings.appendonly or settings.aof_enqueue_jobs_once:
        yield partial(refuse_foreign_journal, settings)
        yield partial(refuse_missing_journal, settings)
        yield partial(_look, JOURNAL, journal_directory(settings), probes.ownable)
        yield partial(_look_at_journal, settings)


def _warnings(settings: Settings) -> Iterator[str]:
    """Return the lines that the start would log about files without which a node runs."""
    if refusal := tls.refusal_of_own_certificate(settings):
        yield line("certificate-refused", path=settings.tls_cert_file, reason=refusal)
    if settings.daemonize and settings.pidfile and (error := _error_of(probes.writable, settings.pidfile)):
        yield line("pid-file-failed", path=os.path.abspath(settings.pidfile), reason=error.strerror or str(error))
    if settings.aclfile and not os.path.exists(settings.aclfile):
        yield line("acl-file-missing", path=settings.aclfile)
    events = events_directory(settings)
    if settings.events and (error := _error_of(probes.ownable, events)):
        yield line("events-not-written", reason=f"{events}: {error.strerror or error}")


def _error_of(probe: Callable[[str], None], path: str) -> OSError | None:
    try:
        probe(path)
    except OSError as error:
        return error
    return None


def _look(step: Step, path: str, probe: Callable[[str], None]) -> None:
    if error := _error_of(probe, path):
        raise step.refused(path, error)


def _look_at_file_limit(settings: Settings) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = process.raise_file_limit(settings.maxclients)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    if possible < 1:
        raise StartError(FEW_FILES.format(process.RESERVED_FILES))


def _look_at_journal(settings: Settings) -> None:
    """Read which files belong to the journal."""
    files = Files(journal_directory(settings), readonly=True)
    try:
        Recovery(files)
    except (DamagedJournalError, FormatError) as broken:
        raise journal_not_loaded(settings, str(broken)) from None
    except OSError:
        # There is no journal yet, or a running node removed one of its files, or the step before has told the reason.
        return
    finally:
        files.close()
