"""ADDJOB … KEY: one job per key, as long as nodes can ask each other: ISKEY, KEYIS, OUTCOME, OUTCOME_IS.

Before a node creates a job with a key, it asks every linked node whether the key is used (ISKEY). It creates the job
only when all of them have answered that they don't know the key (KEYIS without an id). A node that knows the key
answers with the id of the key's job. It *names* a job in this way only when the job certainly exists. So a node delays
its answer in three cases:

* Its own job with that key waits for copies. The answer waits until the creation has succeeded or failed.
* It asks about the key itself, and its id is the lower one. The answer waits until its own question has an outcome. Of
  two nodes that ask, the one with the higher id waits: it answers "not known", and also asks the node with the lower
  id.
* It has a copy and hasn't heard whether the creation succeeded. It asks the creator (OUTCOME), and the answer waits for
  the creator's OUTCOME_IS. If the creation failed, the creator has sent a DELJOB before that. So a copy that is still
  here after OUTCOME_IS exists.

An answer is therefore final, and a node that asks waits for answers only. The *callers* of a node are its ADDJOBs that
wait for the same key. The node asks on behalf of the first caller. If that caller's job is not created, the node asks
all nodes again, for the next caller. If a link to or from a node that was asked breaks, it asks all nodes again, too.
Unanswered questions are repeated, because a node that is loading its journal does not receive them.

A node that could not be asked may know the key. In that case there are two jobs, which are never merged. An
at-most-once job must not exist twice, so its ADDJOB is refused instead (-UNREACHABLE).

Two nodes that couldn't ask each other may both send copies to a third node. A node that knows another job with the key
refuses the copy of a new one. The creator of the refused copy drops its job and asks again.

Every change of a job with a key adds the job's id to `broker.producers.key_events`. At the end of the turn, `settle`
finds the nodes and producers that waited for the change.

With REPLACE (spec TP6), a used key does not end the search: if the key's job still waits for its DELAY, the new job
takes its place. So the node asks all other nodes and waits for all answers. A KEYIS that names a job says whether that
job waits for its DELAY. Two nodes that both want to replace the job are ordered by id, as above. While the new job
waits for copies, answers to other nodes wait as well. Afterwards replacing.py cancels the old job.

JOBID asks the same question and creates no job (`look_up`). Spec K2, K3, K4, K5, K7, Z5.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final

from cluster_bus.messages import ISKEY, KEYIS, OUTCOME, OUTCOME_IS
from cluster_bus.node import Node
from disque_py.core import open_questions, producer_waits, replication, stalling, windows
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import CommandError
from disque_py.core.ids import ID_BYTES, creator_of, is_valid_id
from disque_py.core.job import ACTIVE, GONE, QUEUED, WAIT_REPL, Handover, Job, Replication, Wanted, memory_of
from disque_py.core.job_attributes import WINDOW
from disque_py.core.keys import KEY_AT, KEY_END, KEY_LENGTH
from disque_py.resp.replies import error

REPEAT_MS: Final = 1_000
# JOBID waits this long for answers.
LOOK_UP_MS: Final = 1_000
LOOK_UP_UNREACHABLE: Final = "UNREACHABLE The key may be used on a node that can't be asked now"
# A caller's deadline is checked this often. A scheduled check keeps the caller in memory, so none is far in the future.
WATCH_MS: Final = 1_000
# While memory is full, at most this many callers may ask other nodes about keys.
CALLERS_SPARE: Final = 1_000
UNREACHABLE: Final = "UNREACHABLE The key may be used on a node that can't be asked now, and RETRY is 0"

# Creates the job and returns the reply, or None if its client waits. In that case the reply goes into the slot.
Create = Callable[[Broker, Client, Job, list[bytes | None] | None], bytes | None]


class Search:
    """The state of this node's question about one key.

    callers      ADDJOBs of this node that wait for the answer, as jobs that are not registered yet (work: Wanted)
    asked        nodes that were asked for the first caller -> number of the question; empty: none yet
    unanswered   nodes that have not answered yet -> number of the question
    answers_due  nodes that asked us and must be told the outcome -> number of their question
    making       the job of a caller while it waits for its copies; None: there is none
    wanted       the Wanted of `making`, in case its creation has to begin again
    named        id of a job that has the key elsewhere -> whether it waits for its DELAY (REPLACE)
    settled      ids of such jobs of which a node with the job has said that they don't wait
    replaced     ids of jobs that other jobs have replaced
    creator      the node that was asked whether our copy's job exists; None: no node was
    """

    __slots__ = (
        "answers_due",
        "asked",
        "callers",
        "creator",
        "making",
        "named",
        "replaced",
        "settled",
        "unanswered",
        "wanted",
    )

    def __init__(self) -> None:
        self.callers: list[Job] = []
        self.asked: dict[Node, int] = {}
        self.unanswered: dict[Node, int] = {}
        self.named: dict[bytes, bool] = {}
        self.replaced: dict[bytes, None] = {}
        self.settled: dict[bytes, None] = {}
        self.answers_due: dict[Node, int] = {}
        self.making: Job | None = None
        self.wanted: Wanted | None = None
        self.creator: Node | None = None


class Lookup:
    """A question about a key for a client that creates nothing (JOBID).

    unanswered   nodes that have not answered yet
    missed       whether a node can't answer any more, because its link broke
    """

    __slots__ = ("chars", "client", "missed", "named", "unanswered")

    def __init__(self, client: Client, chars: bytes, nodes: tuple[Node, ...]) -> None:
        self.client = client
        self.chars = chars
        self.unanswered: dict[Node, None] = dict.fromkeys(nodes)
        self.named = b""
        self.missed = False


# -- callers ----------------------------------------------------------------------------------------


def add(
    broker: Broker, client: Client, job: Job, timeout_ms: int, create: Create, slot: list[bytes | None] | None = None
) -> bytes | None:
    """Handle an ADDJOB with a key. Return the reply, or None if its client waits. CommandError if it is refused.

    slot   the reply slot in which the client waits already, if it does (fanout.py)
    """
    chars = job.id[KEY_AT:KEY_END]
    search = broker.producers.searches.get(chars)
    if search is None:
        named = broker.producers.keys.named(chars)
        if named and not _is_open(broker, named) and not windows.is_replacing(job) and not _may_change(broker, named):
            return b"+%b\r\n" % named
        if not named and not broker.cluster.linked:
            return _create_alone(broker, client, job, timeout_ms, create, slot)
        search = _search(broker, chars)
    if slot is None:
        slot = producer_waits.wait_for_copies(client, job)
        broker.waits.blocked_count += 1
    deadline_ms = broker.now_ms + timeout_ms if timeout_ms else 0
    job.work = Wanted(client, slot, deadline_ms, create)
    search.callers.append(job)
    caller_in(broker, job)
    broker.producers.key_events[job.id] = None
    if deadline_ms:
        _watch(broker, job, deadline_ms)
    return None


def _may_change(broker: Broker, job_id: bytes) -> bool:
    """Return whether another node may have replaced this job without our knowing yet."""
    job = broker.find(job_id)
    if job is None or not windows.is_replacing(job) or not broker.cluster.linked:
        return False
    return windows.is_delayed(broker, job)


def caller_in(broker: Broker, job: Job) -> None:
    """Count a caller that starts to wait. Its job takes memory although it is not registered yet."""
    broker.producers.caller_count += 1
    broker.used_memory += memory_of(job)


def is_known(broker: Broker, chars: bytes) -> bool:
    """Return whether an ADDJOB with this key is answered immediately, with the id of the key's job."""
    named = broker.producers.keys.named(chars)
    return bool(named) and chars not in broker.producers.searches and not _is_open(broker, named)


