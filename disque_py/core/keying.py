"""ADDJOB … KEY: one job per key, as long as nodes can ask each other: ISKEY, KEYIS, OUTCOME, OUTCOME_IS.

Before a node creates a job with a key it asks every linked node whether the key is used (ISKEY), and creates only when
all have said that they don't know it (KEYIS with no id). Whoever knows names its job. Nothing is named before it is
sure to exist: a node that is asked puts its answer off

* while its own job with that key waits for copies: until that has an outcome;
* while it asks for the key itself, if its id is the lower one: until that has an outcome. Of two askers the higher one
  waits; it answers "not known" and puts the lower one on its own list;
* while it has a copy whose outcome it hasn't heard: until the creator said that there is one (OUTCOME). The creator's
  DELJOB for a job that came to nothing travels before that, so what is still here afterwards exists.

So an answer is a node's last word on the matter, and all that anybody waits for is answers. Callers of one node wait
for one another: the first is asked for, and if its job comes to nothing the next one has all asked anew. When a link
breaks to or from a node that was asked, all are asked again; unanswered questions are repeated, as a node that loads
its journal hears none. Who could not be asked may have the key: then there are two jobs, never merged, unless the job
is delivered at most once: such an ADDJOB is refused (-UNREACHABLE).

A copy of a new job is refused by a node that knows another job with its key: two nodes that couldn't ask each other
found a third. The creator drops its job and asks that node.

Whatever happens to a job with a key leaves its id in `broker.key_events`, and `settle` looks at the end of the turn
who waited for that. Spec K2, K3, K4, K5, K7.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from cluster_bus.messages import ISKEY, KEYIS, OUTCOME, OUTCOME_IS
from cluster_bus.node import Node
from disque_py.core import replication
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import CommandError
from disque_py.core.ids import ID_BYTES, is_valid_id
from disque_py.core.job import ACTIVE, QUEUED, WAIT_REPL, Handover, Job, Replication, Wanted, memory_of
from disque_py.core.keys import KEY_AT, KEY_END, KEY_LENGTH
from disque_py.resp import error

REPEAT_MS: Final = 1_000
# A caller that waits longer is looked at this often. What looks at it keeps it in memory, so this is short.
WATCH_MS: Final = 1_000
# While memory is full so many callers may ask other nodes whether a key is used.
CALLERS_SPARE: Final = 1_000
UNREACHABLE: Final = "UNREACHABLE The key may be used on a node that can't be asked now, and RETRY is 0"

# Makes the job: the reply, or None if its client waits. The slot, if there is one, is where the reply goes.
Create = Callable[[Broker, Client, Job, list[bytes | None] | None], bytes | None]


class Search:
    """What goes on here about one key.

    callers      ADDJOBs of this node that wait for the answer, as jobs that are not entered yet (work: Wanted)
    asked        nodes that were asked for the first of them -> number of the question; empty: nobody yet
    unanswered   those whose answer is due
    answers_due  nodes that asked us, and have to hear how it ends -> number of their question
    making       the job of a caller, waiting for its copies; None: none
    wanted       its Wanted, should it have to begin again
    creator      who was asked whether the copy that we have exists; None: nobody
    """

    __slots__ = ("answers_due", "asked", "callers", "creator", "making", "unanswered", "wanted")

    def __init__(self) -> None:
        self.callers: list[Job] = []
        self.asked: dict[Node, int] = {}
        self.unanswered: dict[Node, int] = {}
        self.answers_due: dict[Node, int] = {}
        self.making: Job | None = None
        self.wanted: Wanted | None = None
        self.creator: Node | None = None


# -- callers ----------------------------------------------------------------------------------------


def add(broker: Broker, client: Client, job: Job, timeout_ms: int, create: Create) -> bytes | None:
    """ADDJOB of a job with a key: the reply, or None if its client waits. CommandError refuses it."""
    chars = job.id[KEY_AT:KEY_END]
    search = broker.searches.get(chars)
    if search is None:
        named = broker.keys.named(chars)
        if named and not _is_open(broker, named):
            return b"+%b\r\n" % named
        if not named and not broker.cluster.linked:
            return _create_alone(broker, client, job, timeout_ms, create)
        search = _search(broker, chars)
    slot = replication.wait_for_copies(client, job)
    broker.blocked_count += 1
    deadline_ms = broker.now_ms + timeout_ms if timeout_ms else 0
    job.work = Wanted(client, slot, deadline_ms, create)
    search.callers.append(job)
    caller_in(broker, job)
    broker.key_events[job.id] = None
    if deadline_ms:
        _watch(broker, job, deadline_ms)
    return None


def caller_in(broker: Broker, job: Job) -> None:
    """A caller waits from now on, and its job takes memory although it is not entered yet."""
    broker.caller_count += 1
    broker.used_memory += memory_of(job)


def is_known(broker: Broker, chars: bytes) -> bool:
    """Whether an ADDJOB with this key is answered at once, with the id of its job."""
    named = broker.keys.named(chars)
    return bool(named) and chars not in broker.searches and not _is_open(broker, named)


def may_ask(broker: Broker) -> bool:
    """Whether other nodes may be asked about a key although memory is full here."""
    return bool(broker.cluster.linked) and broker.caller_count < CALLERS_SPARE


def _create_alone(broker: Broker, client: Client, job: Job, timeout_ms: int, create: Create) -> bytes | None:
    """There is nobody to ask."""
    _refuse_unsure(broker, job, {})
    reply = create(broker, client, job, None)
    if reply is None and _is_waiting(job):
        search = _search(broker, job.id[KEY_AT:KEY_END])
        search.making = job
        deadline_ms = broker.now_ms + timeout_ms if timeout_ms else 0
        search.wanted = Wanted(client, client.waiting_jobs[job], deadline_ms, create)
    return reply


def _watch(broker: Broker, job: Job, deadline_ms: int) -> None:
    """See to the caller's deadline. Looked at before if that is far: a task keeps the job, which may long be over."""
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
    _answer(broker, job, work, replication.NOREPL_TIMEOUT)


