"""node/dispatch.py: requests and messages are checked before anything is done."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers import add_node, ask, ask_parsed, make_broker, make_client
from cluster_bus import messages
from cluster_bus.messages import GOTJOB, LEASED, NEEDJOBS
from copies import hold, hold_queued, make_id, pack, say, sent, snapshot
from disque_py.commands.table import COMMANDS
from disque_py.core import timers
from disque_py.core.client import RUNNING, WAITS_FOR_COPIES, WAITS_FOR_LOADING
from disque_py.node import dispatch
from disque_py.node.dispatch import MalformedMessageError, execute


def start(**fields):
    broker = make_broker(**fields)
    return broker, make_client(broker)


def run(broker, client, *commands, **fields):
    """Return how many requests of a pipeline were run."""
    requests = [[word if isinstance(word, bytes) else word.encode() for word in words.split()] for words in commands]
    return execute(broker, client, requests, **fields)


def replies(client):
    data, client.out = b"".join(client.out), []
    return data


# -- which command ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["PING", "ping", "PiNg"])
def test_names_are_matched_in_any_case(name):
    broker, client = start()
    assert ask(broker, client, name) == b"+PONG\r\n"


def test_an_unknown_command_is_named_as_typed():
    broker, client = start()
    assert ask(broker, client, "FlushAll") == b"-ERR unknown command 'FlushAll'\r\n"
    assert ask(broker, client, b"a\r\nb\xff") == b"-ERR unknown command 'a  b\xff'\r\n"
    assert ask(broker, client, b"") == b"-ERR unknown command ''\r\n"


@pytest.mark.parametrize("line", [b"POST / HTTP/1.1", b"get /?ADDJOB HTTP/1.0", b"Host: 127.0.0.1:7711"])
def test_a_request_of_a_web_page_is_not_run(line):
    """A browser can be made to POST a body of commands to any port it reaches."""
    broker, client = start()
    assert run(broker, client, line.decode(), "ADDJOB q body 0") == 1
    assert replies(client) == b"-ERR this is no HTTP server, the connection is closed\r\n"
    assert client.close_asked
    assert not broker.queues


@pytest.mark.parametrize(("words", "name"), [(("GetJob",), "getjob"), (("ADDJOB", "q"), "addjob"), (("SHOW",), "show")])
def test_a_wrong_number_of_words_names_the_command_in_lower_case(words, name):
    broker, client = start()
    text = f"-ERR wrong number of arguments for '{name}' command\r\n"
    assert ask(broker, client, *words) == text.encode()


def test_every_command_is_in_force():
    broker, _ = start()
    assert {row.name for row in broker.commands.values()} == {row.name for row in COMMANDS}


def test_a_renamed_command_has_only_its_new_name():
    broker, client = start(rename_command=(("ping", "Sonar"), ("debug", "")))
    assert ask(broker, client, "SONAR") == ask(broker, client, "Sonar") == b"+PONG\r\n"
    assert ask(broker, client, "PING").startswith(b"-ERR unknown")
    assert ask(broker, client, "DEBUG", "FLUSHALL").startswith(b"-ERR unknown")
    assert ask(broker, client, "SONAR", "a", "b") == b"-ERR wrong number of arguments for 'ping' command\r\n"


@pytest.mark.parametrize("name", ["TOPIC", "Subject"])
def test_of_topic_only_publish_overtakes_a_wait_for_copies(name):
    """A renamed TOPIC is no exception."""
    broker, client = start(rename_command=(("topic", "Subject"),) if name == "Subject" else ())
    add_node(broker)
    assert run(broker, client, "ADDJOB q body 0 REPLICATE 2", f"{name} LIST") == 1
    assert client.waiting == WAITS_FOR_COPIES
    assert run(broker, client, f"{name} PUBLISH none body 0") == 1


# -- the order of checks ------------------------------------------------------------------------------------


def test_unknown_commands_and_arity_are_seen_before_login():
    """Spec R3."""
    broker, client = start(requirepass="secret")
    assert ask(broker, client, "NOSUCH").startswith(b"-ERR unknown command")
    assert ask(broker, client, "SHOW").startswith(b"-ERR wrong number")
    assert ask(broker, client, "PING") == b"-NOAUTH Authentication required.\r\n"
    assert ask(broker, client, "AUTH", "secret") == b"+OK\r\n"
    assert ask(broker, client, "PING") == b"+PONG\r\n"


@pytest.mark.parametrize("state", ["stranger", "loading", "quiet"])
def test_quit_works_in_every_state(state):
    broker, client = start(requirepass="secret" if state == "stranger" else "")
    broker.is_loading = state == "loading"
    assert ask(broker, client, "quit", "whatever") == b"+OK\r\n"
    assert client.close_asked


def test_while_loading_only_commands_marked_for_it_work():
    broker, client = start()
    broker.is_loading = True
    assert ask(broker, client, "QLEN", "q") == b"-LOADING Disque is loading the dataset in memory\r\n"
    assert ask(broker, client, "INFO").startswith(b"$")
    assert ask(broker, client, "QLEN").startswith(b"-ERR wrong number")


def start_loading(wait_ms=2_000):
    """Return a node that has just started, and reads its journal."""
    broker, client = start()
    broker.is_loading = True
    broker.waits.loading_until_ms = broker.now_ms + wait_ms
    return broker, client


def test_after_a_start_requests_wait_for_the_loading_in_order():
    broker, client = start_loading()
    commands = ("INFO", "ADDJOB q body 0", "INFO", "QLEN q")
    assert run(broker, client, *commands) == 1
    assert run(broker, client, *commands[1:]) == 0
    assert client.waiting == WAITS_FOR_LOADING
    replies(client)
    broker.is_loading = False
    dispatch.settle(broker)
    assert client.waiting == RUNNING
    assert client in broker.outbox.clients
    assert run(broker, client, *commands[1:]) == 3
    assert replies(client).endswith(b":1\r\n")


def test_when_the_wait_is_over_requests_are_refused():
    broker, client = start_loading(wait_ms=2_000)
    assert run(broker, client, "QLEN q") == 0
    assert timers.next_ms(broker) <= broker.waits.loading_until_ms
    broker.now_ms = broker.waits.loading_until_ms
    dispatch.settle(broker)
    assert run(broker, client, "QLEN q") == 1
    assert replies(client).startswith(b"-LOADING")


def test_ping_and_info_do_not_wait_for_the_loading():
    broker, client = start_loading()
    assert run(broker, client, "PING", "INFO server") == 2
    assert replies(client).startswith(b"-LOADING Disque is loading the dataset in memory\r\n$")


def test_a_client_that_hangs_up_waits_for_no_loading():
    broker, client = start_loading()
    run(broker, client, "QLEN q")
    dispatch.disconnect(broker, client)
    assert not broker.waits.early


def test_a_password_set_in_a_pipeline_counts_from_the_next_command_on():
    broker, client = start()
    run(broker, client, "PING", "CONFIG SET requirepass secret", "PING", "AUTH secret", "PING")
    assert replies(client) == b"+PONG\r\n+OK\r\n-NOAUTH Authentication required.\r\n+OK\r\n+PONG\r\n"


def test_a_monitor_sees_commands_that_are_run_and_no_others():
    broker, client = start(maxmemory=10_000)
    monitor = make_client(broker)
    ask(broker, monitor, "MONITOR")
    run(broker, client, "NOSUCH", "SHOW", "PING hello")
    lines = replies(monitor)
    assert lines.count(b"\r\n") == 1
    assert b'"PING" "hello"' in lines


def test_a_monitor_does_not_see_commands_refused_for_memory():
    """A monitor sees executed commands only, after the check of memory (spec R3)."""
    broker, client = start(maxmemory=10_000)
    hold(broker, body=b"x" * 20_000)
    monitor = make_client(broker)
    ask(broker, monitor, "MONITOR")
    assert ask(broker, client, "ADDJOB", "q", "body", 0).startswith(b"-OOM")
    assert replies(monitor) == b""


def test_only_commands_that_are_executed_are_counted():
    """Unknown, malformed and refused commands are not (spec R3)."""
    broker, client = start(requirepass="secret")
    run(broker, client, "NOSUCH", "SHOW", "PING", "AUTH secret", "PING")
    assert broker.stats.commands_processed == 2


def test_calls_are_counted_per_command():
    broker, client = start()
    run(broker, client, "PING", "ping", "QLEN q", "NOSUCH")
    assert (broker.commands[b"ping"].calls, broker.commands[b"qlen"].calls) == (2, 1)
    assert client.last_command == "qlen" or client.last_command == ""


# -- pipelines ------------------------------------------------------------------------------------------------


def test_replies_come_in_request_order():
    broker, client = start()
    assert run(broker, client, "PING 1", "QLEN q", "NOSUCH", "PING 2") == 4
    assert replies(client) == b"$1\r\n1\r\n:0\r\n-ERR unknown command 'NOSUCH'\r\n$1\r\n2\r\n"


def test_a_client_that_waits_runs_nothing_more():
    broker, client = start()
    assert run(broker, client, "GETJOB FROM q", "PING") == 1
    assert run(broker, client, "GETJOB FROM q", "PING", at=1) == 1
    hold_queued(broker)
    dispatch.settle(broker)
    assert client.waiting == RUNNING
    assert run(broker, client, "GETJOB FROM q", "PING", at=1) == 2
    assert replies(client).endswith(b"+PONG\r\n")


def test_addjobs_of_a_pipeline_wait_for_their_copies_together():
    """Only the order of replies matters. One after the other, each job would cost a round trip."""
    broker, client = start()
    node = add_node(broker)
    assert run(broker, client, *["ADDJOB q body 0"] * 50, "PING") == 50
    assert len(client.waiting_jobs) == 50
    jobs = list(broker.copies.waiting_repl)
    for job in reversed(jobs):
        say(broker, node, GOTJOB, job.id)
    assert replies(client) == b"".join(b"+%b\r\n" % job.id for job in jobs)
    assert client.waiting == RUNNING


@pytest.mark.parametrize(
    "following", ["PING", "ADDJOB q body 0 MAXLEN 5", "ADDJOB q body 0 maxlen 5", "GETJOB FROM q", "NOSUCH", "QUIT"]
)
def test_a_command_that_may_depend_on_the_job_waits_for_it(following):
    broker, client = start()
    add_node(broker)
    assert run(broker, client, "ADDJOB q body 0", following) == 1
    assert client.waiting == WAITS_FOR_COPIES


@pytest.mark.plain
def test_the_number_of_addjobs_that_wait_is_limited(monkeypatch):
    monkeypatch.setattr(dispatch, "OVERLAP_MAX", 10)
    broker, client = start()
    add_node(broker)
    assert run(broker, client, *["ADDJOB q body 0"] * 50) == 10


def test_a_ready_reply_waits_behind_one_that_is_not():
    broker, client = start()
    node = add_node(broker)
    run(broker, client, "ADDJOB q body 0", "ADDJOB q body 0 REPLICATE 1", "ADDJOB q body 0 TTL 0")
    assert replies(client) == b""
    (job,) = broker.copies.waiting_repl
    say(broker, node, GOTJOB, job.id)
    lines = replies(client).split(b"\r\n")
    assert lines[0] == b"+" + job.id
    assert lines[1].startswith(b"+D-")
    assert lines[2] == b"-ERR TTL must be a number > 0"


def test_after_quit_nothing_is_run():
    broker, client = start()
    assert run(broker, client, "PING", "QUIT", "PING") == 2
    assert replies(client) == b"+PONG\r\n+OK\r\n"


def test_a_slice_of_time_ends_a_pipeline_early():
    broker, client = start()
    ticks: Iterator[int] = iter(range(0, 10**9, 100_000))
    broker.stopwatch_ns = lambda: next(ticks)
    done = run(broker, client, *["PING"] * 100, until_ns=1_000_000)
    assert 9 <= done <= 11
    assert len(client.out) == done


def test_an_empty_pipeline_changes_nothing():
    broker, client = start()
    client.active_ms = 5
    assert run(broker, client) == 0
    assert (client.active_ms, broker.stats.commands_processed) == (5, 0)


# -- CLIENT REPLY -----------------------------------------------------------------------------------------------


def test_skip_suppresses_one_reply():
    broker, client = start()
    run(broker, client, "CLIENT REPLY SKIP", "PING 1", "PING 2", "CLIENT REPLY SKIP", "NOSUCH", "PING 3")
    assert replies(client) == b"$1\r\n2\r\n$1\r\n3\r\n"


def test_a_skip_behind_a_skip_counts_for_the_command_behind_it():
    broker, client = start()
    run(broker, client, "CLIENT REPLY SKIP", "CLIENT REPLY SKIP", "PING 1", "PING 2", "PING 3")
    assert replies(client) == b"$1\r\n2\r\n$1\r\n3\r\n"


def test_off_suppresses_all_errors_too_until_on():
    broker, client = start()
    run(broker, client, "CLIENT REPLY OFF", "PING 1", "NOSUCH", "SHOW", "CLIENT REPLY ON", "PING 2")
    assert replies(client) == b"+OK\r\n$1\r\n2\r\n"


def test_skip_suppresses_a_reply_that_comes_late():
    broker, client = start()
    node = add_node(broker)
    run(broker, client, "CLIENT REPLY SKIP", "ADDJOB q body 0", "ADDJOB q body 0")
    first, second = broker.copies.waiting_repl
    for job in (first, second):
        say(broker, node, GOTJOB, job.id)
    assert replies(client) == b"+%b\r\n" % second.id


def test_skip_suppresses_the_job_of_a_waiting_getjob():
    broker, client = start()
    run(broker, client, "CLIENT REPLY SKIP", "GETJOB FROM q")
    hold_queued(broker)
    dispatch.settle(broker)
    run(broker, client, "PING")
    assert replies(client) == b"+PONG\r\n"


# -- SLOWLOG and LATENCY --------------------------------------------------------------------------------------------


def slow_broker(usec, **fields):
    broker, client = start(**fields)
    ticks: Iterator[int] = iter(range(0, 10**12, usec * 1000))
    broker.stopwatch_ns = lambda: next(ticks)
    return broker, client


@pytest.mark.parametrize(("limit_usec", "is_logged"), [(50, True), (100, True), (101, False), (-1, False), (0, True)])
def test_slow_commands_are_logged_from_the_limit_on(limit_usec, is_logged):
    broker, client = slow_broker(100, slowlog_log_slower_than=limit_usec)
    run(broker, client, "PING hello")
    entries = [(entry[2], entry[3]) for entry in broker.stats.slowlog]
    assert entries == ([(100, [b"PING", b"hello"])] if is_logged else [])


def test_latency_tells_fast_commands_from_others():
    broker, client = slow_broker(7000, latency_monitor_threshold=5, slowlog_log_slower_than=-1)
    run(broker, client, "PING", "INFO")
    assert {name: series.worst_ms for name, series in broker.stats.latency.items()} == {"fast-command": 7, "command": 7}


def test_passwords_are_not_logged():
    """The original put them into MONITOR and SLOWLOG (spec Q35)."""
    broker, client = slow_broker(100, slowlog_log_slower_than=0, requirepass="secret")
    run(broker, client, "AUTH secret")
    assert b"secret" not in b" ".join(broker.stats.slowlog[0][3])


def test_each_kind_of_command_is_counted_with_its_time():
    """Kinds alternate, and some commands are refused before they run."""
    broker, client = start()
    ticks = iter(range(0, 1000, 5))
    broker.stopwatch_ns = lambda: next(ticks)
    run(broker, client, "PING", "PING", "QLEN q", "QLEN", "PING", "NOSUCH", "QLEN q")
    ping, qlen = broker.commands[b"ping"], broker.commands[b"qlen"]
    assert (ping.calls, ping.nanoseconds) == (3, 15)
    assert (qlen.calls, qlen.nanoseconds) == (2, 10)
    assert broker.stats.commands_processed == 5


def test_the_mode_at_the_command_decides_about_its_late_reply():
    """CLIENT REPLY SKIP suppresses the reply to the GETJOB behind it, and no later one."""
    broker, client = start()
    run(broker, client, "CLIENT REPLY SKIP", "GETJOB FROM q")
    assert client.is_silenced
    ask(broker, make_client(broker), "ADDJOB", "q", "body", 0)
    dispatch.settle(broker)
    assert b"".join(client.out) == b""
    run(broker, client, "PING")
    assert b"".join(client.out) == b"+PONG\r\n"


# -- nodes ------------------------------------------------------------------------------------------------------------


def test_a_kind_of_a_newer_version_is_ignored_and_counted():
    broker, _ = start()
    node = add_node(broker)
    dispatch.receive(broker, node, [[99, [1, 2, 3]], [GOTJOB, make_id()]])
    assert broker.stats.reject_reasons == {"message of an unknown kind": 1}


def test_every_kind_about_jobs_has_a_handler():
    kinds = {kind for kind in messages.NAMES if kind >= messages.FIRST_JOB_KIND}
    assert kinds == set(dispatch.MESSAGES)


def test_later_positions_of_an_item_are_ignored():
    broker, _ = start()
    node = add_node(broker)
    job = hold(broker, node)
    say(broker, node, LEASED, [job.id, 60_000, 3, 2, 0, b"", 0, 0, b"", "news", 7])
    assert job.attempt == 3


def test_messages_are_counted():
    broker, _ = start()
    say(broker, add_node(broker), GOTJOB, make_id(1), make_id(2))
    assert broker.stats.messages_received == 2


def test_a_malformed_message_says_what_it_was():
    broker, _ = start()
    with pytest.raises(MalformedMessageError, match="GOTJOB"):
        say(broker, add_node(broker), GOTJOB, 17)


@pytest.mark.parametrize(
    ("kind", "item"),
    [(LEASED, (make_id(), float("inf"), 1)), (NEEDJOBS, (b"q", float("inf"), 0)), (NEEDJOBS, (b"q", float("nan"), 0))],
)
def test_nan_and_infinity_are_malformed(kind, item):
    """msgpack can carry them. They must close the link, and not raise an unexpected exception."""
    broker, _ = start()
    node = add_node(broker)
    hold_queued(broker, node)
    with pytest.raises(MalformedMessageError):
        say(broker, node, kind, item)


KINDS = sorted(dispatch.MESSAGES)
BROKER = make_broker()
NODE = add_node(BROKER)
KNOWN = [hold(BROKER, NODE, number=1), hold_queued(BROKER, NODE, number=2), hold_queued(BROKER, number=3, retry_s=0)]

plain = st.sampled_from(
    (None, True, 0, 1, -1, 2, 2**40, 2**64 - 1, 0.5, b"", b"q", b"x" * 20, b"x" * 40, pack(BROKER.me, NODE),
     "", "text", "x" * 20, *[job.id for job in KNOWN], make_id(4), make_id(5, retry_s=0))
)  # fmt: skip
job_snapshot = st.integers(6, 12).map(lambda number: list(snapshot(BROKER, NODE, number=number)))
field = plain | plain | st.lists(plain, max_size=3) | job_snapshot | st.lists(job_snapshot, max_size=2)
item = field | st.lists(field, min_size=1, max_size=5)


@settings(max_examples=400, deadline=None)
@given(kind=st.sampled_from(KINDS), items=st.lists(item, min_size=1, max_size=2))
def test_any_message_is_taken_ignored_or_malformed(kind, items):
    """No other exception than MalformedMessageError is raised, and the broker's memory stays consistent."""
    try:
        dispatch.receive(BROKER, NODE, [[kind, *items]])
    except MalformedMessageError:
        pass
    sent(BROKER)
    dispatch.settle(BROKER)
    assert BROKER.job_count == sum(map(len, BROKER.shards))
    assert ask_parsed(BROKER, make_client(BROKER), "PING") == b"PONG"


