"""commands/queue_settings.py, and the settings that ADDJOB obeys."""

from __future__ import annotations

import pytest

from brokers import add_node, ask, ask_parsed, error_of, host_of, make_broker, make_client
from cluster_bus.node import LEAVING
from disque_py.core import queue_settings, settings_sync
from disque_py.core.queue import Queue

PAIRS = (
    b"lease", b"", b"delay", b"0", b"ttl", b"86400", b"replicate", b"",
    b"attempts", b"0", b"backoff", b"", b"maxlen", b"0", b"maxsize", b"0",
    b"dead-letter", b"", b"retention", b"604800", b"require-meta", b"", b"index", b"",
    b"type", b"simple", b"exclusive-by", b"", b"assign", b"local",
    b"rate", b"none", b"rate-by", b"", b"max-running", b"0", b"max-running-by", b"",
    b"result-retention", b"3600", b"paused", b"none", b"version", 1, b"behind", 0,
)  # fmt: skip


def make_pair(**settings):
    broker = make_broker(**settings)
    return broker, make_client(broker)


def say(pair, *words):
    return ask(*pair, "QUEUE", *words)


def added(pair, *words):
    """Send an ADDJOB, and return its job."""
    broker, client = pair
    reply = ask(broker, client, "ADDJOB", *words)
    assert reply.startswith(b"+"), reply
    return broker.find(reply[1:-2])


def test_a_setting_is_shown_with_all_others():
    pair = make_pair()
    assert ask_parsed(*pair, "QUEUE", "GET", "q") is None
    assert say(pair, "SET", "q", "LEASE", "90s", "maxlen", 7) == b"+OK\r\n"
    shown = ask_parsed(*pair, "QUEUE", "GET", "q")
    assert tuple(shown) == (*PAIRS[:1], b"90", *PAIRS[2:13], b"7", *PAIRS[14:])


@pytest.mark.parametrize("field", ["require-meta", "index", "exclusive-by", "rate-by", "max-running-by"])
def test_a_setting_may_name_reserved_meta_that_nodes_give_to_jobs(field):
    """Spec QS2."""
    pair = make_pair()
    for name in ("x-disque-from", "x-disque-schedule", "x-disque"):
        assert say(pair, "SET", "q", field, name) == b"+OK\r\n"
    for name in ("x-disque-user", "x-disque-"):
        error = f"-ERR invalid value for '{field}': no job has META {name}\r\n"
        assert say(pair, "SET", "q", field, name) == error.encode()
    shown = ask_parsed(*pair, "QUEUE", "GET", "q")
    assert shown[shown.index(field.encode()) + 1] == b"x-disque"


def test_each_name_in_a_list_of_meta_is_checked():
    """Spec QS2."""
    pair = make_pair()
    assert error_of(*pair, "QUEUE", "SET", "q", "index", "a,x-disque-b").endswith("no job has META x-disque-b")
    assert say(pair, "SET", "q", "exclusive-by", "a,x-disque-b") == b"+OK\r\n"


def test_a_reset_makes_all_fields_defaults_in_a_new_version():
    pair = make_pair()
    say(pair, "SET", "q", "lease", 90)
    assert say(pair, "RESET", "q") == b"+OK\r\n"
    assert tuple(ask_parsed(*pair, "QUEUE", "GET", "q")) == (*PAIRS[:-3], 2, b"behind", 0)
    assert say(pair, "RESET", "other") == b"+OK\r\n"
    assert say(pair, "GET", "other") == b"*-1\r\n"


def test_queues_with_settings_are_listed_in_order():
    pair = make_pair()
    for name in ("mail:b", "mail:a", "sms", "plain"):
        say(pair, "SET", name, "lease", 5)
    say(pair, "RESET", "plain")
    assert ask_parsed(*pair, "QUEUE", "LIST") == [b"mail:a", b"mail:b", b"sms"]
    assert ask_parsed(*pair, "QUEUE", "LIST", "mail:*") == [b"mail:a", b"mail:b"]


@pytest.mark.parametrize("words", [("SET", "q", "lease", 9), ("RESET", "q")])
def test_settings_of_the_highest_version_are_not_changed(words):
    """There is no higher version, so two values would have the same one. Spec QS1."""
    broker, client = pair = make_pair()
    settings_sync.start(broker, [(b"q", b"lease", b"5", queue_settings.COUNTER_MAX, b"\x02" * 20)])
    assert error_of(broker, client, "QUEUE", *words) == queue_settings.NO_VERSION
    assert say(pair, "SET", "other", "lease", 9) == b"+OK\r\n"


