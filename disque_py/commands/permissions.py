"""Permissions: the units of each command, with their categories and the arguments that are names.

The table of commands (table.py) takes the rows of a command from here, so a command without rows is a mistake that a
test finds. Such a command belongs to @admin, and so does an unknown subcommand. ACL CAT, COMMAND and docs/users.md
derive from these rows.

`names` returns the names in a request: queues, topics, locks, schedules, batches. A user needs all of them. It reads
options as the command does. Where it can't be sure, it returns words that are no names, never fewer names than the
command uses. `ids` and `tokens` return the words that may name jobs. Spec US2, US4, US6.
"""

from __future__ import annotations

from typing import Final

from disque_py.core.units import Access, Test, Unit, Words

# -- the words of a request -------------------------------------------------------------------------


def first(argv: list[bytes]) -> list[bytes]:
    """Return the first argument."""
    return argv[1:2]


def second(argv: list[bytes]) -> list[bytes]:
    """Return the second argument: the one behind a subcommand."""
    return argv[2:3]


def second_and_third(argv: list[bytes]) -> list[bytes]:
    """Return the second and the third argument."""
    return argv[2:4]


def third(argv: list[bytes]) -> list[bytes]:
    """Return the third argument."""
    return argv[3:4]


def both(argv: list[bytes]) -> list[bytes]:
    """Return the first two arguments."""
    return argv[1:3]


def all_words(argv: list[bytes]) -> list[bytes]:
    """Return all arguments: ids or tokens, and options behind them."""
    return argv[1:]


def _behind(argv: list[bytes], option: bytes, at: int) -> list[bytes]:
    """Return each word behind this option, from `at` on, also where it is another option's value."""
    size = len(option)
    return [
        argv[index + 1]
        for index in range(at, len(argv) - 1)
        if len(argv[index]) == size and argv[index].lower() == option
    ]


def _jscan(argv: list[bytes]) -> list[bytes]:
    return _behind(argv, b"queue", 1)


def _queue_set(argv: list[bytes]) -> list[bytes]:
    """The queue, and its dead-letter queue: a job goes there without asking its producer or consumer."""
    return [*argv[2:3], *_dead_letters(argv)]


def _dead_letters(argv: list[bytes]) -> list[bytes]:
    return [argv[at + 1] for at in range(3, len(argv) - 1, 2) if argv[at].lower() == b"dead-letter" and argv[at + 1]]


def _qredrive(argv: list[bytes]) -> list[bytes]:
    return [*argv[1:2], *_behind(argv, b"to", 2)]


def _movejob(argv: list[bytes]) -> list[bytes]:
    return _behind(argv, b"to", 2)


def _qredrive_to(argv: list[bytes]) -> list[bytes]:
    return _behind(argv, b"to", 2)


# Options of GETJOB -> the number of words behind each. A word that is none of these ends the reading of options.
GETJOB_OPTIONS: Final = {
    b"nohang": 0,
    b"timeout": 1,
    b"count": 1,
    b"withcounters": 0,
    b"withmeta": 0,
    b"withlease": 0,
    b"lease": 1,
    b"leasems": 1,
    b"token": 1,
    b"where": 2,
}


# These words end the options of a GETJOB.
_SOURCES: Final = (b"from", b"frommatch")


def _source(argv: list[bytes]) -> tuple[int, bool]:
    """Return where the queues or patterns of a GETJOB begin, at the latest, and whether they are patterns."""
    at = 1
    while at < len(argv):
        word = argv[at].lower()
        if word in _SOURCES:
            return at + 1, word == b"frommatch"
        count = GETJOB_OPTIONS.get(word, -1)
        if count < 0:
            break
        at += 1 + count
    while at < len(argv) and argv[at].lower() not in _SOURCES:
        at += 1
    return at + 1, False


def _getjob(argv: list[bytes]) -> list[bytes]:
    """The queues. Patterns are no names: GETJOB narrows them to those of the user."""
    first, is_match = _source(argv)
    return [] if is_match else argv[first:]


def _getjob_token(argv: list[bytes]) -> list[bytes]:
    return _behind(argv[: _source(argv)[0]], b"token", 1)