# -- transactions, which do not exist ------------------------------------------------------------------------

ABORTED = b"-EXECABORT "


def answers(client):
    """The first word of each reply, and the rest of the line of none."""
    return [line.split()[0] for line in replies(client).splitlines()]


def test_nothing_of_a_transaction_is_executed():
    broker, client = start()
    run(broker, client, "MULTI", "ADDJOB q a 0", "ADDJOB q b 0", "EXEC", "ADDJOB q c 0", "QLEN q")
    *refused, added, length = replies(client).splitlines()
    assert [line.split()[0] for line in refused] == [b"-ERR", b"-EXECABORT", b"-EXECABORT", b"-EXECABORT"]
    assert (added[:3], length) == (b"+D-", b":1")


def test_multi_says_what_to_do_and_begins_as_an_unknown_command():
    broker, client = start()
    assert ask(broker, client, "multi").startswith(b"-ERR unknown command 'multi': there are no transactions")


def test_discard_ends_multi_without_an_error():
    """No command was executed, as DISCARD says."""
    broker, client = start()
    run(broker, client, "MULTI", "PING", "DISCARD", "PING")
    assert answers(client) == [b"-ERR", b"-EXECABORT", b"+OK", b"+PONG"]


@pytest.mark.parametrize("word", ["EXEC", "DISCARD"])
def test_without_multi_these_are_unknown(word):
    broker, client = start()
    assert ask(broker, client, word) == b"-ERR unknown command '%b'\r\n" % word.encode()


