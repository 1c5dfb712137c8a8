"""Permissions in force: each command of the table, names, ids, tokens, limits."""

from __future__ import annotations

import re
from random import Random

import pytest

from brokers import ask, ask_parsed, make_broker, make_client, pass_time, port_of
from copies import advance
from disque_py.commands.permissions import UNITS
from disque_py.commands.table import COMMANDS
from disque_py.core.client import RUNNING, WAITS_FOR_ENDS, WAITS_FOR_JOBS
from disque_py.node import dispatch

FREE = ("auth", "hello", "reset")
NO_COMMAND = b"-NOPERM this user has no permissions to run the '"
NO_NAME = b"-NOPERM No permissions to access a queue\r\n"
ARITY = {command.name: abs(command.arity) for command in COMMANDS}
EXACT = [command.name for command in COMMANDS if command.arity > 0]
NEVER_RUN = ("shutdown", "debug", "monitor")


def make_user(broker, *rules, name="ann"):
    """Return a client that has logged in as a new user with these rules."""
    admin = make_client(broker, "127.0.0.1:1")
    assert ask(broker, admin, "ACL", "SETUSER", name, "on", ">pw", *rules) == b"+OK\r\n"
    client = make_client(broker, "127.0.0.1:2")
    assert ask(broker, client, "AUTH", name, "pw") == b"+OK\r\n"
    return client


def said(client):
    """Return the replies to a client that have not been sent yet, and remove them."""
    data = b"".join(client.out)
    client.out.clear()
    return data


def request_of(unit, name="q"):
    command, _, subcommand = unit.name.partition("|")
    argv = [command, *([subcommand] if subcommand else []), name]
    if command == "getjob":
        return ["getjob", "nohang", "from", name]
    if command == "jscan":
        return ["jscan", "queue", name]
    if command == "movejob":
        return ["movejob", "x", "to", name]
    argv += ["x"] * (max(ARITY[command], 5 if subcommand == "acquire" else 0) - len(argv))
    return argv[: ARITY[command]] if command in EXACT else argv


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit.name not in FREE], ids=lambda unit: unit.name)
def test_a_command_needs_one_of_its_categories(unit):
    """Spec US2, US4."""
    broker = make_broker()
    others = [f"-@{category}" for category in unit.categories]
    client = make_user(broker, "~*", "+@all", *others)
    assert ask(broker, client, *request_of(unit)).startswith(NO_COMMAND + unit.name.encode())
    assert client.out == []
    for category in unit.categories:
        ask(broker, make_client(broker), "ACL", "SETUSER", "ann", "-@all", f"+@{category}")
        if unit.name not in NEVER_RUN:
            assert not ask(broker, client, *request_of(unit)).startswith(b"-NOPERM")


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit.names is not None], ids=lambda unit: unit.name)
def test_a_command_needs_its_names(unit):
    """Spec US3, US4."""
    broker = make_broker()
    client = make_user(broker, "~mine-*", "+@all")
    assert ask(broker, client, *request_of(unit, "other")) == NO_NAME
    assert broker.queues == {}
    if unit.name not in ("qmove",):
        assert not ask(broker, client, *request_of(unit, "mine-1")).startswith(b"-NOPERM")


@pytest.mark.parametrize("name", FREE)
def test_a_client_may_always_log_in(name):
    broker = make_broker()
    client = make_user(broker)
    words = {"auth": ("AUTH", "default", "x"), "hello": ("HELLO", 3, "AUTH", "default", "x"), "reset": ("RESET",)}[name]
    assert not ask(broker, client, *words).startswith(b"-")
    assert client.user is None


def test_unknown_subcommands_need_the_whole_command():
    broker = make_broker()
    client = make_user(broker, "+@read")
    assert ask(broker, client, "QUEUE", "NOVEL", "x").startswith(NO_COMMAND + b"queue'")
    assert ask(broker, make_user(broker, "+queue", name="bob"), "QUEUE", "NOVEL", "x").startswith(b"-ERR")