def _schedule_set(argv: list[bytes]) -> list[bytes]:
    return [*argv[2:3], *_behind(argv, b"queue", 3), *_behind(argv, b"batch", 3)]


def _schedule_queue(argv: list[bytes]) -> list[bytes]:
    """The queue. Each option before it has one value."""
    return next(([argv[at + 1]] for at in range(3, len(argv) - 1, 2) if argv[at].lower() == b"queue"), [])


def _addjob(argv: list[bytes]) -> list[bytes]:
    return [*argv[1:2], *_behind(argv, b"batch", 4)]


def _publish(argv: list[bytes]) -> list[bytes]:
    return [*argv[2:3], *_behind(argv, b"batch", 5)]


def _batch_close(argv: list[bytes]) -> list[bytes]:
    return [*argv[2:3], *_callback_queue(argv)]


def _callback_queue(argv: list[bytes]) -> list[bytes]:
    return argv[4:5]


# -- whether a request changes something -------------------------------------------------------------


def always(argv: list[bytes]) -> bool:
    """Return True: each request is a change."""
    return True


def _has_value(argv: list[bytes]) -> bool:
    """Return whether anything follows the subcommand. Without it the state is shown."""
    return len(argv) > 2


def _is_reset(argv: list[bytes]) -> bool:
    return len(argv) > 1 and argv[1].lower() == b"reset"


def _is_log_reset(argv: list[bytes]) -> bool:
    return len(argv) > 2 and argv[2].lower() == b"reset"


def _sets_pause(argv: list[bytes]) -> bool:
    return any(word.lower() != b"state" for word in argv[2:])


# -- the rows ---------------------------------------------------------------------------------------


def _u(
    name: str,
    categories: str,
    names: Words | None = None,
    *,
    makes: Words | None = None,
    awaits: Words | None = None,
    ids: Words | None = None,
    tokens: Words | None = None,
    is_change: Test | None = None,
) -> Unit:
    return Unit(name, frozenset(categories.split()), names, makes, awaits, ids, tokens, is_change)


