"""Deliberate defects, put into the running code one at a time, and the number of seeds that the simulator needs.

A mutation replaces a piece of one function's source, and gives the function the resulting code. So all callers of the
function get the defect. This needs plain Python functions, so the packages must not be compiled.

`python tests/simulation/mutating.py --hunt` looks for each defect, and writes the list in docs/simulator.md. With
words, it looks only for defects whose names contain one of them, and writes nothing. With `--state FILE`, a hunt
records its results, and a restarted hunt continues there. `--jobs N` looks for N defects at a time.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # For the packages, if they are not installed.

from disque_py.simulator.plan import ClientPlan, draw
from disque_py.simulator.simulation import simulate

SECONDS = 6
SEEDS_MAX = 100
PAGE = Path(__file__).resolve().parents[2] / "docs" / "simulator.md"
TITLE = "## Deliberate defects"


class Mutation(NamedTuple):
    """One defect. `where` is module:function or module:Class.method, and `old` occurs once in its source.

    weather   the weather of the plans; empty: any
    client    plans have two clients of this kind, in addition to a producer and two consumers, and no others; kinds
              with + between them: two of each kind
    """

    name: str
    where: str
    old: str
    new: str
    weather: str = ""
    client: str = ""


CLAIMS = "voter keeper+claim producer+claim worker"
LOCKS = "voter keeper+locker"
MUTATIONS = (
    Mutation("WILLQUEUE is not answered", "disque_py.core.requeue:on_willqueue",
             "tell_queued(broker, job, QUEUED_WAITING)", "pass"),
    Mutation("jobs that wait are not announced", "disque_py.core.requeue:send_announcements",
             "broker.send(others, QUEUED, _queued(job, QUEUED_WAITING))", "pass"),
    Mutation("holders are counted, not compared", "disque_py.core.acks:on_setack",
             "if job.holders is theirs:", "if len(ours) == len(theirs):", "shifting"),
    Mutation("holders are not asked whether they know of an ack", "disque_py.core.acks:try_collect",
             "asked = _linked(broker, missing)", "asked = ()"),
    Mutation("attempts are not counted", "disque_py.core.changeable:Changeable.is_spent",
             "return 0 < self.limit <= attempt - self.start", "return False", "fair"),
    Mutation("a change is told to no holder", "disque_py.core.changing:change",
             "broker.send(others, CHANGED, (job.id, pack_part(broker, job, part), job.version))", "pass", "fair"),
    Mutation("an errored job is queued again by its timer", "disque_py.core.requeue:is_queueable",
             "job.attributes is not None and job.is_errored", "False", "fair"),
    Mutation("canceled jobs are not collected", "disque_py.core.client_acks:cancel_here",
             "acknowledge(broker, job, is_news=True, is_canceled=True)\n    try_collect(broker, job)",
             "acknowledge(broker, job, is_news=True, is_canceled=True)\n    job.holders = broker.sets.mine", "fair"),
    Mutation("a canceled job is canceled again by each holder", "disque_py.core.acks:acknowledge",
             "    if is_canceled:\n        if is_news:", "    if is_canceled:\n        if True:", "fair"),
    Mutation("a promoted job stays delayed", "disque_py.core.moving:promote",
             "_end_delay(broker, job, event_format.PROMOTED, event_format.PROMOTED_INVISIBLE)", "pass", "fair"),
    Mutation("a new priority is not noted", "disque_py.core.moving:reschedule",
             "lifecycle.set_priority(broker, job, attributes, priority)", "pass", "fair"),
    Mutation("a moved job stays in its queue", "disque_py.core.moving:move",
             "lifecycle.rename_queue(broker, job, name)", "pass", "fair"),
    Mutation("a redriven job stays errored", "disque_py.core.moving:redrive",
             "part.is_errored = False", "pass", "fair"),
    Mutation("each holder acts for a task", "disque_py.core.task_jobs:is_wanted",
             "if job.state != QUEUED:", "if False:", "fair"),
    Mutation("a limited task takes any jobs", "disque_py.core.tasks:_grant_in_order",
             "offered.sort()", "pass", "fair"),
    Mutation("a task without a leader goes on", "disque_py.core.tasks:on_task_state",
             "broker.send(broker.sets.only(sender), TASK, (number, END))", "pass", "losses"),
    Mutation("half of a data centre is a quorum", "disque_py.core.zones:quorum",
             "members // 2 + 1", "(members + 1) // 2", "fair"),
    Mutation("copies of other data centres count for a quorum", "disque_py.core.replication:on_gotjob",
             "(not work.is_quorum or zones.is_local(broker, sender))", "True", "alone"),
    Mutation("copies in fewer zones are enough", "disque_py.core.replication:on_gotjob",
             "not work.zones or zones.count(confirmed) >= work.zones", "True", "alone"),
    Mutation("a rebalance keeps the jobs that it hands over", "disque_py.core.task_jobs:give",
             "share.changed += 1", "share.changed += 1; job.state == 1 and lifecycle.put_back(broker, job)", "fair"),
    Mutation("another holder's grant does not keep a key", "disque_py.core.grants:Grants.claim",
             "if record.holder != holder or not flags & REPLACES:", "if False:", "breaks"),
    Mutation("a grant less than a majority is enough", "disque_py.core.claiming:_look",
             "if granted >= attempt.majority:", "if granted >= attempt.majority - 1:", "halves"),
    Mutation("a voter without memory votes at once", "disque_py.core.voting:may_vote",
             "return (memory.remembers and memory.has_copied) or memory.may_grant", "return True", "votes"),
    Mutation("new voters copy nothing", "disque_py.core.voting:learn",
             "memory.remembers and voter_list.is_first", "memory.remembers", "fair", LOCKS),
    Mutation("a release ends any grant of its key", "disque_py.core.grants:Grants.release",
             "if record is None or record.holder != holder or record.fence != fence:", "if record is None:",
             "fair", LOCKS),
    Mutation("a renewal that failed releases its grants", "disque_py.core.claiming:_fail",
             "if not attempt.is_renewal:", "if True:", "losses", LOCKS),
    Mutation("a holder counts its lease from the answer on", "disque_py.core.claiming:_granted",
             "attempt.began_ms + lease_ms", "broker.now_ms + lease_ms", "drift+delays", CLAIMS),
    Mutation("a holder's lease is not shortened by the drift", "disque_py.core.claiming:_granted",
             "wanted.lease_ms * (PERCENT - broker.settings.claim_drift_max) // PERCENT", "wanted.lease_ms",
             "drift", CLAIMS),
    Mutation("a voter grants claims of any epoch", "disque_py.core.voting:on_claim",
             "if memory.list is None or memory.list.epoch != epoch:", "if memory.list is None:", "stale", LOCKS),
    Mutation("voters that go on tell their grants", "disque_py.core.recalling:on_recall",
             "has_stopped != bool(is_copying)", "False", "stale", LOCKS),
    Mutation("a proposer overlooks a list that was accepted", "disque_py.core.electing:_decide",
             "promise.accepted_list or wanted", "wanted", "breaks", LOCKS),
    Mutation("after a restart a grant is over", "disque_py.core.grants:Grants.put",
             "if is_running:", "if False:", "kills", LOCKS),
    Mutation("keys that are forgotten leave no floor", "disque_py.core.grants:Grants.forget",
             "self.floor = max(self.floor, record.highest)", "pass", "forgetful", CLAIMS),
    Mutation("voters do not count the attempts of a lock", "disque_py.core.grants:Grants.claim",
             "if attempt and attempt <= record.attempts_at(now_ms):", "if False:", "fair", LOCKS),
    Mutation("a claim that is granted during a pause is delivered", "disque_py.core.exclusive:start",
             "or pick.queue.paused & PAUSED_OUT", "or False", "claims", CLAIMS),
    Mutation("grants are not on disk when they are answered", "disque_py.core.voting:write",
             "items = [item", "items = [] if memory.has_copied and memory.grants.records else [item", "kills"),
    Mutation("a fence is granted twice", "disque_py.core.grants:Grants.claim",
             "fence <= max(record.highest, self.floor)", "False", "clocks"),
    Mutation("a voter ends a grant early", "disque_py.core.grants:Grants.settle",
             "now_ms + record.lease_ms + 1", "now_ms + record.lease_ms * 9 // 10", "fair"),
    Mutation("the end of the work under a lock is forgotten", "disque_py.core.grants:Grants.claim",
             "if record.done_until_ms > now_ms:", "if False:", "fair"),
    Mutation("a stamped job is delivered without a claim", "disque_py.core.claim_stamps:needed",
             "stamp = stamp_of(job)", "return None", "fair"),
    Mutation("a claim ends with its delivery", "disque_py.core.exclusive:start",
             "pick.outcome = OVER", "pick.outcome = OVER; _release(broker, pick.key, pick.holder, pick.fence)", "fair"),
    Mutation("WORKING renews no claim", "disque_py.commands.attempts:_renew",
             "renewal.begin(partial(done, None))",
             "renewal.until_ms = broker.now_ms + work.lease_ms; done(None)", "fair"),
    Mutation("an older fence is taken for the newest", "disque_py.core.exclusive:is_fenced",
             "0 < fence < claim_stamps.fence_of(job)", "False", "fair", CLAIMS),
    Mutation("the newest claims are not told to new links", "disque_py.node.dispatch:link_up",
             "fencing.on_link_up(broker, node)", "pass", "halves", CLAIMS),
    Mutation("a queue takes jobs without the META that it requires", "disque_py.commands.adding:_refuse_by_settings",
             "if required not in meta:", "if False:", "fair", CLAIMS),
    Mutation("voters do not count the attempts of a job", "disque_py.core.exclusive:_claim_job",
             "wanted = _wanted_claim(broker, pick, pick.job_key, keep_ms, limit, job.attempt + 1)",
             "wanted = _wanted_claim(broker, pick, pick.job_key)", "kills"),
    Mutation("the end of a job of a batch is not reported", "disque_py.core.batch_state:Batches.note",
             "self.report(name, job, entered)", "pass", "fair", "batcher"),
    Mutation("a batch is done before all reports have arrived", "disque_py.core.batch_ends:_look_at",
             "if not linked:", "if True:", "delays", "batcher"),
    Mutation("a producer hears of a job before a keeper does", "disque_py.core.producer_waits:answer",
             "and broker.batches.is_pending(job)", "and False", "delays", "batcher"),
    Mutation("an ended job goes before a keeper has its end", "disque_py.core.batch_state:Batches.is_pending",
             "return key is not None and (key in self.pending or key in self.noted.get(name, {}))", "return False",
             "halves", "batcher"),
    Mutation("reports of a batch are sent once", "disque_py.core.keeping:repeat_reports",
             "if broker.now_ms - report.sent_ms >= RETRY_MS and number in batches.reports:", "if False:",
             "breaks", "batcher"),
    Mutation("keepers do not compare their ids", "disque_py.core.keeping:_compared",
             "send_digests(broker, batch, (node,))", "pass", "halves", "batcher"),
    Mutation("a callback has no key", "disque_py.core.batch_callbacks:_add",
             'b"KEY", _key_of(batch), ', "", "kills", "batcher"),
    Mutation("a closed batch takes jobs", "disque_py.core.keeping:refuse_closed",
             "batch.is_known and batch.is_closed", "False", "fair", "batcher"),
    Mutation("a client that waits for a batch is not woken", "disque_py.core.keeping:wake",
             "stalling.resume_client(broker, client)", "pass", "fair", "batcher"),
    Mutation("a fan-out does not wait for the copies of all its jobs", "disque_py.core.fanout:_go_on",
             "if not is_waiting:", "if True:", "fair", "publisher"),
    Mutation("a fan-out that fails leaves the jobs that it has made", "disque_py.core.fanout:_end",
             "replication.give_up(broker, job, None)", "pass", "breaks", "publisher"),
    Mutation("other nodes do not hear that a job was replaced", "disque_py.core.replacing:settle",
             "broker.send(linked, REPLACED, (old, new))", "pass", "fair", "debouncer"),
    Mutation("the window of a key ends at once", "disque_py.core.windows:until_ms",
             "return job.expire_at_ms - (found - 1)", "return now_ms", "fair", "debouncer"),
    Mutation("ends are not told to nodes whose clients wait", "disque_py.core.job_waits:_tell_over",
             "broker.send(nodes, JOBOVER, (job_id, *outcome))", "pass", "fair", "waiter"),
    Mutation("a link that comes up renews no waits", "disque_py.core.job_waits:on_link_up",
             "if state.waited:", "if False:", "halves", "waiter"),
    Mutation("a node that is not linked is not waited for", "disque_py.core.job_waits:_evaluate",
             "if len(linked) < broker.cluster.size - 1:", "if False:", "halves", "waiter"),
    Mutation("a node that is asked for a job has nothing", "disque_py.core.job_waits:on_waitfor",
             "has = has_here(broker, job_id)", "has = NOTHING", "fair", "waiter"),
    Mutation("how jobs ended is forgotten with their records", "disque_py.core.ends:Ends.get",
             "return self.recent.get(job_id) or self._before.get(job_id, 0)", "return 0", "fair", "waiter"),
    Mutation("the last result of a job counts", "disque_py.core.results:Results.put",
             "(known.version, known.node, known.value) <= (version, node, value)", "False", "fair", "waiter"),
    Mutation("leases that run are not counted against a cap", "disque_py.core.caps:Caps.used",
             "total += use.count", "pass", "fair", "capper"),
    Mutation("each side of a partition has the whole cap", "disque_py.core.caps:Caps._part",
             "return limit if 2 * side > known else limit * side // known", "return limit", "halves", "capper"),
    Mutation("deliveries are not counted against a rate", "disque_py.core.caps:Caps.delivered",
             "self.window(name, rate).add(now_ms, 1, limit.rate_ms)", "pass", "fair", "capper"),
    Mutation("ticks have no key", "disque_py.core.firing:_add",
             'b"KEY", _key_of(firing)', 'b"RETRY", b"2"', "restarts", "timekeeper"),
    Mutation("a recorded tick falls", "disque_py.core.recurring:Schedule.merge",
             "if progress.last_ms > ours.last_ms:", "if progress.last_ms != ours.last_ms:", "halves", "timekeeper"),
    Mutation("acks are forgotten at a restart", "disque_py.core.restoring:Restoring._apply",
             "if flags & IS_ACKED:", "if False:", "restarts"),
    Mutation("replies do not wait for the journal", "disque_py.node.output_commit:OutputCommit.hold_replies",
             "(held or (wrote and position > ready))", "held"),
    Mutation("the disk is believed to have synced", "persistence.zeros:write_synced",
             "folder.sync(name)", "pass", "power"),
    Mutation("a node that gives a job away does not note its taker", "disque_py.core.handover:hand_over",
             "job.holders = sets.add(job.holders, node)", "pass"),
    Mutation("an at-most-once job is queued after any restart", "disque_py.core.restoring:Restoring._place_once",
             "elif not is_sure:", "elif False:", "power"),
    Mutation("a job's life is counted by the sender's wall clock", "disque_py.core.job_snapshot:job_of",
             "broker.now_ms + left_ms", "broker.now_ms + left_ms + ctime // 1_000_000 - broker.wall_ms"),
    Mutation("answers to hand-overs are not remembered", "disque_py.core.taking:on_yourjobs",
             "state.answers[number] = answers", "pass"),
    Mutation("a hand-over to a dead process waits for ever", "disque_py.core.handover:on_run_over",
             "pending, state.pending = state.pending, {}", "pending = {}", "kills+losses"),
    Mutation("acks are not remembered after the job is gone", "disque_py.core.tombstones:Tombstones.add",
             "self._now[job_id] = ended", "pass", "delays"),
    Mutation("a node that is asked as a holder and has nothing forgets the ack", "disque_py.core.acks:on_setack",
             "_hold_ack(broker, job_id, theirs, ahead, version, is_canceled=_is_canceled(item))", "pass", "delays"),
    Mutation("one copy less is enough", "disque_py.core.replication:on_gotjob",
             "len(confirmed) >= job.terms.replicate", "len(confirmed) >= job.terms.replicate - 1", "kills"),
    Mutation("a leaver does not wait for the copy that is to replace its own", "disque_py.core.leaving:_move_copy",
             "broker.send(more, REPLJOB, repair_turns.copy_of(broker, job))",
             "broker.send(more, REPLJOB, repair_turns.copy_of(broker, job)); lifecycle.forget(broker, job)",
             "leaving+losses"),
    Mutation("acks are asked for once", "disque_py.core.acks:look_again",
             "try_collect(broker, job)", "pass"),
    Mutation("an answer does not end a suspicion", "cluster_bus.failure:heal",
             "node.flags &= ~(PFAIL | FAIL)", "pass", "pauses"),
    Mutation("forgotten jobs are not recorded", "disque_py.core.lifecycle:forget",
             "broker.outbox.gone.add_gone(job_id, job.place)", "pass"),
    Mutation("memory is not given back", "disque_py.core.lifecycle:forget",
             "broker.job_count -= 1", "broker.job_count -= 1; broker.used_memory += 1"),
    Mutation("waiting clients are not counted off", "disque_py.core.delivery:stop_waiting",
             "broker.waits.blocked_count -= 1", "pass"),
    Mutation("undelivered at-most-once jobs are evicted", "disque_py.core.memory:may_evict",
             "(job.terms.retry_ms == 0 and job.is_delivered)", "job.terms.retry_ms == 0", "memory"),
    Mutation("ids come twice", "disque_py.core.ids:IdSource.next",
             "self._pool.pop()", "self._pool[len(self._pool) // 2]"),
    Mutation("replies overtake those that wait for copies", "disque_py.node.dispatch:execute",
             "elif client.slots:", "elif False:"),
    Mutation("a lost hand-over is not counted", "disque_py.core.handover:_given_up",
             "broker.stats.once_lost_in_handover += 1", "pass", "kills"),
    Mutation("a job that is acknowledged stays in its queue", "disque_py.core.queue:Queue.pop",
             "QUEUED", "3"),
    Mutation("holders are not recorded", "disque_py.core.journaling:mark_holders_dirty",
             "record_soon(broker, job)", "pass", "restarts"),
    Mutation("an unknown job's SETACK is not answered", "disque_py.core.acks:on_setack",
             'broker.send(only, GOTACK, (job_id, b"", 0))', "pass"),
    Mutation("an interest that is over is not told", "disque_py.core.interest:_recheck",
             "_tell(broker, queue, value, plain)", "pass"),
    Mutation("a hint is given once", "disque_py.core.interest:_send_hint",
             "broker.schedule.call_at(queue.hint_until_ms, partial(broker.owe_hint, queue))", "pass"),
    Mutation("a leased job is queued again by others", "disque_py.core.requeue:on_leased",
             "lifecycle.postpone(broker, job, until_ms)", "pass"),
    Mutation("a missing copy is not asked for again", "disque_py.core.replication:on_timer",
             "_extend(broker, job)", "False", "losses"),
    Mutation("messages do not wait for the journal", "disque_py.node.output_commit:OutputCommit.hold_messages",
             "if position <= ready and not held:", "if True:"),
    Mutation("a collector takes its own word for all", "disque_py.core.acks:_missing",
             "and node not in confirmed]", "and node not in confirmed and not confirmed]"),
    Mutation("at-most-once jobs are queued again", "disque_py.core.requeue:is_queueable",
             "(not job.is_delivered and job.work is None)", "True"),
    Mutation("timers change jobs while the journal is loaded", "disque_py.core.timers:tick",
             "broker.schedule.due(JOBS_PER_TICK) if not broker.is_loading else ()",
             "broker.schedule.due(JOBS_PER_TICK)", "restarts"),
    Mutation("records of an earlier process are believed to be synced", "persistence.recovery:Recovery._write_again",
             "while left > 0:", "while False:", "disks+power"),
    Mutation("jobs are given away after the journal's end", "disque_py.storage.journal_service:JournalService.close",
             "self._broker.outbox.messages.shut()", "pass", "restarts"),
    Mutation("a requeue is no event", "disque_py.core.requeue:requeue",
             "events.note(broker, job, event_format.REQUEUED if again else event_format.QUEUED)", "pass", "pauses"),
    Mutation("replies do not wait for the log of events", "persistence.event_log:EventLog.ready_position",
             "self.position if self.is_closed else self.written", "self.position"),
    Mutation("events can be read before they are on disk", "persistence.event_log:EventLog._on_written",
             "if is_synced:", "if True:", "power"),
    Mutation("a node that knows a key does not say so", "disque_py.core.keying:on_iskey",
             "named = broker.producers.keys.named(chars)", 'named = b""'),
    Mutation("a token forgets its first job", "disque_py.core.tokens:Tokens.held",
             "for job, attempt in list(token.jobs.items()):", "for job, attempt in list(token.jobs.items())[1:]:"),
    Mutation("a queue paused with all delivers", "disque_py.core.delivery:collect",
             "queue.paused & PAUSED_OUT", "queue.paused == PAUSED_OUT", "queues"),
    Mutation("a waiting client is served from a paused queue", "disque_py.core.delivery:serve_ready",
             "and not queue.paused & PAUSED_OUT", "", "queues"),
    Mutation("an old word ends a newer pause", "disque_py.core.pausing:on_pause",
             "(known[1], known[2]) >= (version_ms, version_node)", "False", "queues+shifting"),
    Mutation("a lease is half as long as RETRY", "disque_py.core.lifecycle:lease",
             "broker.now_ms + retry_ms", "broker.now_ms + retry_ms // 2"),
    Mutation("after trouble with its disk a node answers at once",
             "disque_py.node.output_commit:OutputCommit.hold_replies",
             "(wrote and position > ready)",
             "(wrote and position > ready and not getattr(commit_position, '_failed_ms', 0))", "disks"),
    Mutation("behind another reply, an answer in trouble does not wait for its record",
             "disque_py.node.output_commit:OutputCommit.hold_replies",
             "wrote == WROTE_IN_TROUBLE and not held", "wrote == WROTE_IN_TROUBLE", "disks"),
    Mutation("acks that wait go to the next process of a node", "disque_py.node.turn:Driver._leave_out",
             "self.outgoing.leave_out(node)", "pass", "restarts"),
    Mutation("a log that was closed may be continued", "persistence.event_log:EventLog.fail",
             "lambda folder: mark_closed(folder, mark)", "lambda folder: None", "disks"),
    Mutation("a node that comes back does not ask", "disque_py.core.restoring:Restoring._place",
             "if not is_mine and job.requeue_at_ms < ask_at_ms:", "if False:", "restarts"),
    Mutation("a new link is not told of pauses", "disque_py.core.pausing:on_link_up",
             "broker.tell_pause(only, name)", "pass", "queues+halves"),
    Mutation("a node does not notice that another leaves", "cluster_bus.membership:Membership._on_header",
             "node.flags ^= LEAVING", "pass", "leaving"),
    Mutation("a RETRY beyond the horizon is not found again", "disque_py.core.timers:_sweep_jobs",
             "arm(broker, job)", "pass", "fair"),
    Mutation("memory keeps its jobs when the journal is loaded again", "disque_py.storage.reloading:Reloading._closed",
             "flush(driver.broker)", "pass"),
    Mutation("a journal that is switched on lacks jobs of memory", "disque_py.storage.compaction:Compaction.record_all",
             "self._snapshot = self._record_all()", "self._snapshot = iter(())"),
    Mutation("a block of the journal that rotted is believed", "persistence.records:decode_block",
             "if _crc(data[at + _CHECKED : end + length]) != checksum:", "if False:", "disks"),
    Mutation("lost copies are counted and not replaced", "disque_py.core.repair_turns:_copy",
             "broker.send(nodes, REPLJOB, copy_of(broker, job))", "pass",
             "lost"),
    Mutation("a forgotten node is not suspected", "disque_py.core.repair:forgotten",
             'suspect(broker, node, "forgotten")', "pass", "lost"),
    Mutation("a process is believed to have kept its memory", "disque_py.core.repair:_look_at_nodes",
             'suspect(broker, node, "its copies are asked for")', "pass", "lost"),
    Mutation("only the first holder takes a turn", "disque_py.core.repair:_walk_rest",
             "if position or not is_same:", "if False:", "lost"),
    Mutation("a full node counts for the default number of copies", "cluster_bus.node_table:NodeTable.refresh",
             "has_room = node.has_room", "has_room = True", "disks"),
    Mutation("jobs without a node for their copies are given up", "disque_py.core.repair:_end_cycle",
             "if repairs.has_short:", "if False:", "lost"),
    Mutation("a new holder is not named to the others", "disque_py.core.repair_turns:_send_questions",
             "item = (repairs.number, broker.sets.pack(holders), [job.id for job in part])",
             'item = (repairs.number, b"", [job.id for job in part])', "lost"),
    Mutation("a node that was away collects from the holders that it knows", "disque_py.core.acks:_missing",
             "if job.era != broker.era and job.holders and job.terms.replicate > 1:", "if False:", "lost"),
    Mutation("a named holder's word to another node is enough", "disque_py.core.acks:_must_ask_named",
             "return True", "return False", "lost+delays"),
    Mutation("a backup ends before its last file", "persistence.backup:names_of",
             "for part in parts]", "for part in parts[:-1]]", "disks"),
)  # fmt: skip

# Defects that few seeds find, or for which no seeds were played: the rule of docs/spec that each breaks, and a test
# that fails with it.
FOUND_BY_TEST = {
    "attempts are not counted": ("Y4", "test_the_limit_applies_to_the_deliveries_of_the_current_set"),
    "a change is told to no holder": ("Y3", "test_a_change_is_told_to_all_holders_with_the_next_number"),
    "an errored job is queued again by its timer": ("Y5", "test_the_nack_of_the_last_attempt_ends_in_an_error"),
    "canceled jobs are not collected": (
        "Y8",
        "test_an_at_most_once_job_that_is_canceled_before_its_hand_over_arrives_is_not_delivered",
    ),
    "a canceled job is canceled again by each holder": (
        "E1",
        "test_a_cancellation_counts_on_the_node_that_made_it_and_on_no_other_holder",
    ),
    "a promoted job stays delayed": ("MV1", "test_an_at_most_once_job_is_promoted_once"),
    "a new priority is not noted": ("MV2", "test_the_place_of_a_job_that_was_out_of_its_queue_is_the_new_one"),
    "a moved job stays in its queue": ("MV3", "test_a_move_tells_all_holders_before_the_job_is_queued"),
    "a redriven job stays errored": ("MV4", "test_qredrive_gives_errored_jobs_fresh_attempts"),
    "each holder acts for a task": ("MV5", "test_qpurge_cancels_the_jobs_of_a_queue_on_all_nodes"),
    "a limited task takes any jobs": ("MV6", "test_qmove_with_limit_takes_the_first_jobs_of_all_nodes"),
    "a task without a leader goes on": ("MV7", "test_the_state_of_a_task_that_is_not_known_is_answered_with_its_end"),
    "a stamped job is delivered without a claim": ("EX3", "test_two_jobs_of_one_value_never_run_at_the_same_time"),
    "a claim ends with its delivery": ("EX5", "test_a_value_is_held_by_one_node_only"),
    "WORKING renews no claim": ("EX5", "test_working_renews_the_claim"),
    "voters do not count the attempts of a job": (
        "EX7",
        "test_under_quorum_attempts_of_a_dead_node_count_that_no_holder_heard_of",
    ),
    "reports of a batch are sent once": ("BT3", "test_a_report_is_repeated_until_it_is_recorded"),
    "a fan-out that fails leaves the jobs that it has made": (
        "TP8",
        "test_a_refusal_of_one_queue_refuses_all_and_names_the_queue",
    ),
    "each side of a partition has the whole cap": ("CP5", "test_the_part_of_a_minority_is_rounded_down"),
    "deliveries are not counted against a rate": ("CP1", "test_a_rate_counts_deliveries"),
    "ticks have no key": ("SD4", "test_a_tick_has_one_job_although_a_node_stood_still_for_longer_than_its_ttl"),
    "a recorded tick falls": ("SD5", "test_progress_never_falls"),
    "behind another reply, an answer in trouble does not wait for its record": (
        "P5",
        "test_behind_a_reply_that_waits_they_wait_for_their_own_record_too",
    ),
    "acks that wait go to the next process of a node": (
        "H1",
        "test_acks_that_wait_do_not_go_to_the_next_process_of_a_node",
    ),
    "a new link is not told of pauses": (
        "U3",
        "test_a_node_that_joins_learns_states_set_with_bcast_ended_pauses_included",
    ),
    "a node does not notice that another leaves": (
        "N1",
        "test_leaving_is_known_everywhere_in_a_moment_and_taken_back_likewise",
    ),
    "a RETRY beyond the horizon is not found again": ("T5", "test_jobs_beyond_the_horizon_are_found_in_time"),
    "memory keeps its jobs when the journal is loaded again": ("J7", "test_after_a_reload_all_is_as_before"),
    "a journal that is switched on lacks jobs of memory": ("P1", "test_a_journal_that_is_switched_on_gets_all_jobs"),
    "a block of the journal that rotted is believed": (
        "Q38",
        "test_a_block_that_lacks_a_byte_or_has_a_wrong_bit_is_not_read",
    ),
    "lost copies are counted and not replaced": ("RC5", "test_a_new_node_is_named_before_it_gets_its_copy"),
    "a forgotten node is not suspected": ("RC2", "test_jobs_of_a_forgotten_node_are_asked_for_at_once"),
    "a process is believed to have kept its memory": (
        "RC2",
        "test_a_process_that_is_linked_first_is_asked_after_ten_seconds",
    ),
    "only the first holder takes a turn": ("RC3", "test_the_next_holder_waits_for_five_seconds"),
    "a full node counts for the default number of copies": (
        "C1",
        "test_one_full_node_of_three_stops_no_producer_that_names_no_number",
    ),
    "jobs without a node for their copies are given up": ("RC10", "test_a_node_that_joins_takes_missing_copies"),
    "a new holder is not named to the others": ("RC6", "test_a_new_node_is_named_before_it_gets_its_copy"),
    "a node that was away collects from the holders that it knows": (
        "RC8",
        "test_a_job_from_before_an_absence_is_collected_from_every_node",
    ),
    "a named holder's word to another node is enough": (
        "RC7",
        "test_a_holder_waits_for_the_confirmation_of_the_node_that_it_named",
    ),
    "a backup ends before its last file": ("P1", "test_a_backup_has_acknowledged_changes_and_no_later_ones"),
}


def function_of(where: str) -> FunctionType:
    """Return the function that `where` names."""
    module, _, name = where.partition(":")
    found = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    assert isinstance(found, FunctionType)
    return found


def mutated(mutation: Mutation) -> object:
    """Return the code of the function with the defect in it."""
    function = function_of(mutation.where)
    source = textwrap.dedent(inspect.getsource(function))
    assert mutation.old in source, f"{mutation.where} has no {mutation.old!r} any more"
    scope = dict(function.__globals__)
    exec(
        compile(
            "from __future__ import annotations\n" + source.replace(mutation.old, mutation.new), mutation.where, "exec"
        ),
        scope,
    )
    return scope[function.__name__].__code__


@contextmanager
def defective(mutation: Mutation) -> Iterator[None]:
    """Give the code the defect for the time of a `with` block."""
    function = function_of(mutation.where)
    whole = function.__code__
    function.__code__ = mutated(mutation)
    try:
        yield
    finally:
        function.__code__ = whole


class Found(NamedTuple):
    """The result of a hunt: the number of seeds, and the broken rule; empty: no rule broke."""

    seeds: int
    rule: str

    def __str__(self) -> str:
        return f"{self.seeds} seeds, {self.rule}" if self.rule else f"not in {self.seeds}"


def hunt(mutation: Mutation, seeds_max: int = SEEDS_MAX) -> Found:
    """Play seeds until the defect shows, and return their number and the broken rule."""
    for seed in range(1, seeds_max + 1):
        plan = draw(seed, SECONDS * 1000, weather=mutation.weather)
        if mutation.client:
            kinds = ("producer", "consumer", "consumer", *2 * mutation.client.split("+"))
            clients = tuple(ClientPlan(number, kind) for number, kind in enumerate(kinds))
            plan = replace(plan, clients=clients, places=())
        with defective(mutation):
            failure = simulate(plan).failure
        if (
            failure is not None and simulate(plan).failure is None
        ):  # A seed that fails without the defect proves nothing.
            return Found(seed, failure.rule)
    return Found(seeds_max, "")


def hunt_all(mutations: list[Mutation], seeds_max: int, jobs: int, state: Path | None) -> list[tuple[Mutation, Found]]:
    """Look for each mutation, and print a line as each ends. Results of an earlier hunt in `state` are kept."""
    known: dict[str, list[object]] = json.loads(state.read_text()) if state is not None and state.exists() else {}
    rows: dict[str, Found] = {}
    with ProcessPoolExecutor(jobs) as pool:
        hunts = {}
        for mutation in mutations:
            mutated(mutation)  # Check that it fits the code.
            key = json.dumps([*mutation, seeds_max])
            if key in known:
                seeds, rule = known[key]
                rows[mutation.name] = Found(int(str(seeds)), str(rule))
            else:
                hunts[pool.submit(hunt, mutation, seeds_max)] = mutation, key
        for ended in as_completed(hunts):
            mutation, key = hunts[ended]
            found = rows[mutation.name] = ended.result()
            print(f"{mutation.name}: {found}", flush=True)
            if state is not None:
                known[key] = list(found)
                state.write_text(json.dumps(known, indent=1))
    return [(mutation, rows[mutation.name]) for mutation in mutations]


def table(rows: list[tuple[Mutation, Found]]) -> str:
    """Return the list as in docs/simulator.md."""
    count = sum(bool(found.rule) for _, found in rows)
    lines = [
        TITLE,
        "",
        "`python tests/simulation/mutating.py --hunt` puts these defects into the code one at a time. It plays seeds",
        f"from 1 on, {SECONDS} virtual seconds each and {SEEDS_MAX} at most. For a row that names clients, the plans",
        "have only these, a producer and two consumers.",
        "",
        f"Seeds found {count} of the {len(rows)} defects. For these, the last column has the rule of the simulator",
        "that broke. For the others it has a rule of the [specification](spec/README.md), and a test that fails with",
        "the defect. *Not in 12* means that twelve seeds did not find the defect. A dash means that no seeds were",
        "played.",
        "",
        "| defect | weather | seeds needed | found by |",
        "|---|---|---|---|",
    ]
    for mutation, found in rows:
        cells = (mutation.name, place_of(mutation), needed(found), found_by(mutation, found))
        lines.append("| " + " | ".join(cells).rstrip() + " |")
    return "\n".join(lines) + "\n"


def place_of(mutation: Mutation) -> str:
    """Return the weather and the clients of a defect, as in the list."""
    where = mutation.weather or "any"
    return where + (f", with {mutation.client.replace('+', 's, ')}s" if mutation.client else "")


def needed(found: Found) -> str:
    """Return how many seeds a hunt needed, as in the list."""
    if found.rule:
        return str(found.seeds)
    return f"not in {found.seeds}" if found.seeds else "–"


def found_by(mutation: Mutation, found: Found) -> str:
    """Return the rule of the simulator that broke. If none did, return a rule of docs/spec, and a test."""
    if found.rule or mutation.name not in FOUND_BY_TEST:
        return found.rule
    rule, test = FOUND_BY_TEST[mutation.name]
    return f"spec {rule}: `{test}`"


def write_page(text: str) -> None:
    """Put the list into its place on the page."""
    page = PAGE.read_text(encoding="utf-8")
    before, title, after = page.partition(TITLE)
    _, next_title, rest = after.partition("\n## ") if title else ("", "", "")
    PAGE.write_text(before.rstrip() + "\n\n" + text + (next_title + rest if rest else ""), encoding="utf-8")


def main() -> int:
    """Look for all defects, or for those whose names contain a word. Return 1 if one is missed."""
    parser = argparse.ArgumentParser(description="Look for deliberate defects with the simulator.")
    parser.add_argument("words", nargs="*", help="only those whose names contain one of these")
    parser.add_argument("--hunt", action="store_true", help="hunt all, and write the list in docs/simulator.md")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="so many at most for each")
    parser.add_argument("--jobs", type=int, default=1, help="so many at a time")
    parser.add_argument("--state", type=Path, help="note results here, and take over those that are there")
    chosen = parser.parse_args()
    if not chosen.hunt and not chosen.words:
        parser.error("--hunt, or words of names")
    mutations = [
        mutation for mutation in MUTATIONS if not chosen.words or any(word in mutation.name for word in chosen.words)
    ]
    rows = hunt_all(mutations, chosen.seeds, chosen.jobs, chosen.state)
    if chosen.hunt and not chosen.words:
        write_page(table(rows))
    return int(not all(found.rule for _, found in rows))


if __name__ == "__main__":
    sys.exit(main())