def test_jobs_of_other_queues_are_out_of_reach_where_they_are_known():
    """Spec US6."""
    broker = make_broker()
    job_id = ask(broker, make_client(broker), "ADDJOB", "other", "body", 0)[1:-2]
    unknown = job_id[:20] + b"A" * 12 + job_id[32:]
    client = make_user(broker, "~mine", "+@all")
    for words in (("ACKJOB",), ("FASTACK",), ("DELJOB",), ("SHOW",), ("NACK",), ("CANCELJOB",), ("ENQUEUE",),
                  ("DEQUEUE",), ("WORKING",), ("PROMOTE",), ("RESCHEDULE",)):  # fmt: skip
        assert ask(broker, client, *words, job_id) == NO_NAME, words
    assert ask(broker, client, "MOVEJOB", job_id, "TO", "mine") == NO_NAME
    assert ask(broker, client, "ACKJOB", unknown, job_id) == NO_NAME
    assert broker.find(job_id) is not None
    assert ask(broker, client, "SHOW", unknown) == b"$-1\r\n"


def test_a_job_is_moved_to_a_queue_of_the_user_only():
    """Spec US4, MV10."""
    broker = make_broker()
    job_id = ask(broker, make_client(broker), "ADDJOB", "mine", "body", 0)[1:-2]
    client = make_user(broker, "~mine", "~mine-*", "+@operate")
    for words in (("TO", "other"), ("TO", "mine-2", "to", "other"), ("TO", "other", "TO", "mine-2")):
        assert ask(broker, client, "MOVEJOB", job_id, *words) == NO_NAME
    assert ask(broker, client, "MOVEJOB", job_id, "TO", "mine-2") == b":1\r\n"
    assert ask(broker, make_user(broker, "~*", "+@consume", name="bob"), "MOVEJOB", job_id, "TO", "q").startswith(
        NO_COMMAND + b"movejob'"
    )


def test_a_token_does_not_open_the_jobs_of_another_queue():
    """Spec US6."""
    broker = make_broker()
    admin = make_client(broker)
    ask(broker, admin, "ADDJOB", "other", "secret", 0)
    assert b"secret" in ask(broker, admin, "GETJOB", "NOHANG", "TOKEN", "t", "FROM", "other")
    client = make_user(broker, "~mine", "+@all")
    for words in (("GETJOB", "NOHANG", "TOKEN", "t", "FROM", "mine"), ("ACKTOKEN", "t"), ("NACKTOKEN", "a", "t"),
                  ("EXTENDTOKEN", "t", 9)):  # fmt: skip
        assert ask(broker, client, *words) == NO_NAME


@pytest.mark.parametrize(
    ("words", "reply"),
    [(("ACKTOKEN", "t"), b":1\r\n"), (("NACKTOKEN", "t"), b":1\r\n"), (("EXTENDTOKEN", "t", 9), b":1\r\n"),
     (("GETJOB", "NOHANG", "TOKEN", "t", "FROM", "mine-1"), b"*1\r\n*3\r\n$6\r\nmine-2\r\n")],
)  # fmt: skip
def test_a_job_that_left_its_delivery_for_another_queue_does_not_close_the_token(words, reply):
    """Spec US6: its lease is over, so no command with this token acts on it."""
    broker = make_broker()
    admin = make_client(broker)
    for queue in ("mine-1", "mine-2"):
        ask(broker, admin, "ADDJOB", queue, "body", 0, "RETRY", 2)
    client = make_user(broker, "~mine-*", "+@consume")
    [[_, left, _], [_, kept, _]] = ask_parsed(
        broker, client, "GETJOB", "COUNT", 2, "TOKEN", "t", "FROM", "mine-1", "mine-2"
    )
    ask(broker, client, "WORKING", kept, 60)
    advance(broker, 3_000)
    assert ask(broker, admin, "MOVEJOB", left, "TO", "other") == b":1\r\n"
    assert ask(broker, client, *words).startswith(reply)


