"""A turn of a job: one holder counts its copies and makes those that are missing. HAVE, HAVEARE, RESTORED, SHORT.

In a turn, the holder asks the other holders with HAVE, which carries its holder set. Each of them merges that set into
its own. Its answer, HAVEARE, says whether it has the job, and carries the merged set. Sets only grow, so the question
is repeated until all holders know the union. If a holder knows that the job is done, it answers with SETACK, and the
job is collected instead of copied. Copies are missing if fewer holders than REPLICATE have the job. If one of these has
a lower node id than this holder, it is told to take the turn instead (TAKETURN).

New nodes are *named* before they get a copy: they join the holder set, and the holders are asked again with the new
set. A holder's answer is sent only after the set is safely recorded. So every reachable holder knows the new nodes
before they get a REPLJOB, and a collection that begins meanwhile asks them, too. `repairs.named` makes sure that a
collection on this node waits for them (acks.py).

An unreachable holder counts as a copy as long as its copies are not suspect. It is asked when it is linked again.
repair.py decides which jobs take turns, and when. Spec RC3, RC4, RC5, RC6, RC9, RC10.
"""

from __future__ import annotations

from typing import Any, Final

from cluster_bus.messages import HAVE, HAVEARE, REPLJOB, RESTORED, SETACK, SHORT, TAKETURN
from cluster_bus.node import FORGOTTEN, LEAVING, UNKNOWN, Node
from disque_py import event_format
from disque_py.core import changing, events, spilling, zones
from disque_py.core.broker import Broker
from disque_py.core.changing import OUTCOME_CANCELED, UNTOLD
from disque_py.core.ids import is_valid_id
from disque_py.core.job import ACKED, ACTIVE, GONE, QUEUED, WAIT_REPL, Cancellation, Job
from disque_py.core.job_snapshot import snapshot_of
from disque_py.core.journaling import mark_holders_dirty
from disque_py.core.node_sets import NodeSet
from disque_py.core.repair_state import ASKING, COPYING, LIFE_MS_MIN, READY, WAITING, Question, Repairs, Turn
from disque_py.core.replication import COPY_KNOWN, COPY_TAKEN, TIMED
from disque_py.core.spilled import Spilled
from disque_py.core.versions import REPAIR

# Each holder takes its turn this much later than the one before it.
TURN_MS: Final = 5_000
# A question or a copy without an answer is sent again this often. A named node that does not answer this many questions
# or copies is replaced by another one.
ASK_AGAIN_MS: Final = 1_000
SILENT_MAX: Final = 5
# The number of turns that continue per tick, which takes about a millisecond.
TURNS_PER_PART: Final = 100
# The most jobs in one HAVE.
IDS_MAX: Final = 100
# A new copy's timer fires this much later than ours, so that this node asks with WILLQUEUE first.
MARGIN_MS: Final = 1_000
# The codes of HAVEARE, one per job.
HAS_NONE: Final = 0  # The holder does not know the job.
HAS_DONE: Final = 1  # It knows that the job is done.
HAS: Final = 2  # It has the job.
HAS_PASSIVE: Final = 3  # It has the job and repairs nothing, because it leaves or `repair-after` is 0.
HAS_CREATION: Final = 4  # It has the job, which still waits for its first copies.
HAS_MAX: Final = HAS_CREATION


def wait(turn: Turn, due_ms: int) -> None:
    """Make a turn start, or start again, at `due_ms`."""
    turn.stage = WAITING
    turn.due_ms = due_ms
    turn.number = 0
    turn.unanswered = {}
    turn.answers = {}
    turn.targets = ()
    turn.has_grown = turn.is_behind = False
    turn.asked = 0


def tell(broker: Broker, code: int, name: str) -> None:
    """Write an event and a line of the log: repairs have begun or ended."""
    repairs = broker.repairs
    nodes = ", ".join(f"node {node.name.decode()}: {why}" for node, why in repairs.cycle.items())
    if code == event_format.REPAIR_STARTED:
        text = f"{nodes}; {repairs.found} jobs"
        broker.membership.tray.notices.append((name, {"nodes": nodes, "jobs": repairs.found}))
    else:
        text = f"{nodes}; {repairs.made} copies made, {repairs.missing} missing"
        broker.membership.tray.notices.append(
            (name, {"nodes": nodes, "made": repairs.made, "missing": repairs.missing})
        )
    events.of_node(broker, code, text)