def test_a_pause_with_bcast_is_shown_and_a_reset_leaves_it_alone():
    pair = make_pair()
    ask(*pair, "PAUSE", "q", "in", "bcast")
    say(pair, "SET", "q", "lease", 5)
    say(pair, "RESET", "q")
    shown = ask_parsed(*pair, "QUEUE", "GET", "q")
    assert shown[shown.index(b"paused") + 1] == b"in"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["SET", "q", "colour", "red"], "ERR unknown queue setting 'colour'"),
        (["SET", "q", "lease", 5, "rate", "1/500ms"], "ERR invalid value for 'rate': a time from 1s to 1d is expected"),
        (
            ["SET", "q", "rate", "much"],
            "ERR invalid value for 'rate': a number from 0 to 1000000000, as in 100 or 100/10s, is expected",
        ),
        (
            ["SET", "q", "max-running", "-1"],
            "ERR invalid value for 'max-running': a number from 0 to 1000000000 is expected",
        ),
        (
            ["SET", "q", "index", "a,traceparent"],
            "ERR invalid value for 'index': WHERE can't use the names traceparent",
        ),
        (["SET", "q", "version", 3], "ERR unknown queue setting 'version'"),
        (["SET", "q", "paused", "in"], "ERR paused is set with PAUSE"),
        (["SET", "q", "index", "a,,b,"], "ERR invalid value for 'index': names have 1 to 1024 bytes"),
        (["SET", "q", "lease", "soon"], "ERR invalid value for 'lease': a time like 30, 500ms"),
        (["SET", "q", "maxsize", 1001], "ERR invalid value for 'maxsize': at most proto-max-bulk-len, 1000 bytes"),
        (["SET", "q", "lease"], "ERR syntax error: 'lease'"),
        (["SET", "q", "lease", 5, "ttl"], "ERR syntax error: 'ttl'"),
        (["SET", "q"], "ERR syntax error: 'q'"),
        (["DROP", "q"], "ERR syntax error: 'DROP'"),
        (["GET"], "ERR syntax error: 'GET'"),
        (["LIST", "p" * 1025], "ERR syntax error: 'p"),
    ],
)
def test_wrong_arguments_change_nothing(words, error):
    pair = make_pair(proto_max_bulk_len=1_000)
    assert error_of(*pair, "QUEUE", *words).startswith(error)
    assert say(pair, "GET", "q") == b"*-1\r\n"


def test_the_number_of_settings_is_bounded(monkeypatch):
    """Spec QS8."""
    pair = make_pair()
    pair[0].queue_settings.bytes = queue_settings.TABLE_BYTES_MAX
    assert error_of(*pair, "QUEUE", "SET", "q", "lease", 5) == "ERR too many queues with settings, at most 100000"


def test_the_reply_waits_for_the_file():
    """Spec QS3."""
    broker, client = make_pair()
    host_of(broker).is_slow = True
    assert ask(broker, client, "QUEUE", "SET", "q", "lease", 5) == b""
    host_of(broker).writing.pop()()
    assert client.out == [b"+OK\r\n"]
    assert host_of(broker).settings_file == [(b"q", b"lease", b"5", 1, broker.me.id)]


def test_a_file_that_cannot_be_written_is_an_error_and_tried_again():
    """Spec QS3."""
    from disque_py.core import settings_sync

    broker, client = make_pair()
    host_of(broker).failures["write_queue_settings"] = OSError(28, "No space left on device")
    text = error_of(broker, client, "QUEUE", "SET", "q", "lease", 5)
    assert text == "ERR error saving the queue settings: No space left on device"
    host_of(broker).failures.clear()
    broker.now_ms += settings_sync.RETRY_MS
    settings_sync.step(broker)
    assert host_of(broker).settings_file == [(b"q", b"lease", b"5", 1, broker.me.id)]


def test_options_that_a_job_lacks_are_filled_in():
    """Spec QS6."""
    pair = make_pair()
    say(pair, "SET", "q", "lease", "1500ms", "delay", 2, "ttl", "1h")
    job = added(pair, "q", "body", 0)
    assert (job.retry_ms, job.delay_ms, job.expire_at_ms - pair[0].now_ms) == (1_500, 2_000, 3_600_000)


def test_a_lease_of_milliseconds_is_shown_in_seconds_rounded_up():
    """A RETRY of 0 would mean that the job is delivered at most once."""
    pair = make_pair()
    say(pair, "SET", "q", "lease", "500ms", "delay", "1ms")
    shown = ask_parsed(*pair, "SHOW", added(pair, "q", "body", 0).id)
    assert (shown[shown.index(b"retry") + 1], shown[shown.index(b"delay") + 1]) == (1, 1)


def test_a_jobs_own_options_win():
    """Spec QS6."""
    pair = make_pair()
    say(pair, "SET", "q", "lease", 30, "delay", 2, "ttl", "1h", "replicate", 3)
    job = added(pair, "q", "body", 0, "RETRY", 0, "DELAY", 0, "TTL", 60)
    assert (job.retry_ms, job.delay_ms, job.expire_at_ms - pair[0].now_ms, job.replicate) == (0, 0, 60_000, 1)


def test_jobs_of_other_queues_have_the_usual_options():
    pair = make_pair()
    say(pair, "SET", "q", "lease", 30, "delay", 2, "ttl", "1h")
    job = added(pair, "other", "body", 0)
    assert (job.retry_ms, job.delay_ms, job.expire_at_ms - pair[0].now_ms) == (300_000, 0, 86_400_000)