def test_each_command_of_a_pipeline_is_checked():
    """Spec US4."""
    broker = make_broker()
    client = make_user(broker, "~q", "+@produce", "+@connection")
    requests = [[b"ADDJOB", b"q", b"1", b"0"], [b"ADDJOB", b"x", b"2", b"0"], [b"PING"], [b"QLEN", b"q"]]
    assert dispatch.execute(broker, client, requests) == 4
    replies = b"".join(client.out).split(b"\r\n")
    assert [reply[:7] for reply in replies[:4]] == [b"+D-" + replies[0][3:7], b"-NOPERM", b"+PONG", b"-NOPERM"]
    assert list(broker.queues) == [b"q"]


def test_a_change_of_the_own_user_holds_for_the_next_command_of_the_pipeline():
    broker = make_broker()
    client = make_user(broker, "~*", "+@all")
    dispatch.execute(broker, client, [[b"ACL", b"SETUSER", b"ann", b"-@read"], [b"QLEN", b"q"]])
    assert b"".join(client.out).startswith(b"+OK\r\n-NOPERM")


def test_default_gets_rules_while_it_is_connected():
    broker = make_broker()
    plain, admin = make_client(broker), make_user(broker, "~*", "+@all")
    assert ask(broker, admin, "ACL", "SETUSER", "default", "-@all", "+ping") == b"+OK\r\n"
    assert ask(broker, plain, "QLEN", "q").startswith(b"-NOPERM")
    assert ask(broker, make_client(broker), "QLEN", "q").startswith(b"-NOPERM")
    assert ask(broker, admin, "ACL", "SETUSER", "default", "+@all") == b"+OK\r\n"
    assert plain.user is None


def test_lists_show_the_names_of_the_user():
    """Spec US5."""
    broker = make_broker()
    admin = make_client(broker)
    for name in ("mine-1", "other"):
        ask(broker, admin, "ADDJOB", name, "body", 0, "META", "k", "v")
        ask(broker, admin, "QUEUE", "SET", name, "lease", 5)
    client = make_user(broker, "~mine-*", "+@all")
    assert ask_parsed(broker, client, "QSCAN", "BUSYLOOP")[1] == [b"mine-1"]
    assert ask_parsed(broker, client, "QUEUE", "LIST") == [b"mine-1"]
    assert len(ask_parsed(broker, client, "JSCAN", "BUSYLOOP")[1]) == 1
    assert len(ask_parsed(broker, admin, "JSCAN", "BUSYLOOP")[1]) == 2


def test_a_publication_needs_its_batch():
    """Spec US4: the batch is a name, as in ADDJOB."""
    broker = make_broker()
    ask(broker, make_client(broker), "TOPIC", "BIND", "news", "mail")
    client = make_user(broker, "~news", "~mine", "+@produce")
    assert ask(broker, client, "TOPIC", "PUBLISH", "news", "body", 0, "BATCH", "other") == NO_NAME
    assert ask(broker, client, "TOPIC", "PUBLISH", "news", "body", 0, "BATCH", "mine") != NO_NAME


def test_bindings_show_the_queues_of_the_user():
    """Spec US5."""
    broker = make_broker()
    admin = make_client(broker)
    for topic, queue in (("news", "mail"), ("news", "payroll"), ("other", "mail")):
        ask(broker, admin, "TOPIC", "BIND", topic, queue)
    client = make_user(broker, "~news", "~mail", "+@read")
    assert ask_parsed(broker, client, "TOPIC", "LIST") == [[b"news", b"mail", []]]