def in_scope(broker: Broker, job: Job) -> bool:
    """Return whether lost copies of this job are replaced. Spec RC1."""
    return (
        (job.state == ACTIVE or job.state == QUEUED)
        and job.terms.retry_ms > 0
        and job.terms.replicate > 1
        and job.expire_at_ms - broker.now_ms >= LIFE_MS_MIN
    )


def is_reachable(node: Node) -> bool:
    """Return whether a node is linked and understands HAVE."""
    return node.is_linked and node.protocol >= REPAIR


def position(broker: Broker, holders: NodeSet) -> int:
    """Return how many holders take their turn before this node."""
    mine = broker.me.id
    return sum(
        node.id < mine and is_reachable(node) and not node.flags & LEAVING for node in broker.sets.others(holders)
    )


def take(broker: Broker, job: Job, due_ms: int) -> Turn:
    """Give a job a turn that starts at `due_ms`. Return the turn."""
    turn = broker.repairs.turns[job] = Turn(due_ms)
    return turn


def look(broker: Broker) -> None:
    """Note the turns that are due, and those for which `repair-rate` allows a copy. Ask silent holders again."""
    repairs = broker.repairs
    now_ms = broker.now_ms
    allowed = repairs.tokens // 1_000
    for job, turn in repairs.turns.items():
        if turn.stage == READY:
            if allowed > 0:
                allowed -= 1
                repairs.to_go_on[job] = None
        elif (turn.due_ms <= now_ms and turn.stage != ASKING) or job.state == GONE or job.state == ACKED:
            repairs.to_go_on[job] = None
    for number, question in list(repairs.questions.items()):
        if question.due_ms > now_ms:
            continue
        jobs = [job for job in question.jobs if _is_asked(repairs, job, number)]
        if not jobs or not question.unanswered:
            del repairs.questions[number]
            continue
        question.due_ms = now_ms + ASK_AGAIN_MS
        question.asked += 1
        silent = broker.sets.others(broker.sets.of(question.unanswered))
        if question.asked >= SILENT_MAX:
            _go_without(broker, question, jobs)
        broker.send(silent, HAVE, question.item)


def continue_turn(broker: Broker, job: Job) -> None:
    """Do the next step of a job's turn, if it is due."""
    repairs = broker.repairs
    turn = repairs.turns.get(job)
    if turn is None:
        return
    if not in_scope(broker, job):
        del repairs.turns[job]
    elif turn.stage == READY:
        _name(broker, job, turn)
    elif turn.stage == WAITING:
        if turn.due_ms <= broker.now_ms:
            ask(broker, job, turn)
    elif turn.stage == ASKING:
        if not turn.unanswered and turn.number:
            _judge(broker, job, turn)
    elif not turn.targets:
        _judge(broker, job, turn)
    elif turn.due_ms <= broker.now_ms:
        if turn.asked >= SILENT_MAX:
            _pass_over(turn, turn.targets)
            _judge(broker, job, turn)
        else:
            _copy(broker, job, turn)


def _is_asked(repairs: Repairs, job: Job, number: int) -> bool:
    turn = repairs.turns.get(job)
    return turn is not None and turn.number == number and bool(turn.unanswered)


def _go_without(broker: Broker, question: Question, jobs: list[Job]) -> None:
    """Pass over named nodes that stay silent. The turn waits for any other holder, which may be reading its journal."""
    for job in jobs:
        turn = broker.repairs.turns[job]
        silent = [node for node in turn.targets if node in turn.unanswered]
        for node in silent:
            del turn.unanswered[node]
        if silent:
            _pass_over(turn, tuple(silent))
            broker.repairs.to_go_on[job] = None