# fmt: off
UNITS: Final = (
    # The connection. AUTH, HELLO, RESET and QUIT are never refused: a client must be able to log in.
    _u("auth", "connection"),
    _u("hello", "connection"),
    _u("reset", "connection"),
    _u("ping", "connection"),
    _u("echo", "connection"),
    _u("select", "connection"),
    _u("time", "connection"),
    _u("command", "connection"),
    _u("client|id", "connection"),
    _u("client|info", "connection"),
    _u("client|getname", "connection"),
    _u("client|setname", "connection"),
    _u("client|setinfo", "connection"),
    _u("client|reply", "connection"),
    _u("client|no-touch", "connection"),
    _u("client|tracking", "connection"),
    _u("acl|whoami", "connection"),
    _u("acl|cat", "connection"),
    _u("acl|genpass", "connection"),
    # Figures.
    _u("info", "read"),
    _u("qlen", "read", first),
    _u("qstat", "read", first),
    _u("qscan", "read"),
    _u("jscan", "read", _jscan),
    _u("show", "read", ids=first),
    _u("queue|get", "read", second),
    _u("queue|list", "read"),
    _u("lock|show", "read", second),
    _u("lock|list", "read"),
    _u("schedule|get", "read", second),
    _u("batch|show", "produce read", second),
    _u("batch|list", "read"),
    _u("schedule|list", "read"),
    _u("schedule|next", "read", second),
    _u("topic|list", "read"),
    _u("qtask|list", "read"),
    _u("qtask|show", "read"),
    # Bodies and metadata.
    _u("qpeek", "bodies", first),
    _u("qdepth", "bodies", first),
    _u("events|info", "bodies"),
    _u("events|read", "bodies"),
    _u("events|seek", "bodies"),
    _u("events|tail", "bodies"),
    # Producers.
    _u("addjob", "produce", _addjob, makes=first),
    _u("canceljob", "produce operate", ids=all_words, is_change=always),
    _u("topic|publish", "produce", _publish, makes=second),
    _u("jobid", "produce read", first),
    _u("waitjob", "produce", ids=all_words),
    _u("batch|close", "produce", _batch_close, awaits=_callback_queue),
    _u("batch|wait", "produce read", second),
    # Consumers.
    _u("getjob", "consume", _getjob, makes=_getjob, tokens=_getjob_token),
    _u("ackjob", "consume", ids=all_words),
    _u("fastack", "consume", ids=all_words),
    _u("nack", "consume", ids=all_words),
    _u("working", "consume", ids=first),
    _u("progress", "consume", ids=first),
    _u("acktoken", "consume", tokens=all_words),
    _u("nacktoken", "consume", tokens=all_words),
    _u("extendtoken", "consume", tokens=first),
    _u("lock|acquire", "consume", second),
    _u("lock|extend", "consume", second),
    _u("lock|release", "consume", second),
    # Operators of queues.
    _u("deljob", "operate", ids=all_words, is_change=always),
    _u("enqueue", "operate", ids=all_words, is_change=always),
    _u("dequeue", "operate", ids=all_words, is_change=always),
    _u("promote", "operate", ids=all_words, is_change=always),
    _u("reschedule", "operate", ids=first, is_change=always),
    _u("movejob", "operate", _movejob, makes=_movejob, ids=all_words, is_change=always),
    _u("pause", "operate", first, makes=first, is_change=_sets_pause),
    _u("qpurge", "operate", first, is_change=always),
    _u("qmove", "operate", both, makes=second, is_change=always),
    _u("qredrive", "operate", _qredrive, makes=_qredrive_to, is_change=always),
    _u("qrebalance", "operate", first, is_change=always),
    _u("qtask|cancel", "operate", is_change=always),
    _u("batch|del", "produce operate", second, is_change=always),
    _u("schedule|set", "operate", _schedule_set, awaits=_schedule_queue, is_change=always),
    _u("schedule|pause", "operate", second, is_change=always),
    _u("schedule|resume", "operate", second, is_change=always),
    _u("schedule|del", "operate", second, is_change=always),
    _u("schedule|run", "operate", second, is_change=always),
    _u("topic|bind", "operate", second_and_third, awaits=third, is_change=always),
    _u("topic|unbind", "operate", second_and_third, is_change=always),
    _u("queue|set", "operate", _queue_set, awaits=_dead_letters, is_change=always),
    _u("queue|reset", "operate", second, is_change=always),
    # Operators of nodes.
    _u("acl|setuser", "admin", is_change=always),
    _u("acl|getuser", "admin"),
    _u("acl|deluser", "admin", is_change=always),
    _u("acl|list", "admin"),
    _u("acl|users", "admin"),
    _u("acl|log", "admin", is_change=_is_log_reset),
    _u("acl|save", "admin", is_change=always),
    _u("acl|load", "admin", is_change=always),
    _u("acl|dryrun", "admin"),
    _u("bgrewriteaof", "admin", is_change=always),
    _u("client|list", "admin"),
    _u("client|kill", "admin", is_change=always),
    _u("client|pause", "admin", is_change=always),
    _u("client|unpause", "admin", is_change=always),
    _u("client|no-evict", "admin"),
    _u("cluster|meet", "admin", is_change=always),
    _u("cluster|nodes", "admin"),
    _u("cluster|myid", "admin"),
    _u("cluster|info", "admin"),
    _u("cluster|saveconfig", "admin", is_change=always),
    _u("cluster|forget", "admin", is_change=always),
    _u("cluster|reset", "admin", is_change=always),
    _u("cluster|leaving", "admin", is_change=_has_value),
    _u("cluster|voters", "admin", is_change=_has_value),
    _u("config|get", "admin"),
    _u("config|set", "admin", is_change=always),
    _u("config|resetstat", "admin", is_change=always),
    _u("config|rewrite", "admin", is_change=always),
    _u("debug", "admin", is_change=always),
    _u("journal", "admin", is_change=always),
    _u("latency", "admin", is_change=_is_reset),
    _u("loadjob", "admin"),
    _u("monitor", "admin"),
    _u("shutdown", "admin", is_change=always),
    _u("slowlog", "admin", is_change=_is_reset),
)
# fmt: on


def access_of(command: str) -> Access:
    """Return the units of a command. Without rows it is one unit for @admin."""
    found = tuple([unit for unit in UNITS if unit.name.partition("|")[0] == command])
    return Access(command, found or (_u(command, "admin", is_change=always),))