def may_ask(broker: Broker) -> bool:
    """Return whether other nodes may be asked about a key although memory is full here."""
    return bool(broker.cluster.linked) and broker.producers.caller_count < CALLERS_SPARE


def _create_alone(
    broker: Broker, client: Client, job: Job, timeout_ms: int, create: Create, slot: list[bytes | None] | None
) -> bytes | None:
    """Create the job immediately, because there is no node to ask."""
    _refuse_unsure(broker, job, {})
    reply = create(broker, client, job, slot)
    if reply is None and _is_waiting(job):
        search = _search(broker, job.id[KEY_AT:KEY_END])
        search.making = job
        deadline_ms = broker.now_ms + timeout_ms if timeout_ms else 0
        search.wanted = Wanted(client, client.waiting_jobs[job], deadline_ms, create)
    return reply


def _watch(broker: Broker, job: Job, deadline_ms: int) -> None:
    """Schedule the next check of a caller's deadline, at most WATCH_MS from now."""
    at_ms = min(deadline_ms, broker.now_ms + WATCH_MS)
    broker.schedule.call_at(at_ms, partial(_on_deadline, broker, job))


def _on_deadline(broker: Broker, job: Job) -> None:
    work = job.work
    if not isinstance(work, Wanted) or work.is_over:
        return
    if work.deadline_ms > broker.now_ms:
        _watch(broker, job, work.deadline_ms)
        return
    broker.stats.replication_timeouts += 1
    _answer(broker, job, work, producer_waits.NOREPL_TIMEOUT)