def _pass_over(turn: Turn, nodes: tuple[Node, ...]) -> None:
    for node in nodes:
        turn.refused[node] = None
    turn.targets = tuple(node for node in turn.targets if node not in nodes)


def ask(broker: Broker, job: Job, turn: Turn) -> None:
    """Have the holders of the job asked at the end of the node's turn."""
    turn.stage = ASKING
    turn.answers = {}
    turn.unanswered = {}
    turn.has_grown = turn.is_behind = False
    turn.number = 0
    broker.repairs.to_ask[job] = None


def settle(broker: Broker) -> None:
    """At the end of the node's turn, handle answers and send questions and other messages."""
    repairs = broker.repairs
    if repairs.noted:
        _take_answers(broker)
    if repairs.to_ask:
        _send_questions(broker)
    if repairs.to_tell:
        for kind, groups in repairs.to_tell.items():
            for nodes, ids in groups.items():
                for at in range(0, len(ids), IDS_MAX):
                    broker.send(nodes, kind, (ids[at : at + IDS_MAX],))
        repairs.to_tell = {}


def _send_questions(broker: Broker) -> None:
    repairs = broker.repairs
    asked, repairs.to_ask = repairs.to_ask, {}
    groups: dict[NodeSet, list[Job]] = {}
    for job in asked:
        turn = repairs.turns.get(job)
        if turn is not None and turn.stage == ASKING:
            if in_scope(broker, job):
                groups.setdefault(job.holders, []).append(job)
            else:
                del repairs.turns[job]
    for holders, jobs in groups.items():
        nodes = broker.sets.others(broker.sets.of(filter(is_reachable, broker.sets.others(holders))))
        if not nodes:
            repairs.number += 1
            for job in jobs:
                repairs.turns[job].number = repairs.number
                repairs.to_go_on[job] = None
            continue
        for at in range(0, len(jobs), IDS_MAX):
            part = jobs[at : at + IDS_MAX]
            repairs.number += 1
            item = (repairs.number, broker.sets.pack(holders), [job.id for job in part])
            repairs.questions[repairs.number] = Question(item, part, nodes, broker.now_ms + ASK_AGAIN_MS)
            for job in part:
                turn = repairs.turns[job]
                turn.number = repairs.number
                turn.unanswered = dict.fromkeys(nodes)
            broker.send(nodes, HAVE, item)


def _judge(broker: Broker, job: Job, turn: Turn) -> None:
    """Count the copies, because all reachable holders have answered, and decide how the turn continues."""
    repairs = broker.repairs
    if not in_scope(broker, job):
        repairs.turns.pop(job, None)
        return
    if turn.has_grown:
        ask(broker, job, turn)
        return
    copies = 1
    lower: Node | None = None
    for node, has in turn.answers.items():
        if has >= HAS:
            copies += 1
        if has == HAS_CREATION:
            wait(turn, broker.now_ms + TURN_MS)
            return
        if has == HAS and node.id < broker.me.id and (lower is None or node.id < lower.id):
            lower = node
    for node in broker.sets.others(job.holders):
        if node not in turn.answers and is_presumed(broker, node) and node not in turn.tried:
            copies += 1
            repairs.presumed[node] = None
    if copies >= job.terms.replicate:
        _end(broker, job, turn, RESTORED)
    elif lower is not None:
        _note(broker, TAKETURN, broker.sets.only(lower), job)
        wait(turn, broker.now_ms + TURN_MS)
    elif turn.is_behind and job in broker.behind:
        wait(turn, broker.now_ms + ASK_AGAIN_MS)  # The newer changeable part is on its way.
    else:
        turn.targets = tuple(node for node in turn.targets if turn.answers.get(node) == HAS_NONE)
        if turn.targets:
            turn.stage = COPYING
            _copy(broker, job, turn)
        else:
            turn.stage = READY
            _name(broker, job, turn)


def is_presumed(broker: Broker, node: Node) -> bool:
    """Return whether an unreachable node counts as a copy, because its copies are not suspect."""
    return not (is_reachable(node) or node.flags & (FORGOTTEN | UNKNOWN) or node in broker.repairs.failed)