def test_bodies_need_a_category_of_their_own():
    """Spec US2."""
    broker = make_broker()
    job_id = ask(broker, make_client(broker), "ADDJOB", "q", "secret", 0, "META", "k", "hidden")[1:-2]
    client = make_user(broker, "~*", "+@read")
    for words in (("SHOW", job_id), ("SHOW", job_id, "CLUSTER"), ("JSCAN", "REPLY", "all")):
        shown = ask(broker, client, *words)
        assert job_id in shown
        assert b"secret" not in shown
        assert b"hidden" not in shown
    assert ask(broker, client, "QPEEK", "q", 1).startswith(b"-NOPERM")
    assert ask(broker, client, "QDEPTH", "q", "BY", "k").startswith(b"-NOPERM")
    ask(broker, make_client(broker), "ACL", "SETUSER", "ann", "+@bodies")
    assert b"secret" in ask(broker, client, "SHOW", job_id)


def test_long_lists_of_a_restricted_user_are_bounded():
    broker = make_broker()
    client = make_user(broker, "~mine", "+@all")
    assert ask(broker, client, "ACKJOB", *["x"] * 9_000).startswith(b"-NOPERM a user whose names are restricted")


def test_clients_of_a_removed_or_disabled_user_are_disconnected():
    """Spec US8."""
    for words in (("DELUSER", "ann"), ("SETUSER", "ann", "off")):
        broker = make_broker()
        client = make_user(broker, "~*", "+@all")
        ask(broker, make_client(broker), "ACL", *words)
        assert port_of(client).closed == [False]


def test_a_user_that_removes_itself_gets_the_reply_first():
    broker = make_broker()
    client = make_user(broker, "~*", "+@all")
    assert ask(broker, client, "ACL", "DELUSER", "ann") == b":1\r\n"
    assert client.close_asked
    assert port_of(client).closed == []


def test_a_client_that_waits_for_jobs_without_permission_is_disconnected():
    """Spec US8."""
    broker = make_broker()
    client = make_user(broker, "~a", "~b", "+@consume")
    ask(broker, client, "GETJOB", "FROM", "a", "b")
    assert client.waiting == WAITS_FOR_JOBS
    admin = make_client(broker)
    ask(broker, admin, "ACL", "SETUSER", "ann", "+@read")
    assert port_of(client).closed == []
    ask(broker, admin, "ACL", "SETUSER", "ann", "resetkeys", "~a")
    assert port_of(client).closed == [False]


@pytest.mark.parametrize(
    ("rule", "error"),
    [("-@all", NO_COMMAND + b"waitjob' command\r\n"), ("-waitjob", NO_COMMAND + b"waitjob' command\r\n"),
     ("resetkeys", NO_NAME)],
)  # fmt: skip
def test_a_client_that_waits_for_an_end_is_told_when_it_loses_the_permission(rule, error):
    """Spec US8."""
    broker = make_broker()
    admin = make_client(broker)
    job_id = ask_parsed(broker, admin, "ADDJOB", "a", "body", 0)
    client = make_user(broker, "~a", "+@produce", "+ping")
    assert ask(broker, client, "WAITJOB", job_id, "TIMEOUT", 500) == b""
    ask(broker, admin, "ACL", "SETUSER", "ann", "-getjob")
    assert client.waiting == WAITS_FOR_ENDS
    ask(broker, admin, "ACL", "SETUSER", "ann", rule, "+ping")
    assert said(client) == error
    assert (client.waiting, client.blocked, broker.waits.blocked_count) == (RUNNING, None, 0)
    assert broker.stats.access_refusals == 1
    assert ask(broker, client, "PING") == b"+PONG\r\n"
    advance(broker, 600)
    assert client.out == []


def test_a_client_that_waits_for_a_batch_is_told_when_it_loses_the_permission():
    """Spec US8."""
    broker = make_broker()
    ask(broker, make_client(broker), "ADDJOB", "a", "body", 0, "BATCH", "b")
    client = make_user(broker, "~b", "+@read", "+ping")
    assert ask(broker, client, "BATCH", "WAIT", "b", "TIMEOUT", 500) == b""
    ask(broker, make_client(broker), "ACL", "SETUSER", "ann", "-@read")
    assert said(client) == NO_COMMAND + b"batch|wait' command\r\n"
    assert ask(broker, client, "PING") == b"+PONG\r\n"
    advance(broker, 600)
    assert client.out == []
    assert not broker.waits.incremental
    assert not broker.waits.stalled