def _answer(broker: Broker, job: Job, work: Wanted, reply: bytes) -> None:
    """Answer a caller and end its wait."""
    work.is_over = True
    producer_waits.caller_out(broker, job)
    job.body = b""  # A scheduled check of the deadline may keep the object for a while.
    broker.producers.key_events[job.id] = None
    producer_waits.answer(broker, work.client, job, work.slot, reply)


def _refuse_unsure(broker: Broker, job: Job, asked: dict[Node, int]) -> None:
    """Refuse an at-most-once job if a node that can't be asked may know the key. Such a job must not exist twice."""
    if job.terms.retry_ms:
        return
    for node in broker.members():
        if node not in asked and not node.is_newcomer:
            raise CommandError(UNREACHABLE)


# -- look-ups -----------------------------------------------------------------------------------------


def look_up(broker: Broker, client: Client, keys: list[bytes]) -> Generator[None, None, list[bytes]]:
    """Return the id of each key's job, empty if no node knows one. CommandError if a node did not answer. Spec Z5.

    For the other nodes this question looks like that of a node that wants to create the job. So their answers are final
    here, too, and one of them may wait until a creation in progress has an outcome. Meanwhile this node answers their
    questions as if it had asked none.
    """
    producers = broker.producers
    found: list[bytes] = []
    asked: list[tuple[int, Lookup]] = []
    linked = broker.cluster.linked
    until_ms = broker.now_ms + LOOK_UP_MS
    for chars in keys:
        named = producers.keys.named(chars)
        if named and not _is_open(broker, named):
            found.append(named)
            continue
        found.append(b"")
        lookup = Lookup(client, chars, linked)
        asked.append((len(found) - 1, lookup))
        if linked:
            producers.question_number += 1
            producers.lookups[producers.question_number] = lookup
            broker.send(linked, ISKEY, (producers.question_number, chars))
    if producers.lookups:
        # If the client waits for something else by then, it checks its condition once more and continues to wait.
        broker.schedule.call_at(until_ms, partial(stalling.resume_client, broker, client))

    def is_over() -> bool:
        return broker.now_ms >= until_ms or all(lookup.named or not lookup.unanswered for _, lookup in asked)

    yield from stalling.until(broker, client, is_over)
    forget_client(broker, client)
    is_node_missing = any(node not in linked and not node.is_newcomer for node in broker.members())
    for at, lookup in asked:
        if not lookup.named and (lookup.missed or lookup.unanswered or is_node_missing):
            raise CommandError(LOOK_UP_UNREACHABLE)
        found[at] = lookup.named
    return found


def forget_client(broker: Broker, client: Client) -> None:
    """End the look-ups of a client that has disconnected or waits no longer."""
    open_questions.forget_client(broker.producers.lookups, client)


def _heard(broker: Broker, lookup: Lookup, sender: Node, chars: bytes, named: bytes) -> None:
    if chars != lookup.chars or (named and named[KEY_AT:KEY_END] != chars):
        raise ValueError("an answer about another key")
    if sender in lookup.unanswered:
        del lookup.unanswered[sender]
        lookup.named = lookup.named or named
        if named or not lookup.unanswered:
            stalling.resume_client(broker, lookup.client)