def _answer(broker: Broker, job: Job, work: Wanted, reply: bytes) -> None:
    """The caller waits no longer."""
    work.is_over = True
    replication.caller_out(broker, job)
    job.body = b""  # A watch may name it for a while.
    broker.key_events[job.id] = None
    replication.answer(broker, work.client, job, work.slot, reply)


def _refuse_unsure(broker: Broker, job: Job, asked: dict[Node, int]) -> None:
    """An at-most-once job must not exist twice: whoever can't be asked might have it."""
    if job.retry_ms:
        return
    for node in broker.members():
        if node not in asked and not node.is_newcomer:
            raise CommandError(UNREACHABLE)


# -- what is known here -------------------------------------------------------------------------------


def _search(broker: Broker, chars: bytes) -> Search:
    search = broker.searches.get(chars)
    if search is None:
        if not broker.searches:
            broker.schedule.call_at(broker.now_ms + REPEAT_MS, partial(_repeat, broker))
        search = broker.searches[chars] = Search()
    return search


def _is_open(broker: Broker, job_id: bytes) -> bool:
    """Whether it is not certain yet that this job, which is known here, exists. Else it is about to be named.

    A copy whose creator can't be asked is named, and exists from then on: a word of its creator's that comes late, on a
    link that goes the other way, does not take it back (acks.on_deljob).
    """
    job = broker.find(job_id)
    if job is None:
        return False
    if job.state == WAIT_REPL or (type(job.work) is Handover and job.work.client is not None):
        return True
    if _creator_to_ask(broker, job) is not None:
        return True
    if job.traits is not None:
        job.traits.is_open = False
    return False


def _creator_to_ask(broker: Broker, job: Job) -> Node | None:
    """Whoever must be asked whether the copy that we have exists; None: it does, or nobody can say.

    A copy may wait in a queue by then, as its retry came first; it exists as soon as somebody got it.
    """
    traits = job.traits
    if traits is None or not traits.is_open or job.attempt or job.is_delivered:
        return None
    if job.state != ACTIVE and job.state != QUEUED:
        return None
    name = job.id[2:10]
    for node in broker.cluster.linked:
        if node.name[:8] == name:
            return node
    return None


# -- how it ends --------------------------------------------------------------------------------------


def settle(broker: Broker) -> None:
    """End of a turn: something happened to jobs with these keys, or was heard about them."""
    while broker.key_conflicts:
        _begin_again(broker, broker.key_conflicts.pop())
    while broker.key_events:
        events, broker.key_events = broker.key_events, {}
        looked: dict[bytes, None] = {}  # Thousands may wait for one key: one look is enough for all of them.
        for job_id in events:
            waiting = broker.outcome_waits.get(job_id)
            if waiting is not None and not _is_undecided(broker, job_id):
                del broker.outcome_waits[job_id]
                for node in waiting:
                    broker.send(broker.sets.only(node), OUTCOME_IS, (job_id,))
            chars = job_id[KEY_AT:KEY_END]
            search = broker.searches.get(chars)
            if search is not None and chars not in looked:
                looked[chars] = None
                _look(broker, chars, search)


