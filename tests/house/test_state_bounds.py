"""All state that can grow is in a table with its bound: docs/operations.md, "Limits on memory", or BESIDES.

Peers and clients may make a node keep only state that has a bound. So a new container of the broker, the bus, the
storage or the server fails here until a table has its bound. The tests of a bound are beside its module's tests, or in
tests/unit/test_bounds.py.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokers import add_node, ask, make_broker, make_client
from disque_py.core.broker import Broker

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("cluster_bus", "disque_py/core", "disque_py/node", "disque_py/server", "disque_py/storage", "persistence")
CONTAINERS = (dict, list, set, deque, bytearray)
# Classes of containers, as constructors and as annotations have them.
NAMES = (
    "Counter",
    "Line",
    "OrderedDict",
    "Timetable",
    "Tombstones",
    "array",
    "bytearray",
    "defaultdict",
    "deque",
    "dict",
    "list",
    "set",
)

# Bounds that need no row for operators, each with the reason why the container stays small.
BESIDES = {
    "one turn": "emptied at the end of the turn; frames and requests bound what a turn reads",
    "one command": "gone with the long command that made it; the words of a command are bounded",
    "jobs": "at most a few entries per job or copy, delivery or request for one; jobs are in maxmemory",
    "queues": "at most an entry per queue; queues are in maxmemory",
    "clients": "at most an entry per client, or per word of its command",
    "nodes": "at most an entry per node of the table",
    "an operator": "set at the start, or by a command that needs the right to administer",
    "fixed": "a fixed set of names, or a ring of fixed size",
    "files of the disk": "an entry per file, or per part of one",
    "offline": "made by a program, at a start or by a rewrite, from what is there",
}

# Bound, a row of the table or of BESIDES -> "Class: attribute …".
BOUNDS = {
    "one turn": """
        Broker: dirty
        Bus: _ready
        Claims: local
        Ends: noted
        Exclusive: heard
        JobRun: _items
        Membership: _answered
        Noted: _events _parts
        Outbox: clients keys moved pauses results served tokens
        Outgoing: _items runs
        Producers: fans_due key_conflicts key_events replaced
        Recurring: answered
        Tray: address_changed dials forgotten hang_ups link_events new_runs notices
    """,
    "one command": """
        Answers: done known over
        Broker: questions
        Found: entries
        Lines: _counters _queues _rests
        Question: answers
        Visit: entries
        _Draft: _patterns _rules _units
    """,
    "jobs": """
        BodyRecovery: _wanted
        Broker: behind
        Caps: admitted aside asked freed given grants idle reserved running settled to_ask told_uses uses waits woken
            windows
        Copies: announcements delivered extending extensions waiting_repl
        Drain: moving
        ErroredIds: by_queue
        Exclusive: busy holders refused running timed
        Fanout: made
        Line: _parts _tail
        Parking: due groups values
        Pauses: deferred
        PriorityQueue: chunks head last_ranks loose parts ranks tail
        Producers: fans outcome_waits together
        Renewal: _until
        Repairs: again later named noted questions to_ask to_go_on to_tell turns
        Restoring: _batches _keys _pause_places _results _sets _tokens dropped jobs pauses stale
        Schedule: _walks _buckets _front _keys _known _moments
        Replication: leased
        SortedJobs: jobs last_ranks ranks
        Spill: fresh heads lent older reading readings released unread
        Timetable: _buckets _front _keys _known _moments
        Together: slots
    """,
    "queues": """
        Broker: ready
        Caps: demands told_rates
        Census: figures
        Consumers: answered hint_due interest_due renewals rivals told_busy told_interest told_plain
        Exchange: standing
        Exclusive: held queues
        Upkeep: sweeps
    """,
    "clients": """
        Batches: clients
        Broker: clients monitors
        Client: fetched held slots
        Compaction: _when_over
        EventReaders: _fetching tails waiting
        Gatherings: asked
        JournalService: _backups _starting
        LineProcess: _asked _parts _waiting
        Producers: lookups
        Schedule: _tasks
        Spill: blocked_producers
        TlsListener: _handshakes
        TurnLoop: connections
        Waits: early incremental stalled timeouts
    """,
    "nodes": """
        Attempt: answers asked
        Balance: deficit surplus
        Bus: _attempts _incoming _outgoing
        Caps: followers
        Claims: rounds
        Exchange: asking digests suspects walks
        Lookup: unanswered
        Node: reports
        Question: unanswered
        Queue: asked hints sources
        Recall: asked asked_ms complete floors pages runs
        Repairs: cycle due failed presumed runs
        Rivals: doubted known told
        Round: promised
        Share: unsynced
        Task: helpers missing
        Turn: answers refused tried unanswered
        Walk: left
        Flush: nodes
        Push: unanswered
    """,
    "an operator": """
        Bus: _binds _servers _socks
        Listeners: _bound _servers
    """,
    "fixed": """
        Access: _by_word
        Broker: commands terms
        Bus: _logged_at rejected
        Catalog: commands categories
        Descriptors: _readers _writers
        Files: _failed_syncs
        Gatherings: subjects
        Handover: slot
        IdSource: _pool
        Journal: _when_closed
        Lanes: _lanes _threads
        Limiter: _spans
        Membership: ignored
        NodesFileSaver: _crcs
        Parking: searches
        Search: gained
        Plan: slot
        ProcessHost: _fields
        QueueSettingsTable: _watchers
        Recurring: clients
        ReplicaSets: _groups
        Reporter: _known
        Stats: reject_reasons samples
        Wanted: slot
        Window: _parts
        Zone: _pieces
        Admission: _ignored
    """,
    "files of the disk": """
        ClosedSegments: _drops _held _last_part _removing files
        JournalState: live_bytes live_records stale_places
        Recovery: files leftovers missing
        Segment: marks
        SpillStore: files
    """,
    "offline": """
        AofReader: jobs
        FreshJournal: _chunks _files _items
        JobCollector: _jobs _names pauses
        Rewrite: _parts _records
        Search: _parts
        Tally: _dropped _gone _jobs _pauses segments
    """,
    "forgotten nodes": """
        Admission: _forgotten
    """,
    "nodes that others introduce": """
        Admission: _strangers
        Bus: _strangers _unproved
        NodeTable: _handshakes newcomers
        RateLimiter: _spent
    """,
    "a frame of another node": """
        Decoder: _buffer
    """,
    "nodes of the table, ids of nodes": """
        NodeTable: _interned nodes
    """,
    "refusals in ACL LOG, addresses with wrong passwords": """
        AccessLog: entries failures
        User: _known
    """,
    "batches and the ids in them": """
        Batch: fields parts places
        Batches: by_name callbacks collecting due flush_answers flushes held keeperless noted pending push_of
            pushes recorded reporting reports to_sync waiting
        IdSet: _buckets
    """,
    "queues, for whatever reason they exist": """
        Broker: queue_order queues
    """,
    "jobs and copies: bodies, META, keys, queue names above 64 bytes": """
        Broker: shards
        JobAttributes: extras
    """,
    "ids of finished jobs (tombstones)": """
        Acks: ahead not_held
        Broker: tombstones
        Ends: _before recent _doubts_before doubts
        Tombstones: _before _now
    """,
    "settings of queues, schedules, topics, bindings, states of batches, users": """
        Broker: topics
        Caps: limits
        Exchange: confirmed doubts lengths told_lengths waiting
        Meter: queues
        QueueSettingsTable: _reset_names exclusive in_force limited states unsaved
        QueueState: confirmed fields
        Recurring: due fallen known strange unplanned zones
        Users: by_name meters
    """,
    "acked records": """
        Acks: asked heard
    """,
    "filters of waiting clients": """
        Consumers: filter_due filter_hints filters told_filters untold_filters
        Demand: hints interested
        Exchange: filters
        Filters: due held lines told
    """,
    "interest of other nodes": """
        Consumers: interest plain_interest
        Exchange: interest
        Queue: interested
    """,
    "queues with a state that was set with BCAST": """
        Pauses: ended versions
    """,
    "jobs of ADDJOBs that wait for the answer whether their KEY is used": """
        Producers: searches
        Search: answers_due asked callers named replaced settled unanswered
    """,
    "tasks (QMOVE, QPURGE, QREDRIVE, QREBALANCE)": """
        Helper: offers
        Share: chosen
        Tasks: busy known running shares syncs
    """,
    "claims under way": """
        Claims: attempts
        Exclusive: lines picks renewals
    """,
    "jobs whose newest claims are told to new links": """
        Exclusive: early newest untold
    """,
    "keys that a voter remembers (locks, exclusive queues)": """
        Claims: refused told unsaved waiting
        Grants: _walk records unsettled
        Recall: told
        VoterList: voters
        VoterMemory: past
    """,
    "a client's unread replies, those that wait for the disk, MONITOR and EVENTS TAIL included": """
        Client: out
        CommitPosition: _turns
        OutputCommit: _clients
    """,
    "ADDJOBs of one client that wait for copies": """
        Client: waiting_jobs
    """,
    "ids that clients wait for with WAITJOB": """
        Ends: watched
        JobWaits: asked by_client counts deadlines early elsewhere given_up waited
        Wait: outcomes
        Waited: known waits
    """,
    "indexes for WHERE": """
        Filters: indexes
        Index: groups listed
    """,
    "entries of blocked GETJOBs in the lines of queues": """
        Group: waiting
        Queue: waiting
    """,
    "answers to commands with CLUSTER that are made for other nodes": """
        Gatherings: shares
    """,
    "hand-overs by this node that another node has not answered": """
        Batch: jobs
        Exchange: pending
    """,
    "answers to hand-overs that another node has not settled": """
        Exchange: answers
    """,
    "patterns of waiting clients": """
        Exchange: patterns
        NamePattern: _parts
        PatternGroup: elsewhere filtered globs interested listed names offers waiting
        Patterns: _by_prefix _lengths due found groups to_join
        Queue: patterns
    """,
    "queues that another node refuses": """
        Exchange: refused
    """,
    "keys of finished jobs, tokens and what is leased under them": """
        ExpiringIds: _spans
        Keys: jobs over
        Token: fresh jobs
        Tokens: by_job by_name waits
    """,
    "holder sets": """
        NodeSets: _added _known _united _others _packed _unpacked
        Walk: hits
    """,
    "results and progress of jobs": """
        ProgressTable: by_job due
        Results: by_id
        Acks: ahead
    """,
    "bodies on their way to disk (spill)": """
        Spill: writing
    """,
    "LATENCY": """
        LatencySeries: samples
        Stats: latency
    """,
    "SLOWLOG": """
        Stats: slowlog
    """,
    "messages to a node that does not read them": """
        OutputCommit: _messages
    """,
    "a client's unfinished or unread requests": """
        ClientConnection: _requests _unread
    """,
    "texts kept for readers of events": """
        EventReaders: _made _texts
    """,
    "readers of events that gave a name": """
        EventReaders: _starts readers
    """,
    "events that wait for a log": """
        EventLog: _queue
    """,
    "records that wait for the disk": """
        WriteQueue: _ages _kept queue
    """,
}

# Rows whose state is not in a container of these packages, but in a buffer, in a value, or counted by another row.
VALUES = {
    "queues that never had a job, where there are more than 1,000",
    "queues that a client of this node paused",
    "a client's name",
    "the reply of one GETJOB or QPEEK; of JSCAN with REPLY all",
    "words of one command",
    "values of directives",
}


def named() -> dict[tuple[str, str], str]:
    """Return the bound of each container by class and attribute."""
    found = {}
    for bound, text in BOUNDS.items():
        owner = ""
        for word in text.split():
            if word.endswith(":"):
                owner = word[:-1]
            else:
                found[owner, word] = bound
    return found


def in_source() -> Iterator[tuple[str, str]]:
    """Yield class and attribute of each container that a method makes."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for owner in ast.walk(ast.parse(path.read_text())):
                if isinstance(owner, ast.ClassDef):
                    yield from ((owner.name, attribute) for attribute in attributes_of(owner))


