"""Dispatch: the entry points of a broker. Nothing else changes it.

`execute` runs a client's requests. `receive` takes another node's messages. `tick` does the work that is due.
`link_up`, `link_lost`, `incoming_lost`, `new_run` and `forgotten` report changes of links and nodes. Work for the
outside is in `broker.outbox` afterwards.

The order of checks before a command runs is the original's (spec R3). Rare conditions (a password, MONITOR, loading)
are behind one test: each is checked only if at least one of them is true.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from cluster_bus import messages
from cluster_bus.node import Node
from disque_py.commands import access, auditing, logins
from disque_py.commands.adding import addjob, may_be_known
from disque_py.commands.monitoring import monitor_line, redact
from disque_py.commands.shares import SUBJECTS
from disque_py.commands.table import COMMANDS, Command
from disque_py.core import (
    acks,
    asking,
    batch_callbacks,
    batch_ends,
    capping,
    changing,
    claim_messages,
    client_acks,
    delivery,
    exclusive,
    fanout,
    fencing,
    filter_interest,
    firing,
    gathering,
    handover,
    holding,
    interest,
    job_waits,
    keeping,
    keying,
    leaving,
    matching,
    memory,
    ordering,
    pattern_interest,
    pausing,
    pulls,
    repair,
    repair_turns,
    replacing,
    replication,
    requeue,
    settings_sync,
    shared_copies,
    spilling,
    taking,
    tasks,
    telling,
    timers,
    topics,
    voting,
)
from disque_py.core.broker import Broker
from disque_py.core.client import (
    REPLY_OFF,
    REPLY_ON,
    REPLY_SKIP,
    REPLY_SKIP_AGAIN,
    RUNNING,
    WAITS_FOR_COPIES,
    WAITS_FOR_LOADING,
    WROTE,
    WROTE_IN_TROUBLE,
    Client,
)
from disque_py.core.command_entry import WORDS_MAX, CommandEntry
from disque_py.core.errors import EXEC_ABORT, IN_MULTI, LOADING, MISCONF, NOAUTH, OOM, CommandError
from disque_py.core.users import Catalog
from disque_py.resp.replies import OK, error

# ADDJOBs of one client that may wait for copies at the same time.
OVERLAP_MAX: Final = 1_000
# Rounds of slots of caps in one turn. A round gives each value that waits up to capping.WANTED_MAX slots.
CAP_ROUNDS_PER_TURN: Final = 16

# Larger than any time and any reply, but small enough to be a native number in compiled code.
NO_LIMIT: Final = 1 << 60

# An unknown command is quoted in the error, cut to a readable length.
UNKNOWN_BYTES_MAX: Final = 128
HTTP_REPLY: Final = error("ERR this is no HTTP server, the connection is closed")

OOM_REPLY: Final = error(OOM)
NOAUTH_REPLY: Final = error(NOAUTH)
LOADING_REPLY: Final = error(LOADING)
# No reply: the command waits until the node has heard of queue settings, or has asked long enough.
AWAIT_SETTINGS: Final = b""
IN_MULTI_REPLY: Final = error(IN_MULTI)
EXEC_ABORT_REPLY: Final = error(EXEC_ABORT)
MULTI_ADVICE: Final = (
    ": there are no transactions. Commands up to EXEC or DISCARD are refused; send them in a pipeline without MULTI"
)

MessageHandler = Callable[[Broker, Node, list[Any]], None]

MESSAGES: Final[dict[int, MessageHandler]] = {
    messages.REPLJOB: holding.on_repljob,
    messages.GOTJOB: replication.on_gotjob,
    messages.REPLMANY: shared_copies.on_replmany,
    messages.GOTMANY: shared_copies.on_gotmany,
    messages.REFUSED: replication.on_refused,
    messages.HOLDERS: acks.on_holders,
    messages.ENQUEUE: holding.on_enqueue,
    messages.QUEUED: requeue.on_queued,
    messages.WILLQUEUE: requeue.on_willqueue,
    messages.LEASED: requeue.on_leased,
    messages.SETACK: acks.on_setack,
    messages.GOTACK: acks.on_gotack,
    messages.DELJOB: acks.on_deljob,
    messages.NEEDJOBS: pulls.on_needjobs,
    messages.YOURJOBS: taking.on_yourjobs,
    messages.TOOK: handover.on_took,
    messages.SETTLED: taking.on_settled,
    messages.INTEREST: interest.on_interest,
    messages.HINT: interest.on_hint,
    messages.FILTER_NEED: filter_interest.on_need,
    messages.FILTER_INTEREST: filter_interest.on_interest,
    messages.FILTER_HINT: filter_interest.on_hint,
    messages.PATTERN_INTEREST: pattern_interest.on_interest,
    messages.PATTERN_QUEUE: matching.on_queue,
    messages.PAUSE: pausing.on_pause,
    messages.LEFT: leaving.on_left,
    messages.LEFT_OK: leaving.on_left_ok,
    messages.OUTCOME: keying.on_outcome,
    messages.ISKEY: keying.on_iskey,
    messages.KEYIS: keying.on_keyis,
    messages.OUTCOME_IS: keying.on_outcome_is,
    messages.REPLACED: replacing.on_replaced,
    messages.SETTING: settings_sync.on_setting,
    messages.SETTINGS_HAVE: settings_sync.on_have,
    messages.SETTINGS_DIGEST: settings_sync.on_digest,
    messages.ASKSETTINGS: settings_sync.on_ask,
    messages.QLENGTHS: settings_sync.on_lengths,
    messages.CAP_FOLLOW: capping.on_follow,
    messages.CAP_ASK: capping.on_ask,
    messages.CAP_GRANT: capping.on_grant,
    messages.CAP_SETTLE: capping.on_settle,
    messages.CAP_USE: capping.on_use,
    messages.CHANGED: changing.on_changed,
    messages.ASKCHANGED: changing.on_askchanged,
    messages.ACKATTEMPT: client_acks.on_ackattempt,
    messages.ACKFENCED: fencing.on_ackfenced,
    messages.RESULT: client_acks.on_result,
    messages.BATCHADD: keeping.on_batchadd,
    messages.BATCHGOT: keeping.on_batchgot,
    messages.BATCHSUM: keeping.on_batchsum,
    messages.BATCHFLUSH: batch_ends.on_batchflush,
    messages.BATCHFLUSHED: batch_ends.on_batchflushed,
    messages.WAITFOR: job_waits.on_waitfor,
    messages.WAITIS: job_waits.on_waitis,
    messages.JOBOVER: job_waits.on_jobover,
    messages.JOBHAS: job_waits.on_jobhas,
    messages.NOWAIT: job_waits.on_nowait,
    messages.PROGRESS: telling.on_progress,
    messages.ASKJOBS: asking.on_askjobs,
    messages.JOBSARE: asking.on_answer,
    messages.DOJOBS: asking.on_dojobs,
    messages.DIDJOBS: asking.on_answer,
    messages.TASK: tasks.on_task,
    messages.TASK_STATE: tasks.on_task_state,
    messages.SYNC: tasks.on_sync,
    messages.SYNCED: tasks.on_synced,
    messages.HAVE: repair_turns.on_have,
    messages.HAVEARE: repair_turns.on_haveare,
    messages.RESTORED: repair_turns.on_restored,
    messages.SHORT: repair_turns.on_short,
    messages.TAKETURN: repair.on_taketurn,
    messages.QUESTION: gathering.on_question,
    messages.ANSWER: gathering.on_answer,
    **claim_messages.HANDLERS,
}


# Messages that a node accepts while it reads its journal: they promise nothing and touch no job. A question is answered
# with "unable", so its asker does not wait.
WHILE_LOADING: Final = (
    messages.PAUSE,
    messages.INTEREST,
    messages.FILTER_INTEREST,
    messages.PATTERN_INTEREST,
    messages.SETTING,
    messages.SETTINGS_HAVE,
    messages.SETTINGS_DIGEST,
    messages.ASKSETTINGS,
    messages.QLENGTHS,
    messages.QUESTION,
    messages.WAITFOR,
    messages.NOWAIT,
    messages.TASK,
    messages.SYNC,
    *claim_messages.HANDLERS,
)


class MalformedMessageError(Exception):
    """A message that no node of a known version sends. The caller closes the sender's link."""