# -- local knowledge ----------------------------------------------------------------------------------


def _search(broker: Broker, chars: bytes) -> Search:
    search = broker.producers.searches.get(chars)
    if search is None:
        if not broker.producers.is_repeating:
            broker.producers.is_repeating = True
            broker.schedule.call_at(broker.now_ms + REPEAT_MS, partial(_repeat, broker))
        search = broker.producers.searches[chars] = Search()
    return search


def _is_open(broker: Broker, job_id: bytes) -> bool:
    """Return whether the creation of this known job may still fail. If not, the caller may name the job.

    A copy whose creator can't be asked may be named, and exists from then on. A late DELJOB, which travels on the
    creator's own link, does not undo that (acks.on_deljob). But there may be too few copies of the job (spec RC2).
    """
    job = broker.find(job_id)
    if job is None:
        return False
    if job.state == WAIT_REPL or (type(job.work) is Handover and job.work.client is not None):
        return True
    if _creator_to_ask(broker, job) is not None:
        return True
    if job.attributes is not None and job.attributes.is_open:
        job.attributes.is_open = False
        broker.repairs.recount(job)
    return False


def _creator_to_ask(broker: Broker, job: Job) -> Node | None:
    """Return the node to ask whether our copy's job exists. None if it certainly does, or if no node can tell.

    The copy may already wait in a queue, because its retry timer fired first. Once a consumer has received the job, it
    exists.
    """
    attributes = job.attributes
    if attributes is None or not attributes.is_open or job.attempt or job.is_delivered:
        return None
    if job.state != ACTIVE and job.state != QUEUED:
        return None
    return creator_of(broker.cluster.linked, job.id)


# -- outcomes -----------------------------------------------------------------------------------------


def settle(broker: Broker) -> None:
    """Continue the searches for those keys whose jobs changed in this turn."""
    while broker.producers.key_conflicts:
        _begin_again(broker, broker.producers.key_conflicts.pop())
    while broker.producers.key_events:
        events, broker.producers.key_events = broker.producers.key_events, {}
        looked: dict[bytes, None] = {}  # Thousands of callers may wait for one key. One look serves all of them.
        for job_id in events:
            waiting = broker.producers.outcome_waits.get(job_id)
            if waiting is not None and not _is_undecided(broker, job_id):
                del broker.producers.outcome_waits[job_id]
                for node in waiting:
                    broker.send(broker.sets.only(node), OUTCOME_IS, (job_id,))
            chars = job_id[KEY_AT:KEY_END]
            search = broker.producers.searches.get(chars)
            if search is not None and chars not in looked:
                looked[chars] = None
                _look(broker, chars, search)


def _look(broker: Broker, chars: bytes, search: Search) -> None:
    """Take a search as far as it can go now."""
    search.callers = [job for job in search.callers if isinstance(job.work, Wanted) and not job.work.is_over]
    if search.making is not None and not _is_waiting(search.making):
        _made(broker, search.making)
        search.making = search.wanted = None
        search.asked = {}
    while True:
        named = broker.producers.keys.named(chars)
        if search.callers and _asks_all(broker, search, named) and not (named and _is_open(broker, named)):
            search.creator = None
            if not _decide(broker, chars, search, named):
                return
            continue
        if named:
            if not _is_open(broker, named):
                if _end(broker, chars, search, named):
                    continue
            elif search.making is None:
                _ask_creator(broker, search, named)
            return
        search.creator = None
        if not search.asked:
            # No node was asked yet, or the nodes were asked and the creation failed.
            _tell(broker, chars, search, b"")
            if not search.callers:
                del broker.producers.searches[chars]
                return
            _ask(broker, chars, search)
        if not search.callers:
            _end(broker, chars, search, b"")
            return
        if search.unanswered:
            return
        _make(broker, search)