def test_the_lease_follows_the_ttl_of_the_queue_if_none_is_set():
    pair = make_pair()
    say(pair, "SET", "q", "ttl", 100)
    assert added(pair, "q", "body", 0).retry_ms == 10_000


def test_a_delay_beyond_the_ttl_is_refused_as_ever():
    pair = make_pair()
    say(pair, "SET", "q", "delay", 60)
    assert error_of(*pair, "ADDJOB", "q", "body", 0, "TTL", 60).startswith(
        "ERR The specified DELAY is greater than TTL"
    )


def test_replicate_is_a_number_or_a_majority_of_the_nodes_that_stay():
    pair = make_pair()
    say(pair, "SET", "two", "replicate", 2)
    say(pair, "SET", "most", "replicate", "quorum")
    nodes = [add_node(pair[0], number) for number in (2, 3, 4, 5)]
    nodes[0].flags |= LEAVING
    for name in ("two", "most"):
        ask(pair[0], make_client(pair[0]), "ADDJOB", name, "body", 0)
    assert [job.replicate for job in pair[0].copies.waiting_repl] == [2, 3]


def test_a_body_above_maxsize_is_too_big():
    """Spec QS7."""
    pair = make_pair()
    say(pair, "SET", "q", "maxsize", 4)
    added(pair, "q", "four", 0)
    assert error_of(*pair, "ADDJOB", "q", "fives", 0) == "TOOBIG Body is longer than the queue's maxsize"


def test_a_job_without_the_required_meta_is_refused():
    """Spec QS7."""
    pair = make_pair()
    say(pair, "SET", "q", "require-meta", "tenant,kind")
    added(pair, "q", "body", 0, "META", "tenant", "a", "META", "kind", "b")
    text = error_of(*pair, "ADDJOB", "q", "body", 0, "META", "tenant", "a")
    assert text == "NOKEY The queue requires META 'kind'"


def test_maxlen_counts_jobs_of_all_nodes():
    """Spec QS7."""
    from disque_py.core import settings_sync

    pair = make_pair()
    say(pair, "SET", "q", "maxlen", 3)
    node = add_node(pair[0])
    settings_sync.on_lengths(pair[0], node, [(b"q", 2), (b"other", 5)])
    added(pair, "q", "body", 0, "REPLICATE", 1)
    assert error_of(*pair, "ADDJOB", "q", "body", 0, "REPLICATE", 1).startswith("MAXLEN ")
    settings_sync.forget_node(pair[0], node)
    added(pair, "q", "body", 0, "REPLICATE", 1)
    assert list(pair[0].queue_settings.exchange.lengths) == [b"q"]


def test_both_maxlens_must_allow_a_job():
    pair = make_pair()
    say(pair, "SET", "q", "maxlen", 5)
    added(pair, "q", "body", 0)
    assert error_of(*pair, "ADDJOB", "q", "body", 0, "MAXLEN", 1).startswith("MAXLEN ")


def test_a_job_that_its_key_names_is_found_whatever_the_limits():
    """Limits apply to new jobs only. A producer that repeats its ADDJOB gets the id of its job."""
    pair = make_pair()
    job = added(pair, "q", "body", 0, "KEY", "k")
    say(pair, "SET", "q", "maxsize", 1, "maxlen", 1, "require-meta", "m")
    assert added(pair, "q", "body", 0, "KEY", "k") is job
    assert error_of(*pair, "ADDJOB", "q", "body", 0, "KEY", "other").startswith("TOOBIG ")


def test_adding_to_a_queue_without_settings_costs_one_lookup():
    """The table of settings in force is empty, so an ADDJOB stops there."""
    pair = make_pair()
    say(pair, "SET", "q", "lease", 5)
    say(pair, "RESET", "q")
    assert not pair[0].queue_settings.in_force
    assert isinstance(added(pair, "q", "body", 0).queue, bytes)
    assert isinstance(pair[0].queues[b"q"], Queue)


def test_settings_are_refused_while_a_known_node_would_not_obey_them():
    """Spec Y1."""
    broker, client = make_pair()
    node = add_node(broker)
    node.spoken = 1
    broker.cluster.refresh()
    text = f"ERR not while node {node.name.decode()} runs an older version"
    assert error_of(broker, client, "QUEUE", "SET", "q", "lease", 5) == text
    assert ask(broker, client, "QUEUE", "GET", "q") == b"*-1\r\n"


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [("rate", "100", b"100"), ("rate", "100/10s", b"100/10"), ("rate", "5/1500ms", b"5/1500ms"), ("rate", "7/1", b"7"),
     ("rate", "0", b"none"), ("rate", "none", b"none"), ("max-running", "none", b"0"),
     ("max-running-by", "host", b"host")],
)  # fmt: skip
def test_a_cap_is_shown_as_it_is_kept(field, value, shown):
    """Spec CP1."""
    pair = make_pair()
    say(pair, "SET", "q", field, value)
    found = ask_parsed(*pair, "QUEUE", "GET", "q")
    assert found[found.index(field.encode()) + 1] == shown