def _look(broker: Broker, chars: bytes, search: Search) -> None:
    """Go on with a search as far as it goes."""
    search.callers = [job for job in search.callers if isinstance(job.work, Wanted) and not job.work.is_over]
    if search.making is not None and not _is_waiting(search.making):
        search.making = search.wanted = None
        search.asked = {}
    while True:
        named = broker.keys.named(chars)
        if named:
            if not _is_open(broker, named):
                _end(broker, chars, search, named)
            elif search.making is None:
                _ask_creator(broker, search, named)
            return
        search.creator = None
        if not search.asked:
            # Nobody was asked yet, or what was made of it came to nothing.
            _tell(broker, chars, search, b"")
            if not search.callers:
                del broker.searches[chars]
                return
            _ask(broker, chars, search)
        if not search.callers:
            _end(broker, chars, search, b"")
            return
        if search.unanswered:
            return
        _make(broker, search)


def _is_waiting(job: Job) -> bool:
    return job.state == WAIT_REPL or (type(job.work) is Handover and job.work.client is not None)


def _make(broker: Broker, search: Search) -> None:
    """Nobody who could be asked knows the key: create the job of the first caller."""
    job = search.callers.pop(0)
    wanted = job.work
    assert isinstance(wanted, Wanted)
    replication.caller_out(broker, job)
    job.work = None
    try:
        _refuse_unsure(broker, job, search.asked)
        reply = wanted.create(broker, wanted.client, job, wanted.slot)
    except CommandError as refused:
        reply = error(refused.text)
    if reply is not None:
        replication.answer(broker, wanted.client, job, wanted.slot, reply)
    elif _is_waiting(job):
        search.making = job
        search.wanted = wanted


def _end(broker: Broker, chars: bytes, search: Search, named: bytes) -> None:
    """This key is used by a job that exists, or nobody wants it any more: all who wait hear so."""
    broker.searches.pop(chars, None)
    _tell(broker, chars, search, named)
    for job in search.callers:
        work = job.work
        if isinstance(work, Wanted) and not work.is_over:
            _answer(broker, job, work, b"+%b\r\n" % named)


def _tell(broker: Broker, chars: bytes, search: Search, named: bytes) -> None:
    for node, number in search.answers_due.items():
        broker.send(broker.sets.only(node), KEYIS, (number, chars, named))
    search.answers_due = {}


def _begin_again(broker: Broker, job: Job) -> None:
    """A node refused a copy because it knows another job with this key: ours goes, and its caller asks that node."""
    work = job.work
    if job.state != WAIT_REPL or not isinstance(work, Replication):
        return
    chars = job.id[KEY_AT:KEY_END]
    search = broker.searches.get(chars)
    wanted = search.wanted if search is not None and search.making is job else None
    if search is None or wanted is None:
        replication.give_up(broker, job, replication.NOREPL_REFUSED)
        return
    client = work.client
    slot = client.waiting_jobs[job]
    again = job.again(broker.ids.keyed(chars, job.id))  # Before it is given up, which may cost it its body.
    replication.give_up(broker, job, None)
    client.waiting_jobs[again] = slot
    broker.blocked_count += 1
    again.work = Wanted(client, slot, wanted.deadline_ms, wanted.create)
    search.callers.insert(0, again)
    caller_in(broker, again)
    search.making = search.wanted = None
    search.asked = {}
    if wanted.deadline_ms:
        _watch(broker, again, wanted.deadline_ms)
    broker.key_events[again.id] = None


# -- asking -------------------------------------------------------------------------------------------


def _ask(broker: Broker, chars: bytes, search: Search) -> None:
    """Ask every linked node, leaving ones included."""
    broker.question_number += 1
    linked = broker.cluster.linked
    search.asked = dict.fromkeys(linked, broker.question_number)
    search.unanswered = dict(search.asked)
    if linked:
        broker.send(linked, ISKEY, (broker.question_number, chars))


def _ask_one(broker: Broker, chars: bytes, search: Search, node: Node) -> None:
    broker.question_number += 1
    search.asked[node] = search.unanswered[node] = broker.question_number
    broker.send(broker.sets.only(node), ISKEY, (broker.question_number, chars))


