"""The table of all commands. COMMAND, COMMAND DOCS, help and docs derive from these rows or are compared with them.

Flags are the original's, in its order (spec R9). Commands that it did not have come last.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from disque_py.commands import (
    acl,
    adding,
    attempts,
    batches,
    clients,
    cluster,
    configuring,
    connection,
    debugging,
    describing,
    ending,
    enqueuing,
    events,
    fetching,
    flows,
    hello,
    info,
    latency,
    locks,
    monitoring,
    moving,
    queue_settings,
    queues,
    scanning,
    schedules,
    server,
    tasks,
    tokens,
    topics,
)
from disque_py.commands.permissions import access_of
from disque_py.core.command_entry import Handler
from disque_py.core.units import Access


class Command(NamedTuple):
    """One command: its handler, the shape of its requests, its documentation, and its units for permissions."""

    name: str
    handler: Handler
    arity: int
    flags: tuple[str, ...]
    group: str
    since: str
    syntax: str
    summary: str
    access: Access


def _c(
    name: str, handler: Handler, arity: int, flags: str, group: str, syntax: str, summary: str, since: str = "0.1.0"
) -> Command:
    return Command(name, handler, arity, tuple(flags.split()), group, since, syntax, summary, access_of(name))


ADDJOB: Final = (
    "queue body ms-timeout [REPLICATE count|QUORUM] [ZONES n] [DELAY sec] [RETRY sec] [TTL sec] [MAXLEN count] [ASYNC]"
    " [PRIORITY n] [META name value ...] [KEY key] [WINDOW sec] [REPLACE] [ATTEMPTS n] [BACKOFF policy] [BATCH name] [DELAYMS ms] [RETRYMS ms] [TTLMS ms]"
)
GETJOB_OPTIONS: Final = (
    "[NOHANG] [TIMEOUT ms] [COUNT count] [WITHCOUNTERS] [WITHMETA] [WITHLEASE] [LEASE sec] [LEASEMS ms] [TOKEN token]"
    " [WHERE name value ...]"
)
GETJOB: Final = f"{GETJOB_OPTIONS} FROM queue [queue ...]\n{GETJOB_OPTIONS} FROMMATCH pattern [pattern ...]"
JSCAN: Final = (
    "[cursor] [COUNT n] [BUSYLOOP] [QUEUE name] [STATE state ...] [STATUS status ...] [WHERE name value ...]"
    " [COUNTED] [REPLY id|all]"
)
QSCAN: Final = "[cursor] [COUNT n] [BUSYLOOP] [MINLEN n] [MAXLEN n] [IMPORTRATE n]"
IDS: Final = "[id ...]"
NACK: Final = "[id ...] [DELAY sec] [DELAYMS ms] [REASON text] [FINAL] [ATTEMPT n] [FENCE n]"
# A command with several forms has one per line.
CLIENT: Final = """LIST
INFO
ID
GETNAME
SETNAME name
SETINFO LIB-NAME|LIB-VER value
KILL ip:port
KILL [ID client-id] [TYPE normal] [ADDR ip:port] [SKIPME yes|no]
REPLY on|off|skip
PAUSE milliseconds
UNPAUSE
NO-EVICT on|off
NO-TOUCH on|off
TRACKING off"""
CLUSTER: Final = """MEET host port [bus-port]
NODES [EXTENDED]
MYID
INFO
SAVECONFIG
FORGET node-id
RESET [SOFT|HARD]
LEAVING [yes|no]
VOTERS
VOTERS INIT node-id [node-id ...]
VOTERS ADD node-id
VOTERS REMOVE node-id
VOTERS LEASEMAX sec
VOTERS RESET FORCE node-id [node-id ...]"""
CONFIG: Final = "GET pattern\nSET directive value\nRESETSTAT\nREWRITE"
DEBUG: Final = """FLUSHALL
LOADAOF
SLEEP seconds
ERROR text
STRUCTSIZE
RESTART [milliseconds]
CRASH-AND-RECOVER [milliseconds]
SEGFAULT
ASSERT
OOM"""
DESCRIBE: Final = "\nCOUNT\nINFO name [name ...]\nDOCS [name ...]\nLIST\nGETKEYS command [argument ...]"
EVENTS: Final = """INFO
READ log-id seq [COUNT n] [MAXBYTES bytes] [BLOCK ms] [READER name] [FORMAT LINES|PACKED]
SEEK unix-ms
TAIL"""
HELLO: Final = "\nEXTENDED\n2|3 [AUTH username password] [SETNAME name]"
QUEUE: Final = """SET queue field value [field value ...]
GET queue
LIST [pattern]
RESET queue"""
SCHEDULE: Final = """SET name CRON expression|EVERY time [TZ zone] [CATCHUP none|last|all] [OVERLAP allow|skip] QUEUE queue [BODY body] [options of ADDJOB]
GET name
LIST [pattern]
PAUSE name
RESUME name
DEL name
RUN name
NEXT name [COUNT n]"""
TOPIC: Final = """BIND topic queue [WHERE name value ...]
UNBIND topic queue
LIST [pattern]
PUBLISH topic body ms-timeout [ADDJOB-option ...]"""
RESCHEDULE: Final = "id [DELAY sec] [DELAYMS ms] [PRIORITY n]"
QPURGE: Final = "queue [WHERE name value ...] [STATUS status] [ASYNC]"
QMOVE: Final = "from to [WHERE name value ...] [STATUS status] [LIMIT n] [RATE n] [ASYNC]"
QREBALANCE: Final = "queue [ZONES zone ...] [ASYNC]"
QREDRIVE: Final = "queue [WHERE name value ...] [TO queue] [LIMIT n] [RATE n] [ASYNC]"
QTASK: Final = "LIST\nSHOW id\nCANCEL id"
LOCK: Final = """ACQUIRE name owner ms [ATTEMPTS n] [TIMEOUT ms]
EXTEND name owner fence ms
RELEASE name owner fence [DONE ms]
SHOW name
LIST [pattern]"""
BATCH: Final = "SHOW name\nCLOSE name [CALLBACK queue body]\nWAIT name [TIMEOUT ms]\nDEL name\nLIST [pattern]"
ACL: Final = """SETUSER username [rule ...]
GETUSER username
DELUSER username [username ...]
LIST
USERS
WHOAMI
CAT [category]
LOG [count|RESET]
SAVE
LOAD
DRYRUN username command [argument ...]
GENPASS [bits]"""
LATENCY: Final = "LATEST\nHISTORY event\nGRAPH event\nDOCTOR\nRESET [event ...]"

# fmt: off
COMMANDS: Final = (
    # The original's 32 commands, in its order, which COMMAND and INFO commandstats keep.
    _c("auth", connection.auth, -2, "readonly loading fast", "connection", "[username] password", "Log in with a password, as `default` or as another user."),
    _c("ping", connection.ping, -1, "readonly fast", "connection", "[message]", "Check that the server answers."),
    _c("info", info.info, -1, "readonly loading", "server", "[section]", "Show figures about the server, by section."),
    _c("shutdown", server.shutdown, -1, "readonly admin loading", "server", "[REWRITE-AOF]", "Stop the server."),
    _c("monitor", monitoring.monitor, 1, "readonly admin", "server", "", "Stream every command that the server executes."),
    _c("debug", debugging.debug, -2, "admin", "server", DEBUG, "Commands for testing: flush, sleep, restart, crash."),
    _c("config", configuring.config, -2, "readonly admin", "server", CONFIG, "Read and change directives of the configuration."),
    _c("cluster", cluster.cluster, -2, "readonly admin", "cluster", CLUSTER, "Join, inspect and leave a cluster."),
    _c("client", clients.client, -2, "readonly admin", "server", CLIENT, "List, name, pause and disconnect clients."),
    _c("slowlog", monitoring.slowlog, -2, "readonly", "server", "GET [count]\nLEN\nRESET", "Show the commands that took longest."),
    _c("time", server.time, 1, "readonly fast", "server", "", "Show the server's clock: seconds and microseconds."),
    _c("command", describing.command, 0, "readonly loading", "server", DESCRIBE, "Describe the commands of the server."),
    _c("latency", latency.latency, -2, "readonly admin loading", "server", LATENCY, "Show events that delayed the server."),
    _c("hello", hello.hello, -1, "readonly fast", "cluster", HELLO, "Show the nodes and their priorities, or agree on the protocol version."),
    _c("addjob", adding.addjob, -4, "write denyoom fast", "jobs", ADDJOB, "Add a job to a queue."),
    _c("getjob", fetching.getjob, -2, "write fast", "jobs", GETJOB, "Fetch jobs from queues, or wait for one."),
    _c("ackjob", ending.ackjob, -1, "write fast", "jobs", IDS + " [ATTEMPT n] [FENCE n] [RESULT bytes]", "Acknowledge jobs as processed."),
    _c("fastack", ending.fastack, -1, "write fast", "jobs", IDS, "Acknowledge with fewer messages and less certainty."),
    _c("deljob", ending.deljob, -1, "write fast", "jobs", IDS, "Delete jobs from this node only."),
    _c("show", queues.show, -2, "readonly fast", "jobs", "id [CLUSTER]", "Describe a job."),
    _c("loadjob", enqueuing.loadjob, 2, "write", "jobs", "blob", "Internal record of the original's journal; refused."),
    _c("bgrewriteaof", server.bgrewriteaof, 1, "readonly admin", "server", "", "Rewrite the journal in the background."),
    _c(
        "qlen",
        queues.qlen,
        -2,
        "readonly fast",
        "queues",
        "queue [WHERE name value ...] [STATUS status] [CLUSTER]",
        "Count the jobs of a queue, by default those that are ready on this node.",
    ),
    _c(
        "qpeek",
        queues.qpeek,
        -3,
        "readonly",
        "queues",
        "queue count [WHERE name value ...] [STATUS status] [WITHMETA] [CLUSTER]",
        "Look at jobs of a queue without taking them.",
    ),
    _c("qstat", queues.qstat, -2, "readonly fast", "queues", "queue [CLUSTER|RECENT]", "Describe a queue."),
    _c("qscan", scanning.qscan, -1, "readonly", "queues", QSCAN, "Iterate over the queues of this node."),
    _c("jscan", scanning.jscan, -1, "readonly", "jobs", JSCAN, "Iterate over the jobs of this node."),
    _c("enqueue", enqueuing.enqueue, -1, "write denyoom fast", "jobs", IDS, "Queue jobs now if they are not queued."),
    _c("nack", attempts.nack, -1, "write denyoom fast", "jobs", NACK, "Give jobs back: processing failed."),
    _c("dequeue", enqueuing.dequeue, -1, "write fast", "jobs", IDS, "Take jobs out of their queues on this node."),
    _c("working", attempts.working, -2, "write fast", "jobs", "id [sec] [LEASEMS ms] [ATTEMPT n] [FENCE n]", "Postpone the next delivery of a job by its RETRY, or by a given time."),
    _c("pause", queues.pause, -3, "readonly fast", "queues", "queue in|out|all|none|state|bcast [...]", "Pause input or output of a queue."),
    # Commands that generic clients send by habit.
    _c("echo", connection.echo, 2, "readonly fast", "connection", "message", "Reply with the given message."),
    _c("select", connection.select, 2, "readonly fast", "connection", "index", "Select database 0, for clients that always select one."),
    _c("reset", connection.reset, 1, "readonly loading fast", "connection", "", "Reset the connection to its initial state."),
    _c(
        "qdepth",
        queues.qdepth,
        -4,
        "readonly",
        "queues",
        "queue BY name [STATUS status] [COUNT n] [CLUSTER]",
        "Count the jobs of a queue for each value of a metadata name.",
    ),
    _c("jobid", queues.jobid, -3, "readonly", "queues", "queue key [key ...]", "Find the jobs that were added with these keys."),
    # Commands for deliveries with a token.
    _c("acktoken", tokens.acktoken, -2, "write fast", "jobs", "token [token ...]", "Acknowledge all jobs that were delivered under tokens."),
    _c("nacktoken", tokens.nacktoken, -2, "write denyoom fast", "jobs", "token [token ...] [DELAY sec] [DELAYMS ms] [REASON text]", "Give back all jobs that were delivered under tokens."),
    _c("extendtoken", tokens.extendtoken, 3, "write fast", "jobs", "token sec", "Renew the leases of all jobs that were delivered under a token."),
    # Cancellation, on any node.
    _c("canceljob", ending.canceljob, -2, "write fast", "jobs", "id [id ...] [FENCE n]", "Cancel jobs, on all nodes."),
    # Results and progress of jobs.
    _c("waitjob", flows.waitjob, -2, "readonly", "jobs", "id [id ...] [TIMEOUT ms] [ANY]", "Wait until jobs are over, on any node."),
    _c("progress", flows.progress, -3, "write fast", "jobs", "id percent [text] [ATTEMPT n] [FENCE n]", "Report how far the work on a job is."),
    _c("batch", batches.batch, -2, "write", "jobs", BATCH, "Count groups of jobs, and add a callback when all of them are over."),
    # Moving and changing jobs, on any node; and tasks on the jobs of a queue.
    _c("promote", moving.promote, -2, "write denyoom fast", "jobs", "id [id ...]", "End the delays of jobs, on all nodes."),
    _c("reschedule", moving.reschedule, -2, "write denyoom fast", "jobs", RESCHEDULE, "Give a waiting job another delay or priority."),
    _c("movejob", moving.movejob, -4, "write denyoom fast", "jobs", "id [id ...] TO queue", "Move jobs to another queue, on all nodes."),
    _c("qpurge", tasks.qpurge, -2, "write", "queues", QPURGE, "Cancel the jobs of a queue, on all nodes."),
    _c("qmove", tasks.qmove, -3, "write denyoom", "queues", QMOVE, "Move the jobs of a queue to another queue, on all nodes."),
    _c("qredrive", tasks.qredrive, -2, "write denyoom", "queues", QREDRIVE, "Queue errored jobs and dead letters again with new attempts, on all nodes."),
    _c("qrebalance", tasks.qrebalance, -2, "write", "queues", QREBALANCE, "Spread the queued jobs of a queue evenly over the nodes."),
    _c("qtask", tasks.qtask, -2, "readonly", "queues", QTASK, "List, show and cancel tasks that this node started."),
    # The log of events.
    _c("events", events.events, -2, "readonly", "server", EVENTS, "Read the log of events of this node: the transitions of its jobs."),
    # Settings of queues.
    _c("queue", queue_settings.queue, -2, "readonly admin", "queues", QUEUE, "Read and change the settings of a queue, on all nodes."),
    # Schedules.
    _c("schedule", schedules.schedule, -2, "write", "jobs", SCHEDULE, "Add jobs at the times of a cron expression, or at a fixed interval."),
    # Topics.
    _c("topic", topics.topic, -2, "write", "queues", TOPIC, "Bind queues to a topic, and add jobs to all of them."),
    # Locks.
    _c("lock", locks.lock, -2, "write fast", "cluster", LOCK, "Acquire locks that have one owner at a time, even in a network partition."),
    # Users.
    _c("acl", acl.acl, -2, "readonly admin loading", "server", ACL, "Manage users and their permissions, and list refused commands."),
    # Our own command for the journal.
    _c("journal", server.journal, 3, "readonly admin", "server", "BACKUP name", "Make a consistent copy of the journal while the node runs."),
)
# fmt: on