def _asks_all(broker: Broker, search: Search, named: bytes) -> bool:
    """Return whether the first caller needs the answers of all nodes: its job or a known one replaces another."""
    job = search.callers[0]
    if windows.is_replacing(job) or search.named:
        return True
    known = broker.find(named) if named else None
    return known is not None and windows.is_replacing(known) and windows.is_delayed(broker, known)


def _decide(broker: Broker, chars: bytes, search: Search, named: bytes) -> bool:
    """Continue for a first caller that needs the answers of all nodes. Return whether there is more to do."""
    if search.making is not None:
        return False
    if not search.asked:
        _tell(broker, chars, search, named)
        _ask(broker, chars, search)
    if search.unanswered:
        return False
    job = search.callers[0]
    found = dict(search.named)
    if named:
        known = broker.find(named)
        is_delayed = known is not None and windows.is_delayed(broker, known)
        # Another node with the job may know it better. It certainly does if this node has no copy.
        if known is not None or named not in found:
            found[named] = is_delayed and named not in search.settled
        search.replaced.update(dict.fromkeys(windows.replaced_ids(known) if known is not None else []))
    found = {
        other: is_delayed and other not in search.settled
        for other, is_delayed in found.items()
        if other not in search.replaced
    }
    others = [other for other, is_delayed in found.items() if not is_delayed]
    if not windows.is_replacing(job) and found:
        others = others or list(found)
    if others:
        search.callers.pop(0)
        search.asked = {}
        search.named = {}
        work = job.work
        if isinstance(work, Wanted) and not work.is_over:
            _answer(broker, job, work, b"+%b\r\n" % others[0])
        return True
    if windows.is_replacing(job):
        attributes = job.attributes
        assert attributes is not None
        before = attributes.size
        attributes.set_extra(WINDOW, [windows.number(job), *found])
        broker.used_memory += attributes.size - before
    is_waiting = _make(broker, search)
    if not is_waiting:
        _made(broker, job)
        search.asked = {}
        search.named = {}
    return not is_waiting


def _made(broker: Broker, job: Job) -> None:
    """Have the jobs canceled that this new job replaces, if it was created."""
    if job.state != GONE and broker.find(job.id) is job:
        for old in windows.replaced_ids(job):
            broker.producers.replaced.append((old, job.id))


def _is_waiting(job: Job) -> bool:
    return job.state == WAIT_REPL or (type(job.work) is Handover and job.work.client is not None)


def _make(broker: Broker, search: Search) -> bool:
    """Create the first caller's job, because no node that could be asked knows the key. Return whether it waits."""
    job = search.callers.pop(0)
    wanted = job.work
    assert isinstance(wanted, Wanted)
    producer_waits.caller_out(broker, job)
    job.work = None
    try:
        _refuse_unsure(broker, job, search.asked)
        reply = wanted.create(broker, wanted.client, job, wanted.slot)
    except CommandError as refused:
        reply = error(refused.text)
    if reply is not None:
        producer_waits.answer(broker, wanted.client, job, wanted.slot, reply)
    elif _is_waiting(job):
        search.making = job
        search.wanted = wanted
        return True
    return False


def _end(broker: Broker, chars: bytes, search: Search, named: bytes) -> bool:
    """End a search: answer its callers and the nodes that asked. An existing job uses the key, or no caller is left.

    Return whether callers are left that want to replace that job.
    """
    _tell(broker, chars, search, named)
    left = [job for job in search.callers if windows.is_replacing(job)]
    for job in search.callers:
        work = job.work
        if isinstance(work, Wanted) and not work.is_over and not windows.is_replacing(job):
            _answer(broker, job, work, b"+%b\r\n" % named)
    search.callers = left
    search.asked = {}
    search.named = {}
    search.unanswered = {}
    if not left:
        broker.producers.searches.pop(chars, None)
    return bool(left)


def _tell(broker: Broker, chars: bytes, search: Search, named: bytes) -> None:
    for node, number in search.answers_due.items():
        broker.send(broker.sets.only(node), KEYIS, _answer_of(broker, number, chars, named))
    search.answers_due = {}