def test_a_second_multi_needs_no_second_exec():
    broker, client = start()
    run(broker, client, "MULTI", "MULTI", "EXEC", "PING")
    assert answers(client) == [b"-ERR", b"-ERR", b"-EXECABORT", b"+PONG"]


def test_multi_lasts_over_pipelines_and_concerns_one_connection():
    broker, client = start()
    other = make_client(broker)
    run(broker, client, "MULTI")
    assert ask(broker, other, "PING") == b"+PONG\r\n"
    replies(client)
    assert ask(broker, client, "MONITOR").startswith(ABORTED)
    assert ask(broker, client, "CLIENT", "REPLY", "OFF").startswith(ABORTED)
    assert ask(broker, client, "SUBSCRIBE", "c").startswith(b"-ERR unknown command 'SUBSCRIBE'")
    assert not broker.monitors


def test_reset_ends_multi_and_quit_works():
    broker, client = start()
    run(broker, client, "MULTI", "RESET", "PING", "MULTI", "QUIT")
    assert answers(client) == [b"-ERR", b"+RESET", b"+PONG", b"-ERR", b"+OK"]
    assert client.close_asked


@pytest.mark.parametrize("mode", ["SKIP", "OFF"])
def test_multi_counts_although_its_error_is_not_sent(mode):
    broker, client = start()
    run(broker, client, f"CLIENT REPLY {mode}", "MULTI", "ADDJOB q a 0", "EXEC", "CLIENT REPLY ON", "QLEN q")
    assert replies(client).endswith(b"+OK\r\n:0\r\n")


def test_a_monitor_sees_nothing_of_a_transaction():
    broker, client = start()
    monitor = make_client(broker)
    ask(broker, monitor, "MONITOR")
    run(broker, client, "MULTI", "ADDJOB q a 0", "EXEC")
    assert replies(monitor) == b""


def test_a_client_may_not_log_in_within_a_transaction():
    broker, client = start(requirepass="secret")
    run(broker, client, "MULTI", "AUTH secret", "EXEC", "PING")
    assert answers(client) == [b"-ERR", b"-EXECABORT", b"-EXECABORT", b"-NOAUTH"]


def test_multi_waits_behind_an_addjob_that_waits_for_copies():
    broker, client = start()
    node = add_node(broker)
    assert run(broker, client, "ADDJOB q a 0 REPLICATE 2", "MULTI", "ADDJOB q b 0", "EXEC") == 1
    (job,) = client.waiting_jobs
    say(broker, node, GOTJOB, job.id)
    assert run(broker, client, "MULTI", "ADDJOB q b 0", "EXEC") == 3
    assert answers(client) == [b"+%b" % job.id, b"-ERR", b"-EXECABORT", b"-EXECABORT"]