def install(broker: Broker, renamed: list[tuple[str, str]] | tuple[tuple[str, str], ...] = ()) -> None:
    """Install the commands under the names that rename-command gives them ("" removes a command)."""
    names = {old.lower(): new for old, new in renamed}
    broker.commands.clear()
    broker.gatherings.subjects = SUBJECTS
    topics.watch(broker)
    for command in COMMANDS:
        name = names.get(command.name, command.name)
        if name:
            entry = _entry(command)
            for key in {name.lower(): None, name.upper(): None, name: None}:
                broker.commands[key.encode()] = entry
    broker.users.install(catalog(), is_audited=bool(broker.settings.audit_log))
    firing.install(broker, addjob)
    broker.queue_settings.watch_queues(partial(capping.settings_changed, broker))
    keeping.install(broker)


def catalog() -> Catalog:
    """Return the units that rules of users can name."""
    return Catalog({unit.name: unit.categories for each in COMMANDS for unit in each.access.units})


def _entry(command: Command) -> CommandEntry:
    return CommandEntry(command.name, command.handler, command.arity, command.flags, command.access)


# -- clients ----------------------------------------------------------------------------------------


def execute(
    broker: Broker,
    client: Client,
    requests: list[list[bytes]],
    at: int = 0,
    until_ns: int = NO_LIMIT,
    room: int = NO_LIMIT,
) -> int:
    """Run requests from index `at` on. Return the index of the first request that was not run.

    It stops early when the client has to wait or is to be closed, when the stopwatch reaches `until_ns`, or when
    replies exceed `room` bytes.
    """
    stopwatch_ns = broker.stopwatch_ns
    commands = broker.commands
    slow_ns = _slow_ns(broker)
    needs_checks = client.user is not None or client.is_in_multi or _needs_checks(broker)
    wrote = WROTE_IN_TROUBLE if broker.journal.disk_level else WROTE
    high_memory = broker.memory.limits[1]
    out = client.out
    first = at
    end = len(requests)
    executed = 0
    # Consecutive calls of one command are counted together: from `since_ns` on, `entry` was called `calls` times.
    entry: CommandEntry | None = None
    words_min = words_max = calls = 0
    change: auditing.Change | None = None
    since_ns = before_ns = stopwatch_ns()
    while at < end:
        argv = requests[at]
        word = argv[0]
        found = commands.get(word)
        if found is None:
            found = commands.get(word.lower())
        if client.waiting and (found is None or not found.overlaps or not _may_overlap(client, found, argv)):
            break
        at += 1
        if found is not entry:
            if found is not None and found.is_write and client.wrote < wrote:
                client.wrote = wrote
            if entry is not None:
                entry.calls += calls
                entry.nanoseconds += before_ns - since_ns
            entry = found
            if entry is not None:
                words_min, words_max = entry.words_min, entry.words_max
            executed += calls
            calls = 0
            since_ns = before_ns
        mode = client.reply_mode
        reply: bytes | None
        if entry is None:
            reply = _unknown(client, argv)
            needs_checks = client.user is not None or client.is_in_multi or _needs_checks(broker)
        elif not words_min <= len(argv) <= words_max:
            reply = _wrong_count(entry, len(argv))
        elif needs_checks and (refusal := _refuse(broker, client, entry, argv)) is not None:
            if refusal is LOADING_REPLY and entry.awaits_loading and broker.now_ms < broker.waits.loading_until_ms:
                _wait_for_loading(broker, client)
                at -= 1
                break
            if refusal is AWAIT_SETTINGS:
                _wait_for_loading(broker, client)
                at -= 1
                break
            reply = refusal
        elif (
            entry.is_denyoom
            and broker.used_memory > high_memory
            and memory.is_full(broker)
            and not (entry.overlaps and may_be_known(broker, argv))
        ):
            if spilling.makes_room(broker):
                spilling.wait_for_room(broker, client)
                at -= 1
                break
            reply = OOM_REPLY
            broker.stats.memory_refusals += 1
        else:
            if needs_checks:
                if broker.monitors:
                    _show(broker, client, argv)
                change = _change_of(broker, client, entry, argv)
            try:
                reply = entry.handler(broker, client, argv)
            except CommandError as refused:
                reply = error(refused.text)
            if change is not None:
                auditing.settle(client, change, reply)
                change = None
            calls += 1
            after_ns = stopwatch_ns()
            if after_ns - before_ns >= slow_ns:
                _note_slow(broker, entry, argv, (after_ns - before_ns) // 1000)
            before_ns = after_ns
            if entry.is_admin:
                needs_checks = client.user is not None or _needs_checks(broker)
                slow_ns = _slow_ns(broker)
                high_memory = broker.memory.limits[1]
        if reply is not None:
            if mode or client.reply_mode:
                _reply_in_mode(client, mode, reply)
            elif client.slots:
                client.slots.append([reply])
            else:
                out.append(reply)
                room -= len(reply)
        else:
            client.is_silenced = mode != REPLY_ON  # The mode of this moment also applies to a reply that comes later.
            if mode == REPLY_SKIP and client.reply_mode == REPLY_SKIP:
                client.reply_mode = REPLY_ON
            elif client.reply_mode == REPLY_SKIP_AGAIN:
                client.reply_mode = REPLY_SKIP
        if client.close_asked or before_ns > until_ns or room < 0:
            break
    if at > first:
        broker.stats.commands_processed += executed + calls
        client.active_ms = broker.now_ms
        if entry is not None:
            entry.calls += calls
            entry.nanoseconds += before_ns - since_ns
            client.last_command = entry.name
    return at


def _wrong_count(entry: CommandEntry, count: int) -> bytes:
    if entry.accepts(count):
        most = entry.words_max - 1
        return error(f"ERR too many arguments for '{entry.name}' command, at most {most}: use several commands")
    return error(f"ERR wrong number of arguments for '{entry.name}' command")


def _needs_checks(broker: Broker) -> bool:
    """Return whether there is a rare condition that each command must be checked against."""
    return (
        bool(broker.settings.requirepass)
        or bool(broker.monitors)
        or broker.is_loading
        or broker.journal.disk_level > 0
        or broker.queue_settings.exchange.wait_until_ms > 0
    )


def _slow_ns(broker: Broker) -> int:
    """Return the shortest duration with which a command may belong into SLOWLOG or LATENCY."""
    settings = broker.settings
    slow_us = settings.slowlog_log_slower_than
    slow_ns = slow_us * 1_000 if slow_us >= 0 else NO_LIMIT
    threshold_ms = settings.latency_monitor_threshold
    return min(slow_ns, threshold_ms * 1_000_000) if threshold_ms > 0 else slow_ns


def _note_slow(broker: Broker, entry: CommandEntry, argv: list[bytes], usec: int) -> None:
    settings = broker.settings
    wall_s = broker.wall_ms // 1000
    if 0 <= settings.slowlog_log_slower_than <= usec:
        broker.stats.log_slow(redact(argv, entry.name), usec, wall_s, settings.slowlog_max_len)
    if 0 < settings.latency_monitor_threshold <= usec // 1000:
        broker.stats.log_latency("fast-command" if entry.is_fast else "command", usec // 1000, wall_s)


def _refuse(broker: Broker, client: Client, entry: CommandEntry, argv: list[bytes]) -> bytes | None:
    """Return the refusal of a command for a transaction, a missing login or permission, loading or a full disk."""
    if client.is_in_multi and entry.name != "reset":
        return IN_MULTI_REPLY
    if not client.is_authenticated and not entry.is_for_strangers and logins.needs_login(broker):
        return NOAUTH_REPLY
    user = client.user
    if user is not None:
        refusal = access.refusal(broker, client, user, entry.access, argv, is_free=entry.is_for_strangers)
        if refusal:
            return refusal
    if broker.is_loading and not entry.is_for_loading:
        return LOADING_REPLY
    if 0 < entry.disk_level <= broker.journal.disk_level:
        return error(MISCONF + broker.journal.disk_trouble)
    if entry.awaits_settings and broker.queue_settings.exchange.wait_until_ms > broker.now_ms:
        return AWAIT_SETTINGS
    return None


def _change_of(broker: Broker, client: Client, entry: CommandEntry, argv: list[bytes]) -> auditing.Change | None:
    """Return the change that the audit log records for this request; None if it records none. Spec US10."""
    if not broker.settings.audit_log:
        return None
    unit = entry.access.unit(argv)
    if unit is None or unit.is_change is None or not unit.is_change(argv):
        return None
    return auditing.Change(broker, client, argv, entry.name)


def _wait_for_loading(broker: Broker, client: Client) -> None:
    """Keep the client's next request until the journal is read and settings are known, with a time limit (`settle`)."""
    if client.waiting == RUNNING:
        client.waiting = WAITS_FOR_LOADING
        broker.waits.early[client] = None


def _is_early(broker: Broker) -> bool:
    """Return whether clients that came right after the start go on waiting. Spec QS5."""
    if broker.is_loading:
        return broker.now_ms < broker.waits.loading_until_ms
    return broker.queue_settings.exchange.wait_until_ms > broker.now_ms


def _let_early_in(broker: Broker) -> None:
    """Continue clients that waited for the loading: they are served, or get -LOADING."""
    for client in broker.waits.early:
        client.waiting = RUNNING
        broker.outbox.clients[client] = None
    broker.waits.early = {}


def _show(broker: Broker, client: Client, argv: list[bytes]) -> None:
    """Send a command that is executed to the clients of MONITOR."""
    line = monitor_line(broker, client, argv)
    for monitor in broker.monitors:
        monitor.reply(line)
        broker.outbox.clients[monitor] = None


def _unknown(client: Client, argv: list[bytes]) -> bytes:
    """Return the reply to a word that is not in the table. QUIT is handled here, since it can't be renamed.

    There are no transactions. If a client begins one, no part of it may be executed. So after MULTI all commands are
    refused, up to EXEC or DISCARD. These three are not in the table, because clients rely on the list of COMMAND.
    """
    word = argv[0]
    lowered = word.lower()
    if lowered == b"quit":
        client.close_asked = True
        return OK
    if client.is_in_multi and lowered in (b"exec", b"discard"):
        client.is_in_multi = False
        return OK if lowered == b"discard" else EXEC_ABORT_REPLY
    if lowered == b"host:" or (len(argv) == 3 and argv[2].startswith(b"HTTP/")):
        # A web page can make a browser send HTTP to a node that it can reach, with commands in the body.
        client.close_asked = True
        return HTTP_REPLY
    text = f"ERR unknown command '{word[:UNKNOWN_BYTES_MAX].decode('utf-8', 'surrogateescape')}'"
    if lowered == b"multi":
        client.is_in_multi = True
        return error(text + MULTI_ADVICE)
    return error(text)


def _may_overlap(client: Client, entry: CommandEntry, argv: list[bytes]) -> bool:
    """Return whether a request may start while an earlier ADDJOB or TOPIC PUBLISH of the client waits for copies.

    An ADDJOB or a TOPIC PUBLISH may, since only the order of replies matters. One with MAXLEN may not: its answer
    depends on whether the job before it was queued.
    """
    if client.waiting != WAITS_FOR_COPIES or client.slots is None or len(client.slots) >= OVERLAP_MAX:
        return False
    if len(argv) > WORDS_MAX:
        return False  # It will be refused, but its error must follow the reply to the ADDJOB before it.
    if entry.name == "topic" and (len(argv) < 2 or argv[1].lower() != b"publish"):
        return False
    for at in range(4, len(argv)):
        word = argv[at]
        if len(word) == 6 and word.lower() == b"maxlen":
            return False
    return True


def _reply_in_mode(client: Client, mode: int, reply: bytes) -> None:
    """Append a reply unless CLIENT REPLY OFF or SKIP suppresses it. Both suppress errors, too."""
    if mode == REPLY_SKIP:
        if client.reply_mode == REPLY_SKIP:
            client.reply_mode = REPLY_ON
        return
    if client.reply_mode != REPLY_OFF:
        client.reply(reply)


def disconnect(broker: Broker, client: Client) -> None:
    """Drop a client whose connection is gone."""
    if client.on_outcome is not None:
        client.on_outcome(auditing.HUNG_UP)
    # On a disk that hangs, the output commit keeps its entry of this client.
    client.out = []
    client.held = None
    client.held_bytes = 0
    delivery.drop_client(broker, client)
    if broker.job_waits.by_client:
        job_waits.drop_client(broker, client)
    if broker.event_source is not None:
        broker.event_source.forget(client)
    if broker.claims.rounds:
        claim_messages.forget_client(broker, client)


# -- nodes ------------------------------------------------------------------------------------------


def receive(broker: Broker, sender: Node, runs: list[Any]) -> None:
    """Handle the job messages of one frame. MalformedMessageError if a run doesn't have the shape of its kind."""
    for run in runs:
        if broker.is_loading and run[0] not in WHILE_LOADING:
            continue  # It counts as lost: important messages are repeated (spec Q32).
        handler = MESSAGES.get(run[0])
        if handler is None:
            broker.stats.ignored("message of an unknown kind")  # A newer node; it does not rely on our understanding.
            continue
        items = run[1:]
        broker.stats.messages_received += len(items)
        try:
            handler(broker, sender, items)
        except (ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError, struct.error) as broken:
            raise MalformedMessageError(f"{messages.NAMES.get(run[0], run[0])}: {broken}") from broken


def link_up(broker: Broker, node: Node) -> None:
    """Handle a new link of ours to the node: send the messages that it may have missed, and continue waiting work."""
    broker.sets.forget_packed()
    pausing.on_link_up(broker, node)
    settings_sync.on_link_up(broker, node)
    capping.on_link_up(broker, node)
    voting.on_link_up(broker, node)
    interest.on_link_up(broker, node)
    filter_interest.on_link_up(broker, node)
    pattern_interest.on_link_up(broker, node)
    replication.on_link_up(broker, node)
    handover.on_link_up(broker, node)
    repair.on_link_up(broker, node)
    acks.collect_again(broker)
    keying.on_link_up(broker, node)
    job_waits.on_link_up(broker, node)
    keeping.on_link_up(broker, node)
    fencing.on_link_up(broker, node)


def _end_questions(broker: Broker, node: Node) -> None:
    """Give up the answers that the node owes, and those that we owe it."""
    keying.on_link_lost(broker, node)
    asking.on_link_lost(broker, node)
    gathering.on_link_lost(broker, node)
    tasks.node_lost(broker, node)


def _forget_interest(broker: Broker, node: Node) -> None:
    """Forget the clients of the node that wait for our jobs."""
    interest.forget_node(broker, node)
    filter_interest.forget_node(broker, node)
    pattern_interest.forget_node(broker, node)


def _end_run(broker: Broker, node: Node) -> None:
    """End the agreements with a process of the node that is gone."""
    claim_messages.on_run_over(broker, node)
    settings_sync.on_run_over(broker, node)
    _forget_interest(broker, node)
    handover.on_run_over(broker, node)
    tasks.node_lost(broker, node)


def link_lost(broker: Broker, node: Node) -> None:
    """Handle the end of our link to the node: it broke, or we hung it up."""
    capping.on_link_lost(broker, node)
    _end_questions(broker, node)
    repair.on_link_lost(broker, node)
    claim_messages.on_link_lost(broker, node)
    job_waits.on_link_lost(broker, node)
    keeping.on_link_lost(broker, node)


def incoming_lost(broker: Broker, node: Node) -> None:
    """Handle the end of the node's link to us: its interest ends. The node announces it again on its next link."""
    settings_sync.forget_node(broker, node)
    _forget_interest(broker, node)
    _end_questions(broker, node)
    claim_messages.on_link_lost(broker, node)
    job_waits.on_incoming_lost(broker, node)
    keeping.on_link_lost(broker, node)


def new_run(broker: Broker, node: Node) -> None:
    """Handle a new process of the node: all agreements with the old one are void."""
    _end_run(broker, node)
    job_waits.on_incoming_lost(broker, node)
    keeping.on_link_lost(broker, node)


def forgotten(broker: Broker, node: Node) -> None:
    """Handle a node that left the table: acks no longer wait for it, and hand-overs to it are over."""
    _end_run(broker, node)
    broker.sets.forget_all()
    repair.forgotten(broker, node)
    acks.collect_again(broker)
    job_waits.forgotten(broker, node)
    keeping.on_link_lost(broker, node)


# -- time -------------------------------------------------------------------------------------------


def loaded(broker: Broker) -> None:
    """End the loading of the journal: commands and all messages are handled from now on."""
    broker.is_loading = False
    fencing.loaded(broker)


def tick(broker: Broker) -> bool:
    """Do the work that is due. Return whether there is more to do at once."""
    return timers.tick(broker)


def settle(broker: Broker) -> None:
    """End a turn: serve waiting clients, and tell other nodes about changed interest and keys."""
    if broker.waits.early and not _is_early(broker):
        _let_early_in(broker)
    if broker.cluster.epoch != broker.copies.counted_epoch:
        replication.count_again(broker)
    repairs = broker.repairs
    if repairs.noted or repairs.to_ask or repairs.to_tell:
        repair_turns.settle(broker)
    if broker.producers.key_events or broker.producers.key_conflicts:
        keying.settle(broker)
    while broker.producers.fans_due:
        fanout.settle(broker)
        keying.settle(broker)
    if broker.producers.replaced:
        replacing.settle(broker)
    consumers = broker.consumers
    if consumers.answered:
        ordering.settle_all(broker)
    if broker.exclusive.heard:
        exclusive.settle(broker)
    patterns = broker.patterns
    if patterns.to_join:
        matching.join_new(broker)
    # No job leaves while the journal is read: no record would say so (spec J7).
    may_give = not broker.is_loading
    if may_give:
        delivery.serve_ready(broker)
    if broker.caps.is_due:
        _settle_caps(broker)
    if patterns.due or patterns.found:
        pattern_interest.settle(broker)
    if consumers.renewals:
        pulls.renew(broker)
    if consumers.filter_due or consumers.told_filters or consumers.filter_lines:
        filter_interest.tell_changes(broker)
    interest.tell_changes(broker)
    if consumers.hint_due and may_give:
        interest.send_hints(broker)  # For a standing pull it sends the jobs themselves.
    if consumers.filter_hints and may_give:
        filter_interest.send_hints(broker)
    if broker.claims.is_due:
        claim_messages.settle(broker)
    batches = broker.batches
    if batches.noted or batches.to_sync or batches.flush_answers:
        keeping.settle(broker)
    if batches.callbacks:
        batch_callbacks.call_back(broker)
    if broker.ends.noted or broker.job_waits.given_up:
        job_waits.settle(broker)


def _settle_caps(broker: Broker) -> None:
    """Ask for slots, and serve clients whose jobs got some.

    Each round may find jobs of other values, so a turn has a bounded number of rounds. The last round reports the slots
    that were taken, and the next turn continues from there.
    """
    for _ in range(CAP_ROUNDS_PER_TURN):
        capping.settle(broker)
        if not broker.is_loading:
            delivery.serve_ready(broker)
        if not broker.caps.is_due:
            return
    capping.settle(broker)
    broker.schedule.call_at(broker.now_ms + 1, _go_on)


def _go_on() -> None:
    """Do nothing but open a turn. The end of that turn continues the work that this turn has left."""
