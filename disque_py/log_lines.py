"""The messages of the server's log: one table, and lines made from it.

Each message has a name, a level, a template, a meaning and an advice. Code that has something to log makes a line with
`line(name, field=value, …)`. A line is a str, so code can pass it wherever it passes a text. It also carries its name
and fields for `log-format json`. server/log.py writes it: this module does no output and knows no time.

docs/logs.md lists the table; `python tests/house/rewrite_logs_page.py` writes that page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from disque_py.ports import Host

Value = str | int | float

DEBUG: Final = "debug"
VERBOSE: Final = "verbose"
NOTICE: Final = "notice"
WARNING: Final = "warning"

NOTHING: Final = "Nothing."

# At most LINES_MAX lines of one message are written in SPAN_SECONDS; further ones are counted (server/log.py).
LINES_MAX: Final = 50
SPAN_SECONDS: Final = 10


class Message(NamedTuple):
    """A message of the log.

    name       its name, in lines of JSON and in docs/logs.md
    level      debug, verbose, notice or warning
    template   its text, with the fields in braces
    meaning    what it says of the node
    advice     what an operator does about it
    """

    name: str
    level: str
    template: str
    meaning: str
    advice: str


class Section(NamedTuple):
    """Messages about one thing."""

    title: str
    messages: tuple[Message, ...]


class Line(str):
    """A text for the log that knows the message it was made of."""

    __slots__ = ("fields", "level", "name")

    name: str
    level: str
    fields: dict[str, Value]


SECTIONS: Final = (
    Section(
        "Start and end",
        (
            Message(
                "start",
                NOTICE,
                "disque-py {version}, node {node}, process {pid}",
                "The process has started, and reads its files next.",
                NOTHING,
            ),
            Message(
                "no-config-file",
                WARNING,
                "no config file was given, the defaults are used; see disque-server --help",
                "The node runs with the defaults.",
                "Give the path of a config file as the first argument.",
            ),
            Message(
                "environment-ignored",
                WARNING,
                "the environment variable {variable} names no directive and is ignored",
                "The name of a variable begins with DISQUE_, but the rest is not the name of a directive.",
                "Correct the name, or remove the variable.",
            ),
            Message(
                "protected",
                WARNING,
                "without requirepass and bind only clients of this machine are served (protected-mode)",
                "Protected mode is in force: clients of other machines get -DENIED.",
                "Set requirepass or bind, or protected-mode no.",
            ),
            Message(
                "no-listener",
                WARNING,
                "port and tls-port are 0 and there is no unixsocket: no client can connect",
                "The node accepts only other nodes.",
                "Set `port`, `tls-port` or `unixsocket`.",
            ),
            Message(
                "no-cluster-secret",
                WARNING,
                "without a cluster-secret other nodes are accepted on loopback addresses only (protected-mode)",
                "Nodes of other machines can't join.",
                "Set the same `cluster-secret` on all nodes.",
            ),
            Message(
                "certificate-refused",
                WARNING,
                "other nodes will refuse the certificate {path}: {reason}",
                "With `tls-cluster` both ends of a link check certificates, and this one fails the check.",
                "Give `tls-cert-file` a certificate that is valid now and signed by `tls-ca-cert-file`, and restart.",
            ),
            Message(
                "maxmemory-low",
                WARNING,
                "maxmemory is {bytes} bytes; is a unit missing?",
                "`maxmemory` has hardly enough room for a job.",
                "Write a unit, as in `maxmemory 2gb`.",
            ),
            Message(
                "backlog-cut",
                WARNING,
                "tcp-backlog {wanted} is cut to {limit} by net.core.somaxconn",
                "The system allows fewer connections that wait to be accepted.",
                "Raise `net.core.somaxconn`, or lower `tcp-backlog`.",
            ),
            Message(
                "maxclients-cut",
                WARNING,
                "maxclients is {possible} instead of {wanted}: the limit of open files is lower",
                "The process may open fewer files than `maxclients` needs.",
                "Raise the limit of open files (`ulimit -n`, `LimitNOFILE=`).",
            ),
            Message(
                "pid-file-failed",
                WARNING,
                "can't write the pid file {path}: {reason}",
                "The node runs without a pid file.",
                "Make the directory writable, or change `pidfile`.",
            ),
            Message(
                "acl-file-missing",
                WARNING,
                "there is no ACL file {path} yet: the only user is default, which may do everything",
                "The node starts with `aclfile` for the first time, or the path is wrong.",
                "Correct `aclfile`, or add users with ACL SETUSER, which makes the file.",
            ),
            Message(
                "start-failed",
                WARNING,
                "can't start: {reason}",
                "The process ends with status 1.",
                "The reason says what to change.",
            ),
            Message(
                "ready",
                NOTICE,
                "Server initialized, ready to accept connections on {address}",
                "Clients are served at this address.",
                NOTHING,
            ),
            Message(
                "signal",
                WARNING,
                "{signal} received, shutting down",
                "A signal asked the node to end.",
                NOTHING,
            ),
            Message(
                "second-interrupt",
                WARNING,
                "second SIGINT: exiting at once",
                "The process ends without closing its journal.",
                NOTHING,
            ),
            Message(
                "shutdown",
                WARNING,
                "SHUTDOWN by client {client}",
                "A client asked the node to end.",
                NOTHING,
            ),
            Message(
                "shutdown-refused",
                WARNING,
                "SHUTDOWN refused: {reason}",
                "The node would lose acknowledged jobs, so it keeps running.",
                "Correct the problem that the reason names, and send SHUTDOWN again.",
            ),
            Message(
                "stopped",
                WARNING,
                "the node has stopped, bye bye",
                "The process ends now.",
                NOTHING,
            ),
            Message(
                "stopped-for-restart",
                WARNING,
                "the node has stopped, and will start again",
                "DEBUG RESTART: the same program runs again.",
                NOTHING,
            ),
            Message(
                "mistake",
                WARNING,
                "a mistake in the program, {consequence}: {context}",
                "A defect of disque-py; the traceback follows.",
                "Report it with the traceback.",
            ),
        ),
    ),
    Section(
        "Cluster",
        (
            Message(
                "cluster-fail",
                WARNING,
                "cluster state is fail: {lost} of {size} nodes don't answer",
                "More than half of the nodes are suspected or failed, as seen from here: this node may be cut off.",
                "Look at the network of this machine, and at the nodes named before this line.",
            ),
            Message(
                "cluster-ok",
                NOTICE,
                "cluster state is ok again: {lost} of {size} nodes don't answer",
                "At least half of the nodes answer again.",
                NOTHING,
            ),
            Message(
                "node-joined",
                NOTICE,
                "node {node} joined",
                "A node is new in this node's table.",
                NOTHING,
            ),
            Message(
                "node-suspected",
                WARNING,
                "node {node} at {address} does not answer: suspected",
                "It has not answered this node for `cluster-node-timeout`. New jobs go elsewhere.",
                "Look at that node and at the network to it.",
            ),
            Message(
                "node-failed",
                WARNING,
                "node {node} at {address} marked as failing: {reason}",
                "A majority agrees that it does not answer.",
                "Start the node again, or remove it with CLUSTER FORGET on all others.",
            ),
            Message(
                "node-recovered",
                NOTICE,
                "node {node} at {address} answers again",
                "A suspected or failed node is back.",
                NOTHING,
            ),
            Message(
                "node-forgotten",
                NOTICE,
                "node {node} forgotten",
                "It was removed from the table by CLUSTER FORGET or CLUSTER RESET.",
                NOTHING,
            ),
            Message(
                "node-not-reached",
                NOTICE,
                "node {node} at {address} not reached, given up",
                "A node introduced itself, and can't be reached from here.",
                "Check that its bus port is open, and that `cluster-announce-ip` is correct.",
            ),
            Message(
                "handshake-failed",
                NOTICE,
                "no handshake with {address} (bus {bus_port}) in time, given up: {reason}",
                "CLUSTER MEET, or gossip, named an address where no node answers.",
                "Check that the bus port is open, and that the `cluster-secret` is the same.",
            ),
            Message(
                "address-taken",
                WARNING,
                "another node answers at {address}, so that address of {node} is dropped. If {node} has lost its nodes"
                " file: CLUSTER MEET this address here, and CLUSTER FORGET {node} on all nodes",
                "Two nodes were started with one address, or the node there has lost its nodes file.",
                "Give each node its own address, or send the two commands of the message.",
            ),
            Message(
                "coming-back",
                NOTICE,
                "node {node} has this node in its table: coming back to its cluster",
                "This node lost its nodes file but kept its id, and joins its cluster again.",
                NOTHING,
            ),
            Message(
                "unknown-member",
                WARNING,
                "node {node} at {host}:{port} takes this node for a member of its cluster, but is not known here:"
                " CLUSTER MEET {host} {port} {bus_port} on this node joins it again,"
                " CLUSTER FORGET {me} on that node ends this",
                "Another node's table names this node, and this node's table does not name that one.",
                "Send one of the two commands.",
            ),
            Message(
                "expected-another",
                WARNING,
                "node {node} at {host}:{port} expected another node at this address, and this node knows no other."
                " If this node has lost its nodes file: CLUSTER MEET {host} {port} {bus_port} on this node joins it"
                " again",
                "This node has a new id, at an address that a member of the cluster had.",
                "If the address is correct, send the command, and CLUSTER FORGET of the old id to the other nodes.",
            ),
            Message(
                "nodes-file-latest-lost",
                NOTICE,
                "{path}.latest can't be used ({reason}), so the older nodes file is",
                "The machine lost power while the node wrote its table. The last synced table is used.",
                NOTHING,
            ),
            Message(
                "node-renamed",
                NOTICE,
                "this node is now {node}",
                "CLUSTER RESET HARD gave it another id.",
                NOTHING,
            ),
            Message(
                "leaving-began",
                NOTICE,
                "CLUSTER LEAVING yes: this node gives its jobs away",
                "The node takes no new copies, and moves its jobs to other nodes.",
                "Stop it when CLUSTER INFO says that no jobs are left.",
            ),
            Message(
                "leaving-ended",
                NOTICE,
                "CLUSTER LEAVING no: this node stays",
                "The node takes jobs as before.",
                NOTHING,
            ),
            Message(
                "repair-started",
                NOTICE,
                "copies are missing, and are replaced: {nodes}; jobs that name these nodes: {jobs}",
                "Copies of jobs were lost with a node, and their holders replace them.",
                "INFO jobs shows the progress in repair_jobs_waiting.",
            ),
            Message(
                "repair-finished",
                NOTICE,
                "lost copies are replaced: {nodes}; copies made here: {made}, still missing: {missing}",
                "The jobs that this node is responsible for were checked. For missing copies there is no node that"
                " can take them.",
                "If copies are missing, add a node: the repair continues by itself.",
            ),
            Message(
                "cluster-reset",
                WARNING,
                "CLUSTER RESET {how} by client {client}; jobs removed: {jobs}",
                "The node forgot its jobs and its cluster.",
                NOTHING,
            ),
            Message(
                "link-up",
                VERBOSE,
                "link to node {node} at {address} is up",
                "This node can send messages to that one.",
                NOTHING,
            ),
            Message(
                "link-down",
                VERBOSE,
                "link to node {node} at {address} is down",
                "The connection broke or was closed; it is made again by itself.",
                "If it repeats, look at the network between both.",
            ),
            Message(
                "bus",
                WARNING,
                "{text}",
                "A connection of another node, or of a stranger, was closed. The reason is in brackets.",
                "Check that all nodes have the same `cluster-secret`, and that only nodes reach the bus port.",
            ),
            Message(
                "nodes-file-failed",
                WARNING,
                "can't write the nodes file {path}, trying again: {reason}",
                "The table of nodes on disk is older than the one in memory.",
                "Free space on the disk, or correct the directory.",
            ),
            Message(
                "nodes-file-written",
                NOTICE,
                "the nodes file {path} could be written again",
                "The table of nodes on disk is up to date again.",
                NOTHING,
            ),
            Message(
                "queue-settings-torn",
                NOTICE,
                "the last {bytes} bytes of {path} were not written completely, they are ignored",
                "The node ended while it wrote queue settings. No client got a reply to that change.",
                NOTHING,
            ),
            Message(
                "queue-settings-failed",
                WARNING,
                "can't write the queue settings, trying again: {reason}",
                "Clients of QUEUE SET get an error. Other nodes get the change when it is written.",
                "Free space on the disk, or correct the directory of the nodes file.",
            ),
            Message(
                "queue-settings-written",
                NOTICE,
                "the queue settings could be written again",
                "The file of queue settings is up to date again.",
                NOTHING,
            ),
            Message(
                "schedule-failed",
                WARNING,
                "schedule {schedule}: the job of tick {tick_ms} can't be added, trying again: {reason}",
                "The tick is tried for 60 seconds. Then it is missed, and CATCHUP decides what happens to it.",
                "Correct the cause that the reason names: a paused queue, too few nodes for the copies, no majority"
                " of the voters.",
            ),
            Message(
                "callback-failed",
                WARNING,
                "batch {batch}: its callback can't be added to the queue {queue}, trying again: {reason}",
                "The callback is tried every second, until it is added or the batch is deleted.",
                "Correct the cause that the reason names: a paused queue, or a setting of the queue that refuses it.",
            ),
            Message(
                "votes-torn",
                WARNING,
                "the last {bytes} bytes of {path} were not written completely: this voter does not remember all claims",
                "The machine lost power, or the process was killed, while the node wrote grants of claims. It does not"
                " vote until every lease that it may have granted is over. Then it asks the other voters.",
                "Wait for claim-lease-max. CLUSTER VOTERS shows the node as mute until then.",
            ),
            Message(
                "votes-failed",
                WARNING,
                "can't write the grants of claims, trying again: {reason}",
                "This voter answers no claim until it can write.",
                "Free space on the disk, or correct the directory of the nodes file.",
            ),
            Message(
                "votes-written",
                NOTICE,
                "the grants of claims could be written again",
                "The voter answers claims again.",
                NOTHING,
            ),
            Message(
                "voter-mute",
                WARNING,
                "this voter does not remember its grants and is mute for {seconds} s",
                "The file of grants was lost, was repaired, or is not the one that the list of voters names.",
                "Wait, or remove this node from the list and add it again: CLUSTER VOTERS REMOVE, then ADD.",
            ),
            Message(
                "voter-ready",
                NOTICE,
                "this voter has the grants of other voters, and votes in epoch {epoch}",
                "The node grants claims from now on.",
                NOTHING,
            ),
            Message(
                "voters-changed",
                NOTICE,
                "the list of voters has epoch {epoch} now; number of voters: {voters}",
                "An operator changed the list on this node or another.",
                NOTHING,
            ),
            Message(
                "voters-conflict",
                WARNING,
                "two lists of voters have epoch {epoch}: claims are refused",
                "Two operators made different first lists.",
                "Choose one list, and set it with CLUSTER VOTERS RESET FORCE.",
            ),
            Message(
                "nodes-file-lost",
                WARNING,
                "can't write the nodes file {path}: {reason}",
                "The node ended with an older table of nodes on disk.",
                "Free space on the disk. The node learns the rest from other nodes.",
            ),
        ),
    ),
    Section(
        "Clients and memory",
        (
            Message(
                "memory-refused",
                WARNING,
                "commands refused for memory: {count}; {used} of {maxmemory} bytes are used",
                "`maxmemory` is reached, and commands that need memory get -OOM.",
                "Add consumers, nodes or memory, or set `maxmemory-spill yes`.",
            ),
            Message(
                "memory-enough",
                NOTICE,
                "no command is refused for memory any more",
                "There was no -OOM for ten seconds.",
                NOTHING,
            ),
            Message(
                "maxmemory-below-use",
                WARNING,
                "maxmemory was set to {maxmemory}, below the {used} bytes in use:"
                " what is safe to forget is evicted, and ADDJOB is refused until there is room",
                "CONFIG SET maxmemory was given less than is used.",
                "Set it higher, or let consumers process jobs.",
            ),
            Message(
                "clients-refused",
                WARNING,
                "clients refused: {count}; maxclients is {maxclients}",
                "There are as many connections as `maxclients` allows.",
                "Look for clients that don't close connections (CLIENT LIST), or raise `maxclients`.",
            ),
            Message(
                "foreign-refused",
                WARNING,
                "clients of other machines refused by protected mode: {count}, the last from {client}",
                "The node has neither a password nor `bind`, so it serves its own machine only.",
                "If these clients are yours, set `requirepass`, or name the addresses with `bind`."
                " Otherwise close the port to them.",
            ),
            Message(
                "wrong-password",
                WARNING,
                "wrong passwords: {count}, the last from {client}",
                "AUTH or HELLO … AUTH was refused.",
                "Correct the program's password. If the address is unknown to you, close the port to it.",
            ),
            Message(
                "acl-file-failed",
                WARNING,
                "can't write the ACL file: {reason}",
                "A change of a user is in force, but a restart loses it.",
                "Make the directory of `aclfile` writable, then send ACL SAVE.",
            ),
            Message(
                "acl-rule-unknown",
                WARNING,
                "a rule of the user {user} that another node sent is not understood, and grants nothing",
                "Another node has a newer version. The user may do less here than there.",
                "Upgrade this node.",
            ),
            Message(
                "access-refused",
                WARNING,
                "commands refused for their users' permissions: {count}",
                "Users sent commands, or used names, that their rules do not allow. ACL LOG shows them.",
                "Correct the program, or the rules of its user.",
            ),
            Message(
                "limit-refused",
                WARNING,
                "commands and logins refused for their users' limits: {count}",
                "Users reached their limit of connections, queues or commands on this node.",
                "Look for a program that sends too many commands, or raise the user's limit.",
            ),
            Message(
                "config-set",
                NOTICE,
                "CONFIG SET {directive} {value}",
                "A directive was changed while the node runs. Secrets are not shown.",
                "To keep the change for the next start, use CONFIG REWRITE.",
            ),
            Message(
                "client-connected",
                VERBOSE,
                "client {client} connected, {clients} in all",
                "A connection was accepted.",
                NOTHING,
            ),
            Message(
                "client-gone",
                VERBOSE,
                "client {client} is gone, {clients} left",
                "A connection was closed, by either side.",
                NOTHING,
            ),
            Message(
                "flushall",
                WARNING,
                "DEBUG FLUSHALL by client {client}; jobs removed: {jobs}",
                "A client removed all jobs of this node.",
                NOTHING,
            ),
            Message(
                "debug-failed",
                WARNING,
                "DEBUG {command} failed: {reason}",
                "A DEBUG command could not do its work.",
                "The reason says why.",
            ),
            Message(
                "debug-death",
                WARNING,
                "DEBUG {how} by client {client}",
                "A client asked the process to die.",
                NOTHING,
            ),
        ),
    ),
    Section(
        "The process",
        (
            Message(
                "stall",
                WARNING,
                "this node stood still for {ms} ms",
                "For a second or more the node served no client: it was stopped, suspended, short of CPU, or busy"
                " with one command.",
                "Look at the machine's load and at SLOWLOG. `watchdog-period` logs the program's stack during a stall.",
            ),
            Message(
                "late",
                VERBOSE,
                "a timer was {ms} ms late",
                "The node was busy for a tenth of a second or more.",
                "Look at SLOWLOG and LATENCY if it repeats.",
            ),
            Message(
                "watchdog",
                WARNING,
                "the loop has been standing still for {seconds:g} seconds or more. It is here:",
                "The loop was blocked for `watchdog-period`; lines with the program's stack follow.",
                "Report it with the stack.",
            ),
            Message("watchdog-frame", WARNING, "{frame}", "A part of the stack after `watchdog`.", NOTHING),
            Message(
                "figures",
                DEBUG,
                "jobs: {jobs}, queues: {queues}, clients: {clients}, bytes: {memory};"
                " in {seconds} s commands: {commands}, messages: {messages}",
                "A summary of the node's figures, every ten seconds.",
                NOTHING,
            ),
            Message(
                "suppressed",
                WARNING,
                "further lines of '{message}' left out in {seconds} s: {count}",
                f"A message came more than {LINES_MAX} times in {SPAN_SECONDS} seconds; the rest was counted.",
                "See the message with that name.",
            ),
            Message(
                "connection-trouble",
                DEBUG,
                "{context}: {reason}",
                "The system reported an error of a connection. Errors of TLS are among them.",
                NOTHING,
            ),
        ),
    ),
    Section(
        "Journal",
        (
            Message(
                "journal-loading",
                NOTICE,
                "Loading the journal: {percent:.0f} %, {jobs:,} jobs so far",
                "The node reads its journal; until it is read, clients get -LOADING.",
                NOTHING,
            ),
            Message(
                "journal-loaded",
                NOTICE,
                "Journal loaded: {jobs:,} jobs in {seconds:.1f} seconds ({queued:,} queued, {waiting:,} waiting for"
                " their time, {acked:,} acknowledged, {expired:,} expired)",
                "The journal was read, and clients are served.",
                NOTHING,
            ),
            Message(
                "journal-once-jobs",
                WARNING,
                "{jobs:,} at-most-once jobs may have been delivered before: they are not queued again"
                " (SHOW and JSCAN show them)",
                "After a crash it is not known whether a consumer got them.",
                "List them with JSCAN, and add those again that were not done.",
            ),
            Message(
                "journal-cut",
                WARNING,
                "{what}: cut off, since the machine or the process died while they were written",
                "The last block of the journal is incomplete, as a crash leaves it.",
                NOTHING,
            ),
            Message(
                "journal-unfinished",
                NOTICE,
                "{what}: ignored, since the machine or the process died before the disk had them all",
                "With `appendfsync always`, the last write did not end. No reply was sent for it.",
                NOTHING,
            ),
            Message(
                "journal-start-waits",
                WARNING,
                "No client is served before the disk works. The node tries every second: {reason}",
                "The start has to write, but the disk does not accept it.",
                "Free space on the disk, or repair it.",
            ),
            Message(
                "journal-refused",
                WARNING,
                "Writes are refused, the journal can't be written: {reason}",
                "Commands whose effect must be recorded get -MISCONF.",
                "Free space on the disk, or repair it. Acks free a full disk, too.",
            ),
            Message(
                "journal-recovered",
                NOTICE,
                "The journal is written again, nothing is refused any more",
                "The disk works again, and all is recorded.",
                NOTHING,
            ),
            Message(
                "journal-rewritten",
                VERBOSE,
                "the journal was rewritten in {seconds} s: {before} bytes became {after}",
                "Space was freed.",
                NOTHING,
            ),
            Message(
                "journal-rewrite-failed",
                WARNING,
                "the rewrite of the journal ended early: {reason}",
                "Less space was freed than possible; no record is lost.",
                "The reason says why. The next rewrite starts by itself.",
            ),
            Message(
                "journal-damaged",
                WARNING,
                "Files of the journal are gone or damaged: all jobs are recorded again, in a new journal",
                "Memory has all jobs, so a new journal gets them.",
                "Check the disk: it lost or changed files.",
            ),
            Message(
                "journal-not-made",
                WARNING,
                "The journal can't be made: {reason}",
                "`appendonly yes` can't create a journal; the node tries again.",
                "Free space on the disk, or correct the directory.",
            ),
            Message(
                "journal-not-closed",
                WARNING,
                "the journal could not be closed: {reason}; its last records may be missing",
                "The node ended while its disk had errors.",
                "Check the disk before the next start.",
            ),
            Message(
                "journal-not-reloaded",
                WARNING,
                "The journal can't be read back, and memory is empty: the node ends. {reason}",
                "DEBUG LOADAOF failed halfway.",
                "Repair the journal with `disque-check-journal repair`, and start the node.",
            ),
            Message(
                "enqueue-once-kept",
                WARNING,
                "aof-enqueue-jobs-once could not be set to no in the config file: {reason}",
                "The next start would read the journal once more.",
                "Set it to no in the file.",
            ),
            Message(
                "backup",
                NOTICE,
                "Backup of the journal in {path}; files: {files}, bytes: {bytes}",
                "JOURNAL BACKUP is done.",
                NOTHING,
            ),
        ),
    ),
    Section(
        "Bodies on disk",
        (
            Message(
                "spill-failed",
                WARNING,
                "Bodies of jobs stay in memory, they can't be written to disk: {reason}",
                "`maxmemory-spill` has no effect for now.",
                "Free space on the disk, or repair it.",
            ),
            Message(
                "spill-recovered",
                NOTICE,
                "Bodies of jobs can be written to disk again",
                "`maxmemory-spill` works again.",
                NOTHING,
            ),
            Message(
                "spill-rescued",
                WARNING,
                "Bodies can't be read back from disk ({reason}): they are taken from the journal",
                "The spill files are damaged; the journal has the bodies.",
                "Check the disk.",
            ),
            Message(
                "spill-lost",
                WARNING,
                "The body of job {job} can't be read: {reason}; {consequence}",
                "The body of one job is lost on this node.",
                "Check the disk.",
            ),
        ),
    ),
    Section(
        "Events",
        (
            Message(
                "events-found",
                WARNING,
                "Events: {text}",
                "At its start the node found the log of events in an unusual state.",
                "Readers see the gap; see docs/events.md.",
            ),
            Message(
                "events-not-written",
                WARNING,
                "Events are not written: {reason}",
                "There is no log of events for now.",
                "Free space on the disk, or repair it. The node starts a new log by itself.",
            ),
            Message(
                "events-given-up",
                WARNING,
                "The log of events {log} is closed, the node goes on without: {reason}",
                "Events are missing until the node starts a new log, which it does by itself.",
                "Free space on the disk, or repair it.",
            ),
            Message(
                "events-not-read",
                WARNING,
                "The log of events can't be read: {reason}",
                "A reader of events got an error.",
                "Check the disk.",
            ),
            Message(
                "events-not-closed",
                WARNING,
                "The old log of events could not be closed: {reason}",
                "Its last events may be missing.",
                "Check the disk.",
            ),
            Message(
                "events-disk-silent",
                WARNING,
                "The disk with {directory} doesn't answer; the node starts without waiting for it",
                "The log of events begins when the disk answers.",
                "Check the disk.",
            ),
            Message(
                "events-cut-short",
                WARNING,
                "the log of events could not be closed: its last events may be missing",
                "The node ended while the disk had errors.",
                "Check the disk.",
            ),
            Message(
                "event-lines-process",
                WARNING,
                "The process that makes lines of events {reason}; the node makes them itself for a while",
                "A helper process ended. A new one is started later.",
                "If it repeats, look at the machine's memory.",
            ),
        ),
    ),
)

MESSAGES: Final = {message.name: message for section in SECTIONS for message in section.messages}


def line(name: str, **fields: Value) -> Line:
    """Return the line of a message with these fields; KeyError for a name that is not in the table."""
    message = MESSAGES[name]
    made = Line(message.template.format(**fields))
    made.name = name
    made.level = message.level
    made.fields = fields
    return made


def tell(host: Host, name: str, **fields: Value) -> None:
    """Log a message through the host."""
    said = line(name, **fields)
    host.log(said.level, said)