def _answer_of(broker: Broker, number: int, chars: bytes, named: bytes) -> tuple[Any, ...]:
    """Return a KEYIS: the job that has the key, whether it waits for its DELAY, and the jobs that it replaced.

    If it says where the job is, it has all fields, because a newer node may send more of them behind these. If only the
    key is known, the last two are absent, because older nodes would take nil for 0.
    """
    if not named:
        return (number, chars, b"")
    job = broker.find(named)
    if job is not None and windows.is_delayed(broker, job):
        return (number, chars, named, 1, windows.replaced_ids(job))
    is_settled = job is not None or named in broker.tombstones
    return (number, chars, named, 0, []) if is_settled else (number, chars, named)


def _begin_again(broker: Broker, job: Job) -> None:
    """Drop our job and make its caller ask again, because a node refused a copy: another job has this key."""
    work = job.work
    if job.state != WAIT_REPL or not isinstance(work, Replication):
        return
    chars = job.id[KEY_AT:KEY_END]
    search = broker.producers.searches.get(chars)
    wanted = search.wanted if search is not None and search.making is job else None
    if search is None or wanted is None:
        replication.give_up(broker, job, producer_waits.NOREPL_REFUSED)
        return
    client = work.client
    slot = client.waiting_jobs[job]
    again = job.again(broker.ids.keyed(chars, job.id))  # Before `give_up`, which may free its body.
    replication.give_up(broker, job, None)
    client.waiting_jobs[again] = slot
    broker.waits.blocked_count += 1
    fan = broker.producers.fans.pop(job, None)
    if fan is not None:
        broker.producers.fans[again] = fan
        fan.goes_on_as(job, again)
    again.work = Wanted(client, slot, wanted.deadline_ms, wanted.create)
    search.callers.insert(0, again)
    caller_in(broker, again)
    search.making = search.wanted = None
    search.asked = {}
    if wanted.deadline_ms:
        _watch(broker, again, wanted.deadline_ms)
    broker.producers.key_events[again.id] = None


# -- asking -------------------------------------------------------------------------------------------


def _ask(broker: Broker, chars: bytes, search: Search) -> None:
    """Ask every linked node, leaving ones included."""
    broker.producers.question_number += 1
    linked = broker.cluster.linked
    search.named = {}
    search.settled = {}
    search.replaced = {}
    search.asked = dict.fromkeys(linked, broker.producers.question_number)
    search.unanswered = dict(search.asked)
    if linked:
        broker.send(linked, ISKEY, (broker.producers.question_number, chars))


def _ask_one(broker: Broker, chars: bytes, search: Search, node: Node) -> None:
    broker.producers.question_number += 1
    search.asked[node] = search.unanswered[node] = broker.producers.question_number
    broker.send(broker.sets.only(node), ISKEY, (broker.producers.question_number, chars))


def _ask_creator(broker: Broker, search: Search, job_id: bytes) -> None:
    job = broker.find(job_id)
    node = _creator_to_ask(broker, job) if job is not None else None
    if node is not None and search.creator is not node:
        search.creator = node
        broker.send(broker.sets.only(node), OUTCOME, (job_id,))