def attributes_of(owner: ast.ClassDef) -> Iterator[str]:
    for node in ast.walk(owner):
        if isinstance(node, ast.Assign | ast.AnnAssign) and is_container(node):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                    yield target.attr


def is_container(node: ast.Assign | ast.AnnAssign) -> bool:
    value = node.value
    if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).startswith(NAMES):
        return True
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in NAMES
    return isinstance(value, ast.Dict | ast.List | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp)


def reachable(root: object) -> Iterator[tuple[str, str]]:
    """Yield class and attribute of each container that can be reached from this object."""
    seen: set[int] = set()
    to_look = [root]
    while to_look:
        each = to_look.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, dict):
            to_look += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple | set | frozenset | deque):
            to_look += each
        elif type(each).__module__.split(".")[0] in ("cluster_bus", "disque_py", "persistence"):
            names = [name for kind in type(each).__mro__ for name in getattr(kind, "__slots__", ())]
            for name in [*names, *getattr(each, "__dict__", ())]:
                value = getattr(each, name, None)
                if isinstance(value, CONTAINERS):
                    yield type(each).__name__, name
                to_look.append(value)


def rows() -> set[str]:
    """Return the first cells of the table "Limits on memory"."""
    text = (ROOT / "docs/operations.md").read_text()
    table = text.split("### Limits on memory", 1)[1].split("\n## ", 1)[0]
    return {line.split(" | ")[0].strip("| ") for line in table.splitlines() if line.startswith("| ")} - {"what is kept"}