def test_a_client_that_monitors_is_disconnected_with_its_permission():
    broker = make_broker()
    client = make_user(broker, "+monitor")
    ask(broker, client, "MONITOR")
    ask(broker, make_client(broker), "ACL", "SETUSER", "ann", "-monitor")
    assert port_of(client).closed == [False]


def test_the_connections_of_a_user_are_limited():
    """Spec US11."""
    broker = make_broker()
    make_user(broker, "+@all", "limit:connections=1")
    second = make_client(broker)
    assert ask(broker, second, "AUTH", "ann", "pw") == b"-LIMIT the user may have 1 connections to this node\r\n"
    assert second.user is None


def test_the_commands_of_a_user_are_limited():
    """Spec US11."""
    broker = make_broker()
    client = make_user(broker, "+@all", "limit:rate=2/1s")
    replies = [ask(broker, client, "PING") for _ in range(3)]
    assert replies[:2] == [b"+PONG\r\n"] * 2
    assert replies[2] == b"-LIMIT the user may run 2 commands in 1000 ms on this node\r\n"
    pass_time(broker, 1_000)
    assert ask(broker, client, "PING") == b"+PONG\r\n"


def test_the_queues_that_a_user_makes_are_limited():
    """Spec US11."""
    broker = make_broker()
    client = make_user(broker, "~*", "+@all", "limit:queues=2")
    job_id = ask(broker, client, "ADDJOB", "a", "1", 0)
    assert job_id.startswith(b"+D-")
    assert ask(broker, client, "ADDJOB", "b", "1", 0).startswith(b"+D-")
    refused = b"-LIMIT the user may bring 2 queues into being on this node\r\n"
    assert ask(broker, client, "ADDJOB", "c", "1", 0) == refused
    assert ask(broker, client, "PAUSE", "c", "in") == refused
    assert ask(broker, client, "ADDJOB", "a", "1", 0).startswith(b"+D-")
    broker.drop_queue(broker.queues[b"b"])
    pass_time(broker, 1_000)
    assert ask(broker, client, "ADDJOB", "c", "1", 0).startswith(b"+D-")


@pytest.mark.parametrize("words", [("ADDJOB", "news"), ("TOPIC", "PUBLISH", "news")])
def test_the_queues_that_a_topic_makes_are_limited(words):
    """The topic itself is no queue, and a queue whose filter takes no job of the user is not made. Spec US11."""
    broker = make_broker()
    admin = make_client(broker)
    for queue in ("a", "b"):
        ask(broker, admin, "TOPIC", "BIND", "news", queue, "WHERE", "for", queue)
    client = make_user(broker, "~*", "+@all", "limit:queues=1")
    for _ in range(2):
        assert not ask(broker, client, *words, "1", 0, "META", "for", "a").startswith(b"-")
    assert ask(broker, client, *words, "1", 0, "META", "for", "b").startswith(b"-LIMIT the user may bring 1 queues")
    assert list(broker.queues) == [b"a"]
    ask(broker, admin, "ADDJOB", "b", "1", 0)
    assert not ask(broker, client, *words, "1", 0, "META", "for", "b").startswith(b"-")
    assert ask(broker, client, "TOPIC", "PUBLISH").startswith(b"-ERR")


LATER = (
    ("SCHEDULE", "SET", "s-{0}", "EVERY", "5s", "QUEUE", "{0}", "META", "queue", "x"),
    ("TOPIC", "BIND", "news", "{0}"),
    ("QUEUE", "SET", "source-{0}", "attempts", 3, "dead-letter", "{0}"),
    ("BATCH", "CLOSE", "batch-{0}", "CALLBACK", "{0}", "body"),
)