def on_iskey(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Answer whether this node knows a key. The module's docstring says when the answer waits."""
    only = broker.sets.only(sender)
    for number, chars, *_ in items:
        if type(number) is not int or type(chars) is not bytes or len(chars) != KEY_LENGTH:
            raise ValueError("a question about a malformed key")
        named = broker.producers.keys.named(chars)
        search = broker.producers.searches.get(chars)
        is_replacing = search is not None and bool(search.callers) and windows.is_replacing(search.callers[0])
        if named and not _is_open(broker, named) and not is_replacing:
            broker.send(only, KEYIS, _answer_of(broker, number, chars, named))
        elif named and _is_open(broker, named):
            search = _search(broker, chars)
            search.answers_due[sender] = number
            _look(broker, chars, search)
        elif search is None or not search.callers:
            broker.send(only, KEYIS, (number, chars, b""))
        elif broker.me.id < sender.id:
            search.answers_due[sender] = number
        else:
            broker.send(only, KEYIS, _answer_of(broker, number, chars, named))
            if search.asked and sender.is_linked:
                _ask_one(broker, chars, search, sender)


def on_keyis(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note a node's final answer about a key: the id of its job, or that it knows none."""
    for number, chars, named, *later in items:
        if type(named) is not bytes or (named and (len(named) != ID_BYTES or not is_valid_id(named))):
            raise ValueError("an answer with a malformed id")
        lookup = broker.producers.lookups.get(number)
        if lookup is not None:
            _heard(broker, lookup, sender, chars, named)
            continue
        search = broker.producers.searches.get(chars)
        if search is None or search.making is not None or not search.callers:
            broker.stats.ignored("answer about a key that no producer waits for")
        elif named and not windows.is_replacing(search.callers[0]) and not (later and later[0] == 1):
            if _end(broker, chars, search, named):
                broker.producers.key_events[named] = None
        elif search.unanswered.get(sender) == number:
            del search.unanswered[sender]
            if named:
                search.named[named] = search.named.get(named, False) or bool(later and later[0] == 1)
                if later and later[0] == 0:
                    search.settled[named] = None  # A node without the job may have given it away.
                for other in later[1] if len(later) > 1 else ():
                    search.replaced[other] = None
            if not search.unanswered:
                _look(broker, chars, search)


def on_outcome(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Answer a node that has a copy of our job and asks whether the job exists, as soon as that is decided."""
    for job_id, *_ in items:
        if _is_undecided(broker, job_id):
            broker.producers.outcome_waits.setdefault(job_id, {})[sender] = None
        else:
            broker.send(broker.sets.only(sender), OUTCOME_IS, (job_id,))


def _is_undecided(broker: Broker, job_id: bytes) -> bool:
    job = broker.find(job_id)
    return job is not None and job.state == WAIT_REPL


def on_outcome_is(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note that our copy's job exists. If its creation had failed, the creator would have sent a DELJOB before this."""
    for job_id, *_ in items:
        job = broker.find(job_id)
        if job is not None and job.attributes is not None:
            job.attributes.is_open = False
        broker.producers.key_events[job_id] = None


# -- links and time -----------------------------------------------------------------------------------


def on_link_up(broker: Broker, node: Node) -> None:
    """Ask a newly linked node, because it may know the keys of open searches."""
    for chars, search in broker.producers.searches.items():
        if search.callers and search.asked and search.making is None:
            _ask_one(broker, chars, search, node)


def on_link_lost(broker: Broker, node: Node) -> None:
    """For each search that asked this node, ask all nodes again. A link to or from it broke, so answers may be lost."""
    for lookup in open_questions.without(broker.producers.lookups, node).values():
        lookup.missed = True
        if not lookup.unanswered:
            stalling.resume_client(broker, lookup.client)
    for chars, search in list(broker.producers.searches.items()):
        if search.creator is node:
            search.creator = None
        elif node not in search.asked or search.making is not None:
            continue
        else:
            _ask(broker, chars, search)
        _look(broker, chars, search)


def _repeat(broker: Broker) -> None:
    """Repeat unanswered questions, because a node that is loading its journal does not receive them."""
    for chars, search in list(broker.producers.searches.items()):
        for node, number in search.unanswered.items():
            broker.send(broker.sets.only(node), ISKEY, (number, chars))
        search.creator = None
        _look(broker, chars, search)
    broker.producers.is_repeating = bool(broker.producers.searches)
    if broker.producers.is_repeating:
        broker.schedule.call_at(broker.now_ms + REPEAT_MS, partial(_repeat, broker))


def forget_all(broker: Broker) -> None:
    """Answer all callers and nodes that wait, because this node has forgotten all jobs (reset.py)."""
    searches, broker.producers.searches = broker.producers.searches, {}
    for chars, search in searches.items():
        _tell(broker, chars, search, b"")
        for job in search.callers:
            work = job.work
            if isinstance(work, Wanted) and not work.is_over:
                _answer(broker, job, work, producer_waits.NOREPL_REMOVED)
    broker.producers.keys.clear()
    broker.producers.key_events = {}
    broker.producers.key_conflicts = []
    broker.producers.outcome_waits = {}