def test_each_container_that_can_grow_has_a_bound():
    """If this fails, add the attribute to BOUNDS, under its bound, with a test of that bound."""
    assert sorted(set(in_source()) - set(named())) == []


def at_work() -> Broker:
    """Return a broker that has done a little of everything."""
    broker = make_broker()
    add_node(broker)
    for words in (
        ("ADDJOB", "q", "body", 0, "REPLICATE", 1, "META", "a", "b", "DELAY", 5, "RETRY", 9),
        ("ADDJOB", "q", "body", 0, "REPLICATE", 1),
        ("ADDJOB", "q", "body", 0, "KEY", "k"),
        ("GETJOB", "NOHANG", "FROM", "q"),
        ("QUEUE", "SET", "q", "lease", 5),
        ("PAUSE", "p", "all", "bcast"),
        ("GETJOB", "TIMEOUT", 9_000, "FROM", "other", "WHERE", "a", "b"),
    ):
        ask(broker, make_client(broker), *words)
    return broker


@pytest.mark.plain
def test_all_containers_that_a_broker_at_work_reaches_are_named():
    """This includes containers that are inherited or made by a function."""
    reached = {(owner, attribute) for owner, attribute in reachable(at_work()) if owner not in OPTIONS}
    assert sorted(reached - set(named())) == []


@pytest.mark.plain
def test_no_bound_is_named_for_a_container_that_is_gone():
    assert sorted(set(named()) - set(in_source()) - set(reachable(at_work()))) == []


# Values that do not grow: options of one command, and directives in force.
OPTIONS = ("FetchOptions", "Settings")


def test_each_bound_is_a_row_for_operators_or_has_a_reason():
    """Each row is about existing state."""
    assert set(BOUNDS) <= rows() | set(BESIDES)
    assert rows() - set(BOUNDS) == VALUES
