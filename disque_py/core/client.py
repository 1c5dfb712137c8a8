"""Client: one connection as the broker knows it.

Replies are bytes appended to `out`; the driver writes them once per turn. While an ADDJOB of this client waits for
copies, later replies wait behind it. `slots` keeps the order of requests. Each slot is a list of one element: the
reply, or None while it is not known yet.
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

# The reason why a client waits; RUNNING means that it does not.
RUNNING: Final = 0
WAITS_FOR_COPIES: Final = 1  # ADDJOB
WAITS_FOR_JOBS: Final = 2  # GETJOB
WAITS_FOR_PARTS: Final = 3  # A long command, done a part per turn (incremental.py).
WAITS_FOR_FILE: Final = 4  # The process writes a file (deferred_reply.py).
WAITS_FOR_ROOM: Final = 5  # Bodies are on their way out of memory (spilling.py).
WAITS_FOR_LOCK: Final = 7  # LOCK ACQUIRE with TIMEOUT, which may wait for long (commands/locks.py).
WAITS_FOR_ENDS: Final = 8  # WAITJOB (job_waits.py)
WAITS_FOR_LOADING: Final = 6  # The node has just started and reads its journal (node/dispatch.py).

# The promise in this turn's replies: none; one that was allowed although the disk fails, and then need not be recorded;
# one that must be recorded (node/output_commit.py).
WROTE_NOTHING: Final = 0
WROTE_IN_TROUBLE: Final = 1
WROTE: Final = 2

REPLY_ON: Final = 0
REPLY_OFF: Final = 1
REPLY_SKIP: Final = 2  # Suppress the reply of the next command only.
REPLY_SKIP_AGAIN: Final = 3  # The next command was itself a CLIENT REPLY SKIP.


class Blocked(NamedTuple):
    """A request that may wait for ever, of a user whose permissions may change meanwhile. Spec US8.

    argv   its words
    end    ends the wait, and answers the client with this error
    """

    argv: list[bytes]
    end: Callable[[str], None]


class Client:
    """One connection.

    id, addr, fd, name     as CLIENT LIST shows them; ids start at 1 and only grow
    connected_ms, active_ms   monotonic: connection, last command
    out                    replies of this turn, ready to be written
    fetched                jobs so far of a GETJOB that is done in parts
    is_authenticated       False while `requirepass` is set and AUTH has not succeeded
    protocol               2 or 3 (after HELLO 3)
    waiting                RUNNING or one of the above
    slots                  replies in the order of requests while ADDJOBs wait, else None
    queues                 the queues a blocked GETJOB waits on
    options                … and its options for each job (fetch_options.py)
    group                  … and the patterns of FROMMATCH (patterns.py); None: it waits for queues by name
    served_from            the queue that a GETJOB … FROMMATCH of this client was served from last
    arrival                … and its place among all clients that wait for jobs
    awake_at_ms            … and until when (0: for ever); its entry in broker.waits.timeouts
    reply_mode, is_silenced  CLIENT REPLY; its effect on the command that is waited for
    wrote                  whether this turn's replies wait for the journal (WROTE…)
    held, held_bytes       replies that wait for the journal: (position, replies), oldest first (node/output_commit.py);
                           None: none do
    is_tls, is_unix        whether it came through tls-port, or through the unix socket
    is_monitor             gets a line for every command executed
    is_in_multi            sent MULTI, which is refused: so are its commands, until EXEC or DISCARD
    user                   the user whose permissions hold; None: `default`, which nothing restricts (users.py)
    blocked                a LOCK ACQUIRE, WAITJOB or BATCH WAIT that waits; None: there is none
    on_outcome             gets the reply of a change that the audit log is to have; None: there is none
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
        """Answer in request order, behind the replies that are still being waited for."""
        if self.slots:
            self.slots.append([data])
        else:
            self.out.append(data)