@pytest.mark.parametrize("words", LATER, ids=lambda words: words[0])
def test_a_queue_that_a_command_names_for_later_counts_as_long_as_it_is_named(words):
    """The node itself brings it into being: by a tick, a publication, a dead letter or a callback. Spec US11."""
    broker = make_broker()
    client = make_user(broker, "~*", "+@all", "limit:queues=2")
    for batch in "abcd":
        ask(broker, make_client(broker), "ADDJOB", "jobs", "1", 0, "BATCH", f"batch-{batch}")

    def names(queue):
        reply = ask(broker, client, *[str(word).format(queue) for word in words])
        return not reply.startswith(b"-LIMIT the user may bring 2 queues into being on this node")

    assert [names(queue) for queue in "abc"] == [True, True, False]
    pass_time(broker, 5_000)
    assert [names(queue) for queue in "acb"] == [True, False, True]
    for ended in ("SCHEDULE DEL s-a", "TOPIC UNBIND news a", "QUEUE RESET source-a", "BATCH DEL batch-a"):
        ask(broker, make_client(broker), *ended.split())
    broker.queues.pop(b"a", None)
    pass_time(broker, 1_000)
    assert [names(queue) for queue in "cd"] == [True, False]


def test_a_queue_that_exists_or_a_topic_may_be_named_for_later():
    """Spec US11: the queues of a topic count for the users that bound them."""
    broker = make_broker()
    admin = make_client(broker)
    ask(broker, admin, "ADDJOB", "there", "1", 0)
    ask(broker, admin, "TOPIC", "BIND", "news", "elsewhere")
    client = make_user(broker, "~*", "+@all", "limit:queues=1")
    for queue in ("there", "news", "new"):
        assert ask(broker, client, "SCHEDULE", "SET", queue, "EVERY", "5s", "QUEUE", queue) == b"+OK\r\n"
    assert ask(broker, client, "SCHEDULE", "SET", "s", "EVERY", "5s", "QUEUE", "newer").startswith(b"-LIMIT")


def test_multi_does_not_bypass_permissions():
    broker = make_broker()
    client = make_user(broker, "+ping")
    ask(broker, client, "MULTI")
    assert ask(broker, client, "QLEN", "q").startswith(b"-EXECABORT")
    assert ask(broker, client, "EXEC").startswith(b"-EXECABORT")
    assert ask(broker, client, "QLEN", "q").startswith(b"-NOPERM")


def test_a_renamed_command_keeps_its_permissions():
    broker = make_broker(rename_command=(("qlen", "length"),))
    client = make_user(broker, "+@connection")
    assert ask(broker, client, "LENGTH", "q").startswith(NO_COMMAND + b"qlen'")


def test_frommatch_serves_from_the_queues_of_the_user():
    """Spec US5."""
    broker = make_broker()
    admin = make_client(broker)
    for name in ("mail-1", "mail-2", "sms-1", "other"):
        ask(broker, admin, "ADDJOB", name, f"of-{name}", 0)
    client = make_user(broker, "~mail-*", "~sms-?", "+@consume")
    assert ask(broker, client, "GETJOB", "NOHANG", "FROMMATCH", "*") == NO_NAME
    ask(broker, admin, "ACL", "SETUSER", "ann", "resetkeys", "~mail-*", "~sms-1")
    served = ask(broker, client, "GETJOB", "NOHANG", "COUNT", 9, "FROMMATCH", "*")
    assert [word in served for word in (b"of-mail-1", b"of-mail-2", b"of-sms-1", b"of-other")] == [True] * 3 + [False]
    for pattern in ("*-1", "oth*", "ma*r"):
        assert ask(broker, client, "GETJOB", "NOHANG", "FROMMATCH", pattern) == NO_NAME
    assert ask(broker, client, "GETJOB", "NOHANG", "FROMMATCH", "mail-?") == b"*-1\r\n"


def test_a_client_that_waits_for_patterns_without_permission_is_disconnected():
    """Spec US8."""
    broker = make_broker()
    client = make_user(broker, "~mail-*", "+@consume")
    ask(broker, client, "GETJOB", "FROMMATCH", "mail-*")
    assert client.waiting == WAITS_FOR_JOBS
    ask(broker, make_client(broker), "ACL", "SETUSER", "ann", "resetkeys", "~mail-eu-*")
    assert port_of(client).closed == [False]


