"""Client: one connection as the broker knows it.

Replies are bytes that are appended to `out`. The driver writes them once per turn. While an ADDJOB of this client waits
for copies, the replies to later requests wait, too. `slots` keeps the order of requests. Each slot is a list with one
element: the reply, or None while it is not known yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from disque_py.core.fetch_options import PLAIN
from disque_py.ports import ClientPort

if TYPE_CHECKING:
    from collections import deque

    from disque_py.core.job import Job
    from disque_py.core.patterns import PatternGroup
    from disque_py.core.queue import Queue
    from disque_py.core.users import User

# The reason why a client waits. RUNNING means that it does not wait.
RUNNING: Final = 0
WAITS_FOR_COPIES: Final = 1  # ADDJOB
WAITS_FOR_JOBS: Final = 2  # GETJOB
WAITS_FOR_PARTS: Final = 3  # A long command, of which each turn does a part (incremental.py).
WAITS_FOR_FILE: Final = 4  # The process writes a file (deferred_reply.py).
WAITS_FOR_ROOM: Final = 5  # Bodies are on their way out of memory (spilling.py).
WAITS_FOR_LOCK: Final = 7  # LOCK ACQUIRE with TIMEOUT, which may wait for a long time (commands/locks.py).
WAITS_FOR_ENDS: Final = 8  # WAITJOB (job_waits.py)
WAITS_FOR_LOADING: Final = 6  # The node has just started and reads its journal (node/dispatch.py).

# The durability promise in this turn's replies: none; a promise made while the disk fails, which need not be recorded;
# a promise that must be recorded (node/output_commit.py).
WROTE_NOTHING: Final = 0
WROTE_IN_TROUBLE: Final = 1
WROTE: Final = 2

REPLY_ON: Final = 0
REPLY_OFF: Final = 1
REPLY_SKIP: Final = 2  # Suppress the reply of the next command only.
REPLY_SKIP_AGAIN: Final = 3  # The next command was itself a CLIENT REPLY SKIP.


class Blocked(NamedTuple):
    """A request that may wait without a limit, while the permissions of its user may change. Spec US8.

    argv   its words
    end    ends the wait, and answers the client with this error
    """

    argv: list[bytes]
    end: Callable[[str], None]


class Client:
    """One connection.

    id, addr, fd, name     as CLIENT LIST shows them; ids start at 1 and only grow
    connected_ms, active_ms   monotonic time of the connection and of the last command
    out                    replies of this turn, ready to be written
    fetched                jobs fetched so far by a GETJOB that is done in parts
    is_authenticated       False while `requirepass` is set and AUTH has not succeeded
    protocol               2 or 3 (after HELLO 3)
    waiting                RUNNING or one of the WAITS_FOR constants
    slots                  replies in the order of requests while ADDJOBs wait, else None
    queues                 of a blocked GETJOB: the queues for which it waits
    options                … its options for each job (fetch_options.py)
    group                  … the patterns of FROMMATCH (patterns.py); None: it waits for queues by name
    arrival                … its position in the order of all clients that wait for jobs
    awake_at_ms            … until when it waits (0: without a limit); set by broker.waits.timeouts
    served_from            the queue that last served a GETJOB … FROMMATCH of this client
    reply_mode, is_silenced  the mode of CLIENT REPLY; whether it suppresses the reply for which the client waits
    wrote                  whether this turn's replies wait for the journal (WROTE…)
    held, held_bytes       replies that wait for the journal: (position, replies), oldest first (node/output_commit.py);
                           None: there are none
    is_tls, is_unix        whether the connection came through tls-port; whether it came through the unix socket
    is_monitor             whether the client gets a stream: commands (MONITOR), events (EVENTS TAIL), or both
    is_tail                whether events are in this stream
    is_in_multi            whether it sent MULTI. MULTI is refused, and so are the commands up to EXEC or DISCARD
    user                   the user whose permissions apply; None: `default` without restrictions (users.py)
    blocked                a LOCK ACQUIRE, WAITJOB, BATCH WAIT or EVENTS READ that waits; None: there is none
    on_outcome             is called with the reply to a change that the audit log records; None: there is none
    """

    __slots__ = (
        "active_ms",
        "addr",
        "arrival",
        "awake_at_ms",
        "blocked",
        "close_asked",
        "connected_ms",
        "fd",
        "fetched",
        "group",
        "held",
        "held_bytes",
        "id",
        "is_authenticated",
        "is_in_multi",
        "is_monitor",
        "is_silenced",
        "is_tail",
        "is_tls",
        "is_unix",
        "last_command",
        "name",
        "on_outcome",
        "options",
        "out",
        "port",
        "protocol",
        "queues",
        "reply_mode",
        "served_from",
        "slots",
        "user",
        "waiting",
        "waiting_jobs",
        "wrote",
    )

    def __init__(self, client_id: int, port: ClientPort, addr: str, now_ms: int, fd: int = -1) -> None:
        self.id = client_id
        self.port = port
        self.addr = addr
        self.fd = fd
        self.is_unix = False
        self.is_tls = False
        self.name = b""
        self.connected_ms = now_ms
        self.active_ms = now_ms
        self.out: list[bytes] = []
        self.fetched: list[bytes] = []
        self.is_authenticated = False
        self.protocol = 2
        self.reply_mode = REPLY_ON
        self.is_silenced = False
        self.is_monitor = False
        self.is_tail = False
        self.is_in_multi = False
        self.last_command = ""
        self.close_asked = False
        self.waiting = RUNNING
        self.slots: deque[list[bytes | None]] | None = None
        self.waiting_jobs: dict[Job, list[bytes | None]] = {}
        self.queues: tuple[Queue, ...] = ()
        self.options = PLAIN
        self.group: PatternGroup | None = None
        self.served_from = b""
        self.arrival = 0
        self.awake_at_ms = 0
        self.wrote = WROTE_NOTHING
        self.held: deque[tuple[int, list[bytes]]] | None = None
        self.held_bytes = 0
        self.user: User | None = None
        self.blocked: Blocked | None = None
        self.on_outcome: Callable[[bytes | None], None] | None = None

    def reply(self, data: bytes) -> None:
        """Answer in the order of requests, after earlier replies even if these are not known yet."""
        if self.slots:
            self.slots.append([data])
        else:
            self.out.append(data)