def _ask_creator(broker: Broker, search: Search, job_id: bytes) -> None:
    job = broker.find(job_id)
    node = _creator_to_ask(broker, job) if job is not None else None
    if node is not None and search.creator is not node:
        search.creator = node
        broker.send(broker.sets.only(node), OUTCOME, (job_id,))


def on_iskey(broker: Broker, sender: Node, items: list[Any]) -> None:
    """A node wants to create a job with this key: do we know it? (See the module for when the answer has to wait.)"""
    only = broker.sets.only(sender)
    for number, chars, *_ in items:
        if type(number) is not int or type(chars) is not bytes or len(chars) != KEY_LENGTH:
            raise ValueError("a question for a key that is none")
        named = broker.keys.named(chars)
        search = broker.searches.get(chars)
        if named and not _is_open(broker, named):
            broker.send(only, KEYIS, (number, chars, named))
        elif named:
            search = _search(broker, chars)
            search.answers_due[sender] = number
            _look(broker, chars, search)
        elif search is None or not search.callers:
            broker.send(only, KEYIS, (number, chars, b""))
        elif broker.me.id < sender.id:
            search.answers_due[sender] = number
        else:
            broker.send(only, KEYIS, (number, chars, b""))
            if search.asked and sender.is_linked:
                _ask_one(broker, chars, search, sender)


def on_keyis(broker: Broker, sender: Node, items: list[Any]) -> None:
    """A node's last word on a key: the id of its job, or that it knows none."""
    for number, chars, named, *_ in items:
        if type(named) is not bytes or (named and (len(named) != ID_BYTES or not is_valid_id(named))):
            raise ValueError("an answer that is no id")
        search = broker.searches.get(chars)
        if search is None or search.making is not None or not search.callers:
            broker.stats.ignored("answer about a key that nobody waits for")
        elif named:
            _end(broker, chars, search, named)
        elif search.unanswered.get(sender) == number:
            del search.unanswered[sender]
            if not search.unanswered:
                _look(broker, chars, search)


def on_outcome(broker: Broker, sender: Node, items: list[Any]) -> None:
    """A node has a copy of our job and must know whether it exists: it hears when that is decided."""
    for job_id, *_ in items:
        if _is_undecided(broker, job_id):
            broker.outcome_waits.setdefault(job_id, {})[sender] = None
        else:
            broker.send(broker.sets.only(sender), OUTCOME_IS, (job_id,))


def _is_undecided(broker: Broker, job_id: bytes) -> bool:
    job = broker.find(job_id)
    return job is not None and job.state == WAIT_REPL


def on_outcome_is(broker: Broker, sender: Node, items: list[Any]) -> None:
    """What its creator wanted to be gone is gone: a copy that is still here exists."""
    for job_id, *_ in items:
        job = broker.find(job_id)
        if job is not None and job.traits is not None:
            job.traits.is_open = False
        broker.key_events[job_id] = None


# -- links and time -----------------------------------------------------------------------------------


def on_link_up(broker: Broker, node: Node) -> None:
    """Another node that may know."""
    for chars, search in broker.searches.items():
        if search.callers and search.asked and search.making is None:
            _ask_one(broker, chars, search, node)


def on_link_lost(broker: Broker, node: Node) -> None:
    """A link to or from this node broke: answers may be lost, so all are asked again where it was asked."""
    for chars, search in list(broker.searches.items()):
        if search.creator is node:
            search.creator = None
        elif node not in search.asked or search.making is not None:
            continue
        else:
            _ask(broker, chars, search)
        _look(broker, chars, search)


def _repeat(broker: Broker) -> None:
    """Unanswered questions are asked again: a node that loads its journal heard nothing."""
    for chars, search in list(broker.searches.items()):
        for node, number in search.unanswered.items():
            broker.send(broker.sets.only(node), ISKEY, (number, chars))
        search.creator = None
        _look(broker, chars, search)
    if broker.searches:
        broker.schedule.call_at(broker.now_ms + REPEAT_MS, partial(_repeat, broker))


def forget_all(broker: Broker) -> None:
    """All jobs are gone (reset.py): who waits hears so."""
    searches, broker.searches = broker.searches, {}
    for chars, search in searches.items():
        _tell(broker, chars, search, b"")
        for job in search.callers:
            work = job.work
            if isinstance(work, Wanted) and not work.is_over:
                _answer(broker, job, work, replication.NOREPL_REMOVED)
    broker.keys.clear()
    broker.key_events = {}
    broker.key_conflicts = []
    broker.outcome_waits = {}