def test_bodies_of_schedules_need_their_category_and_lists_show_own_ones():
    """Spec US2, US5."""
    broker = make_broker()
    admin = make_client(broker)
    for name in ("mine", "other"):
        ask(broker, admin, "SCHEDULE", "SET", name, "EVERY", "5s", "QUEUE", "q", "BODY", "secret")
    client = make_user(broker, "~mine", "+@read")
    assert ask_parsed(broker, client, "SCHEDULE", "LIST") == [b"mine"]
    assert b"secret" not in ask(broker, client, "SCHEDULE", "GET", "mine")
    assert b"secret" in ask(broker, admin, "SCHEDULE", "GET", "mine")


def test_queues_that_are_gone_are_forgotten_also_far_below_the_limit():
    broker = make_broker()
    client = make_user(broker, "~*", "+@all", "limit:queues=1000000")
    for number in range(2_500):
        ask(broker, client, "GETJOB", "NOHANG", "FROM", f"q{number}")
        broker.queues.clear()
        pass_time(broker, 10)
    assert len(broker.users.meters[b"ann"].queues) < 1_200


def test_a_client_that_reads_events_is_disconnected_with_its_permission():
    """The loss of the permission for MONITOR alone does not disconnect it. Spec US8."""
    broker = make_broker()
    client = make_user(broker, "+monitor", "+events")
    client.is_monitor = client.is_tail = True
    ask(broker, make_client(broker), "ACL", "SETUSER", "ann", "-monitor")
    assert port_of(client).closed == []
    ask(broker, make_client(broker), "ACL", "SETUSER", "ann", "-events")
    assert port_of(client).closed == [False]


def test_a_client_that_monitors_and_reads_events_needs_both_permissions():
    """Spec US8."""
    broker = make_broker()
    client = make_user(broker, "+monitor", "+events")
    client.is_monitor = client.is_tail = True
    ask(broker, client, "MONITOR")
    ask(broker, make_client(broker), "ACL", "SETUSER", "ann", "-events")
    assert port_of(client).closed == [False]


@pytest.mark.parametrize("words", [("AUTH", "ann", "wrong"), ("AUTH", "bob", "pw"), ("HELLO", 2, "AUTH", "x", "x")])
def test_monitor_ends_with_the_login_that_began_it(words):
    """Spec US8."""
    broker = make_broker()
    admin = make_client(broker)
    ask(broker, admin, "ACL", "SETUSER", "bob", "on", ">pw", "+ping")
    client = make_user(broker, "+monitor", "+@connection")
    ask(broker, client, "MONITOR")
    ask(broker, admin, "ACL", "SETUSER", "default", "-monitor")
    ask(broker, client, *words)
    ask(broker, admin, "ECHO", "secret")
    assert (client.out, client.is_monitor, broker.monitors) == ([], False, {})


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_readers_of_requests_take_any_number_of_words(unit):
    """A request of the right length may lack words that a subcommand needs."""
    command, _, subcommand = unit.name.partition("|")
    for word in (b"from", b"queue", b"to", b"token", b"x"):
        for count in range(9):
            argv = [command.encode(), *([subcommand.encode()] if subcommand else []), *[word] * count]
            for read in (unit.names, unit.makes, unit.ids, unit.tokens):
                assert read is None or isinstance(read(argv), list)


NUMBERS = ("sec", "ms", "n", "count", "ms-timeout", "seconds", "fence", "percent", "cursor", "time")
CHOICES = {"status": [b"pending", b"running"], "policy": [b"fixed:1:1"], "expression": [b"* * * * *"]}