def _missing(job: Job, turn: Turn, broker: Broker) -> int:
    copies = 1 + sum(has >= HAS for has in turn.answers.values())
    for node in broker.sets.others(job.holders):
        if _counts_unasked(broker, turn, node):
            copies += 1
    return job.terms.replicate - copies


def _counts_unasked(broker: Broker, turn: Turn, node: Node) -> bool:
    return node not in turn.answers and is_presumed(broker, node) and node not in turn.tried


def _name(broker: Broker, job: Job, turn: Turn) -> None:
    """Tell all holders which nodes are new ones, as far as `repair-rate` allows. End the turn if there are none."""
    repairs = broker.repairs
    if not repairs.is_told:
        repairs.is_told = True
        tell(broker, event_format.REPAIR_STARTED, "repair-started")
    missing = _missing(job, turn, broker)
    if missing <= 0:
        ask(broker, job, turn)  # A holder was lost, or a copy was made, while the turn waited.
        return
    candidates = [
        node
        for node in broker.cluster.usable
        if is_reachable(node)
        and node.has_room
        and node not in turn.refused
        and turn.answers.get(node, HAS_NONE) == HAS_NONE
    ]
    if not candidates:
        repairs.missing += missing
        _end(broker, job, turn, SHORT)
        return
    if repairs.tokens < 1_000:
        return
    if len(candidates) > 1:
        broker.rng.shuffle(candidates)
        candidates.sort(key=_memory_level)
        if zones.has_zones(broker):
            held = [node for node, has in turn.answers.items() if has >= HAS]
            held += [node for node in broker.sets.others(job.holders) if _counts_unasked(broker, turn, node)]
            candidates = zones.spread(candidates, len(candidates), (broker.me, *held))
    targets = candidates[: min(missing, max(1, repairs.tokens // 1_000))]
    repairs.tokens -= 1_000 * len(targets)
    turn.targets = tuple(targets)
    turn.tried.update(dict.fromkeys(targets))
    job.holders = broker.sets.union(job.holders, broker.sets.of(targets))
    mark_holders_dirty(broker, job)
    repairs.named[job] = tuple(dict.fromkeys((*repairs.named.get(job, ()), *targets)))
    ask(broker, job, turn)


def _memory_level(node: Node) -> int:
    return node.memory_level


def _copy(broker: Broker, job: Job, turn: Turn) -> None:
    """Send the job to the nodes that were named. A spilled body is read back first."""
    turn.due_ms = broker.now_ms + ASK_AGAIN_MS
    if type(job.body) is Spilled:
        if not turn.is_read:
            turn.is_read = True

            def back() -> None:
                turn.is_read = False
                if broker.repairs.turns.get(job) is turn and turn.stage == COPYING and in_scope(broker, job):
                    _copy(broker, job, turn)

            spilling.when_back(broker, job, back)
        return
    turn.asked += 1
    nodes = broker.sets.others(broker.sets.of(turn.targets))
    broker.send(nodes, REPLJOB, copy_of(broker, job))


def copy_of(broker: Broker, job: Job) -> tuple[Any, ...]:
    """Return the item of a REPLJOB for a copy that replaces one that was lost, or whose node leaves."""
    return snapshot_of(broker, job), TIMED, timer_ms(broker, job), events.status_of(job)


def timer_ms(broker: Broker, job: Job) -> int:
    """Return the milliseconds until a new copy's timer fires: later than ours, and so after any lease known here."""
    if job.state == QUEUED or not job.requeue_at_ms:
        return job.terms.retry_ms
    left_ms = max(0, job.requeue_at_ms - broker.now_ms) + MARGIN_MS
    return left_ms if job.was_queued else left_ms + job.terms.retry_ms


def _take_answers(broker: Broker) -> None:
    """Handle the answers to REPLJOB that this turn of the node has brought."""
    repairs = broker.repairs
    noted, repairs.noted = repairs.noted, []
    for job, node, answer in noted:
        named = repairs.named.get(job)
        if named is not None:
            rest = tuple(each for each in named if each is not node)
            if rest:
                repairs.named[job] = rest
            else:
                del repairs.named[job]
        if answer == COPY_TAKEN and named is not None and node in named:
            repairs.made += 1
            broker.stats.copies_repaired += 1
        turn = repairs.turns.get(job)
        if turn is None or turn.stage != COPYING or node not in turn.targets:
            continue
        if answer in {COPY_TAKEN, COPY_KNOWN}:
            turn.answers[node] = HAS_PASSIVE
            turn.targets = tuple(each for each in turn.targets if each is not node)
        else:
            broker.stats.repair_refusals += 1
            _pass_over(turn, (node,))
        if not turn.targets:
            repairs.to_go_on[job] = None


def _end(broker: Broker, job: Job, turn: Turn, kind: int) -> None:
    """End the turn. If copies were missing, tell the other holders, because they may wait for us."""
    repairs = broker.repairs
    repairs.turns.pop(job, None)
    if kind == SHORT:
        repairs.has_short = True
    if kind == SHORT or turn.tried:
        others = broker.sets.others(broker.sets.of(filter(is_reachable, broker.sets.others(job.holders))))
        if others:
            _note(broker, kind, others, job)


def count_anew(broker: Broker, job: Job) -> None:
    """Give a job a turn, or begin its turn anew, because a copy that was counted was the copy of another holder."""
    repairs = broker.repairs
    turn = repairs.turns.get(job)
    if broker.is_leaving:
        give_turn(broker, job)
    elif turn is not None:
        wait(turn, broker.now_ms + TURN_MS * position(broker, job.holders))
    elif repairs.is_on:
        repairs.later[job] = None


def give_turn(broker: Broker, job: Job) -> None:
    """Ask another holder to take the turn of a job, because this node leaves."""
    others = list(filter(is_reachable, broker.sets.others(job.holders)))
    if others and in_scope(broker, job):
        first = min(others, key=_id_of)
        broker.send(broker.sets.only(first), TAKETURN, ([job.id],))


def _id_of(node: Node) -> bytes:
    return node.id


def _note(broker: Broker, kind: int, nodes: tuple[Node, ...], job: Job) -> None:
    broker.repairs.to_tell.setdefault(kind, {}).setdefault(nodes, []).append(job.id)


# -- messages of other holders ------------------------------------------------------------------------


def ids_of(ids: Any) -> list[bytes]:
    """Return the ids of a message. ValueError if they are malformed."""
    if type(ids) not in (list, tuple) or len(ids) > IDS_MAX:
        raise ValueError("a malformed list of jobs")
    if any(type(job_id) is not bytes or not is_valid_id(job_id) for job_id in ids):
        raise ValueError("a malformed id")
    return list(ids)


def on_have(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Merge the sender's holder set, and answer which of these jobs this node has."""
    sets = broker.sets
    only = sets.only(sender)
    for number, packed, ids, *_ in items:
        if type(number) is not int:
            raise ValueError("a question without a number")
        theirs = sets.unpack(packed)
        asked = ids_of(ids)
        if broker.journal.disk_level:
            continue  # Nothing can be recorded now. The sender will ask again.
        codes = bytearray()
        known: list[bytes] = []
        numbers: list[tuple[int, int, bytes]] = []
        for at, job_id in enumerate(asked):
            job = broker.find(job_id)
            if job is None:
                is_done = job_id in broker.tombstones or job_id in broker.acks.not_held
                if is_done:
                    broker.send(only, SETACK, (job_id, b""))
                codes.append(HAS_DONE if is_done else HAS_NONE)
                continue
            merged = sets.union(job.holders, theirs)
            if job.state == ACKED:
                if job.holders:
                    if merged is not job.holders:
                        job.holders = merged
                        mark_holders_dirty(broker, job)
                    changing.send_ack(broker, sender, job)
                else:
                    is_canceled = isinstance(job.work, Cancellation)
                    item = (job_id, b"", UNTOLD)
                    broker.send(only, SETACK, (*item, OUTCOME_CANCELED) if is_canceled else item)
                codes.append(HAS_DONE)
                continue
            if merged is not job.holders:
                job.holders = merged
                mark_holders_dirty(broker, job)
            if job.state == WAIT_REPL:
                codes.append(HAS_CREATION)
            elif broker.is_leaving or not broker.settings.repair_after:
                codes.append(HAS_PASSIVE)
            else:
                codes.append(HAS)
            ours = sets.pack(merged)
            known.append(b"" if ours == packed else ours)
            number_here = changing.number_of(job)
            if number_here[0]:
                numbers.append((at, *number_here))
        broker.send(only, HAVEARE, (number, bytes(codes), known, numbers))


def on_haveare(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note a holder's answer about its copies."""
    repairs = broker.repairs
    sets = broker.sets
    for number, codes, known, numbers, *_ in items:
        question = repairs.questions.get(number)
        if question is None or sender not in question.unanswered:
            broker.stats.ignored("answer about copies that is late")
            continue
        _check_answer(question, codes, known, numbers)
        del question.unanswered[sender]
        changes = {at: (change, node) for at, change, node, *_ in numbers}
        having = iter(known)
        for at, job in enumerate(question.jobs):
            has = codes[at]
            packed = next(having) if has >= HAS else b""
            turn = repairs.turns.get(job)
            if turn is None or turn.number != number or sender not in turn.unanswered:
                continue
            del turn.unanswered[sender]
            turn.answers[sender] = has
            if job.state == GONE:
                repairs.to_go_on[job] = None
                continue
            if packed:
                merged = sets.union(job.holders, sets.unpack(packed))
                if merged is not job.holders:
                    job.holders = merged
                    mark_holders_dirty(broker, job)
                if sets.pack(merged) != question.item[1]:  # Packed sets do not contain forgotten nodes.
                    turn.has_grown = True
            if has >= HAS and job.state != ACKED:
                theirs = changes.get(at, changing.NO_CHANGE)
                changing.compare_change(broker, sender, job, theirs)
                if theirs > changing.number_of(job):
                    turn.is_behind = True
            if not turn.unanswered:
                repairs.to_go_on[job] = None
        if not question.unanswered:
            del repairs.questions[number]


def _check_answer(question: Question, codes: Any, known: Any, numbers: Any) -> None:
    if type(codes) is not bytes or len(codes) != len(question.jobs) or any(code > HAS_MAX for code in codes):
        raise ValueError("an answer for each job was expected")
    if type(known) not in (list, tuple) or len(known) != sum(code >= HAS for code in codes):
        raise ValueError("the holders of each job were expected")
    for entry in numbers:
        if type(entry[1]) is not int or entry[1] < 0 or type(entry[2]) is not bytes:
            raise ValueError("a malformed change number")


def on_restored(broker: Broker, sender: Node, items: list[Any]) -> None:
    """End the turns of jobs that have all their copies, as another holder has counted."""
    for ids, *_ in items:
        for job_id in ids_of(ids):
            job = broker.find(job_id)
            if job is not None:
                broker.repairs.turns.pop(job, None)


def on_short(broker: Broker, sender: Node, items: list[Any]) -> None:
    """End the turns of jobs for whose copies there is no node. They take turns again later."""
    repairs = broker.repairs
    for ids, *_ in items:
        for job_id in ids_of(ids):
            job = broker.find(job_id)
            if job is not None and repairs.turns.pop(job, None) is not None:
                repairs.has_short = True


def copies_of(broker: Broker, job: Job) -> int:
    """Return how many copies of the job exist, as far as this node knows, its own included."""
    if job.state == ACKED or not job.holders:
        return 0
    mine = int(broker.me in job.holders)
    turn = broker.repairs.turns.get(job)
    if turn is not None and turn.answers:
        return mine + sum(has >= HAS for has in turn.answers.values())
    return mine + sum(
        not node.flags & (FORGOTTEN | UNKNOWN) and node not in broker.repairs.failed
        for node in broker.sets.others(job.holders)
    )