def request_like(rng, form, names, ids):
    """Return a random request of this syntax. Options are in any order, and sometimes there is one word too many."""
    parts = re.findall(r"\[[^\[\]]*\]|\S+", form.replace("CRON expression|EVERY", "EVERY"))
    lists = [part for part in parts if re.fullmatch(r"\[[a-z]+ \.\.\.\]", part)]
    fixed = [part.strip("[]") for part in parts if not part.startswith("[") or part in lists]
    options = [part.strip("[]") for part in parts if part not in fixed and part not in lists and rng.random() < 0.4]
    rng.shuffle(options)
    # GETJOB takes its options before its queues.
    groups = [*options, *fixed] if fixed and fixed[0] in ("FROM", "FROMMATCH") else [*fixed, *options]
    words = []
    for word in " ".join(groups).split():
        alternatives = word.split("|")
        word = rng.choice(alternatives) if len(alternatives) > 1 and alternatives[0].isupper() else word
        if word == "...":
            words += rng.choices(names + ids, k=rng.randrange(2))
        elif word.isupper():
            words.append(word.encode())
        elif word in NUMBERS:
            words.append(rng.choice([b"0", b"1", b"50"]))
        elif word in ("id", "token"):
            words.append(rng.choice(ids))
        else:
            words.append(rng.choice(CHOICES.get(word, names)))
    if rng.random() < 0.1:
        words.insert(rng.randrange(len(words) + 1), rng.choice([b"FROM", b"TO", b"QUEUE", b"TOKEN", b"where", *names]))
    return words


@pytest.mark.parametrize("seed", range(6))
def test_random_requests_never_reach_another_queue(seed):
    """The function that reads the names of a request must find all names that the command uses. Spec US4, US6."""
    rng = Random(seed)
    broker = make_broker()
    admin = make_client(broker)
    job_id = ask(broker, admin, "ADDJOB", "other", "their-body", 0, "META", "k", "their-meta")[1:-2]
    ask(broker, admin, "ADDJOB", "other", "their-body", 0)
    ask(broker, admin, "GETJOB", "TOKEN", "their-token", "LEASE", 100_000, "FROM", "other")
    ask(broker, admin, "QUEUE", "SET", "other", "lease", 7)
    client = make_user(broker, "~mine*", "+@all", "-@admin")
    commands = [each for each in COMMANDS if each.name not in ("monitor", "auth", "hello", "reset")]
    names = [b"other", b"mine", b"mine-2", b"other", b"mine", b"from", b"to", b"o*", b"m*"]
    unknown = job_id[:20] + b"A" * 12 + job_id[32:]
    job = broker.find(job_id)

    def state():
        queue = broker.queues[b"other"]
        return (
            queue.length, queue.paused, queue.jobs_in, queue.jobs_out, job.state, job.attempt, job.nacks,
            job.requeue_at_ms, job.terms.queue, broker.queue_settings.shown(b"other"), list(broker.recurring.known),
        )  # fmt: skip

    before = state()
    for _ in range(1_500):
        command = rng.choice(commands)
        form = rng.choice(command.syntax.split("\n"))
        argv = [command.name.encode(), *request_like(rng, form, names, [job_id, b"their-token", unknown])]
        dispatch.execute(broker, client, [argv])
        replies = b"".join(client.out)
        client.out.clear()
        assert b"their-body" not in replies, argv
        assert b"their-meta" not in replies, argv
        for _ in range(3):
            dispatch.tick(broker)
            pass_time(broker, 1)
        assert b"their-body" not in b"".join(client.out), argv
        if client.waiting or client.close_asked or client.is_in_multi:
            dispatch.disconnect(broker, client)
            broker.clients.pop(client.id, None)
            client = make_client(broker)
            ask(broker, client, "AUTH", "ann", "pw")
        client.reply_mode = 0
        broker.queue_settings.exchange.waiting.clear()
        assert not [name for name in broker.queues if not name.startswith(b"mine") and name != b"other"], argv
        now = state()
        assert (now[:7], now[8:10]) == (before[:7], before[8:10]), argv
    assert not [name for name in broker.recurring.known if not name.startswith(b"mine")]
