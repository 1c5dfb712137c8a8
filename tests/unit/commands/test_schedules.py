"""commands/schedules.py: the subcommands and options of SCHEDULE."""

from __future__ import annotations

import pytest

from disque_py.node import dispatch
from tests.support.brokers import WALL_MS, ask, ask_parsed, error_of, make_broker, make_client, pass_time

HOUR_MS = 3_600_000


@pytest.fixture
def broker():
    return make_broker()


@pytest.fixture
def client(broker):
    return make_client(broker)


def shown(broker, client, name):
    """Return the pairs of SCHEDULE GET."""
    parts = ask_parsed(broker, client, "SCHEDULE", "GET", name)
    return dict(zip([each.decode() for each in parts[::2]], parts[1::2], strict=True))


def test_a_schedule_is_shown_as_it_was_set(broker, client):
    """Spec SD10."""
    words = "CRON", "0 4 * * MON-FRI", "TZ", "Europe/Berlin", "CATCHUP", "ALL", "OVERLAP", "skip"
    more = "QUEUE", "reports", "BODY", "daily", "RETRY", 60, "META", "team", "x"
    assert ask(broker, client, "SCHEDULE", "SET", "nightly", *words, *more) == b"+OK\r\n"
    found = shown(broker, client, "nightly")
    names = "name cron every tz catchup overlap queue body options paused next last last-id fired missed behind"
    assert " ".join(found) == names
    assert found["cron"] == b"0 4 * * MON-FRI"
    assert found["every"] is None
    assert [found["tz"], found["catchup"], found["overlap"]] == [b"Europe/Berlin", b"all", b"skip"]
    assert [found["queue"], found["body"]] == [b"reports", b"daily"]
    assert found["options"] == [b"RETRY", b"60", b"META", b"team", b"x"]
    assert [found["paused"], found["last"], found["last-id"], found["fired"], found["missed"]] == [0, None, None, 0, 0]
    assert found["next"] > WALL_MS


def test_every_is_shown_as_a_time(broker, client):
    """Spec SD3, SD10: its ticks are multiples of the span, counted from Unix time 0."""
    ask(broker, client, "SCHEDULE", "SET", "s", "EVERY", "1h", "QUEUE", "q")
    found = shown(broker, client, "s")
    assert [found["cron"], found["every"], found["tz"], found["catchup"]] == [None, b"3600", b"UTC", b"last"]
    assert found["next"] == (WALL_MS // HOUR_MS + 1) * HOUR_MS
    ask(broker, client, "SCHEDULE", "SET", "s", "EVERY", "1500ms", "QUEUE", "q")
    assert shown(broker, client, "s")["every"] == b"1500ms"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("CRON|61 * * * *|QUEUE|q", "ERR invalid cron expression: bad minute '61': a number from 0 to 59 is expected"),
        ("CRON|* * * * *|TZ|Mars/Base|QUEUE|q", "ERR unknown time zone 'Mars/Base'"),
        ("CRON|* * * * *|TZ|../etc|QUEUE|q", "ERR unknown time zone '../etc'"),
        ("CRON|* * * * *|TZ|localtime|QUEUE|q", "ERR unknown time zone 'localtime'"),
        ("CRON|* * * * *|TZ|right/UTC|QUEUE|q", "ERR unknown time zone 'right/UTC'"),
        ("EVERY|999ms|QUEUE|q", "ERR EVERY must be at least 1s"),
        ("EVERY|soon|QUEUE|q", "ERR EVERY must be at least 1s"),
        ("EVERY|1h|CRON|* * * * *|QUEUE|q", "ERR syntax error: 'CRON'"),
        ("EVERY|1h|CATCHUP|some|QUEUE|q", "ERR syntax error: 'some'"),
        ("EVERY|1h|OVERLAP|some|QUEUE|q", "ERR syntax error: 'some'"),
        ("EVERY|1h|TZ|UTC", "ERR syntax error: 'UTC'"),
        ("QUEUE|q|RETRY|1", "ERR syntax error: 'RETRY'"),
        ("EVERY|1h|QUEUE|q|NOISE|1", "ERR syntax error: 'NOISE'"),
        ("EVERY|1h|QUEUE|q|RETRY|1|NOISE", "ERR syntax error: 'NOISE'"),
        ("EVERY|1h|QUEUE|q|ASYNC", "ERR syntax error: 'ASYNC'"),
        ("EVERY|1h|QUEUE|q|KEY|k", "ERR syntax error: 'KEY'"),
        ("EVERY|1h|QUEUE|q|WINDOW|1", "ERR syntax error: 'WINDOW'"),
        ("EVERY|1h|QUEUE|q|REPLACE", "ERR syntax error: 'REPLACE'"),
        ("EVERY|1h|QUEUE|q|TTL|0", "ERR TTL must be a number > 0"),
        ("EVERY|1h|QUEUE|q|META|x-disque-|1", "ERR META names that begin with x-disque- are reserved"),
        ("EVERY|1h|QUEUE|q|META|x-disque-batch|1", "ERR META names that begin with x-disque- are reserved"),
        ("EVERY|1h|QUEUE|q|meta|x-disque-tick|1", "ERR META names that begin with x-disque- are reserved"),
        (
            "EVERY|1h|QUEUE|q|META|a|1|META|b|1|META|c|1|META|d|1|META|e|1",
            "ERR META: at most 4 pairs per job (job-meta-max-pairs)",
        ),
    ],
)
def test_a_wrong_argument_changes_nothing(broker, client, words, error):
    """Spec SD10: the options are those of ADDJOB, with its errors."""
    assert error_of(broker, client, "SCHEDULE", "SET", "s", *words.split("|")) == error
    assert ask_parsed(broker, client, "SCHEDULE", "LIST") == []


def test_a_lower_limit_of_meta_stops_no_schedule(broker, client):
    """Spec SD4: nodes may have different limits, and each of them may fire."""
    four = " ".join(f"META {name} 1" for name in "abcd").split()
    assert ask(broker, client, "SCHEDULE", "SET", "s", "EVERY", "1h", "QUEUE", "q", *four) == b"+OK\r\n"
    broker.settings.job_meta_max_pairs = 1
    assert ask(broker, client, "SCHEDULE", "RUN", "s").startswith(b"+D-")


def test_the_fields_of_a_schedule_have_limits(broker, client):
    """Spec SD10."""
    words = "EVERY", "1h", "QUEUE", "q"
    assert error_of(broker, client, "SCHEDULE", "SET", "", *words).startswith("ERR the name of a schedule")
    assert error_of(broker, client, "SCHEDULE", "SET", "n" * 513, *words).startswith("ERR the name of a schedule")
    assert error_of(broker, client, "SCHEDULE", "SET", "s", *words, "BODY", "b" * 65_536).startswith(
        "ERR a schedule has"
    )


def test_commands_on_unknown_schedules_change_nothing(broker, client):
    """Spec SD10."""
    assert ask_parsed(broker, client, "SCHEDULE", "GET", "s") is None
    assert [ask_parsed(broker, client, "SCHEDULE", word, "s") for word in ("PAUSE", "RESUME", "DEL")] == [0, 0, 0]
    assert ask_parsed(broker, client, "SCHEDULE", "NEXT", "s") == []
    assert error_of(broker, client, "SCHEDULE", "RUN", "s") == "ERR no such schedule"
    assert error_of(broker, client, "SCHEDULE", "FLY", "s") == "ERR syntax error: 'FLY'"


def test_next_tells_the_ticks_to_come(broker, client):
    """NEXT also shows those of a paused schedule, which does not fire. Spec SD10."""
    ask(broker, client, "SCHEDULE", "SET", "s", "EVERY", "1h", "QUEUE", "q")
    first = (WALL_MS // HOUR_MS + 1) * HOUR_MS
    assert ask_parsed(broker, client, "SCHEDULE", "NEXT", "s", "COUNT", 3) == [
        first,
        first + HOUR_MS,
        first + 2 * HOUR_MS,
    ]
    ask(broker, client, "SCHEDULE", "PAUSE", "s")
    assert shown(broker, client, "s")["next"] is None
    assert ask_parsed(broker, client, "SCHEDULE", "NEXT", "s", "COUNT", 1) == [first]
    assert error_of(broker, client, "SCHEDULE", "NEXT", "s", "COUNT", 0).startswith("ERR COUNT must be")


def test_list_takes_a_pattern(broker, client):
    """Spec SD10."""
    for name in ("b2", "a1", "b1"):
        ask(broker, client, "SCHEDULE", "SET", name, "EVERY", "1h", "QUEUE", "q")
    assert ask_parsed(broker, client, "SCHEDULE", "LIST") == [b"a1", b"b1", b"b2"]
    assert ask_parsed(broker, client, "SCHEDULE", "LIST", "b*") == [b"b1", b"b2"]
    ask(broker, client, "SCHEDULE", "DEL", "b1")
    assert ask_parsed(broker, client, "SCHEDULE", "LIST", "b*") == [b"b2"]


def test_run_makes_a_job_outside_the_ticks(broker, client):
    """Spec SD10: the job has the schedule's name in its META, and does not count as a tick."""
    ask(broker, client, "SCHEDULE", "SET", "s", "EVERY", "1h", "QUEUE", "q", "BODY", "b", "META", "a", "1")
    reply = ask(broker, client, "SCHEDULE", "RUN", "s")
    assert reply.startswith(b"+D-")
    job = broker.find(reply[1:-2])
    assert job.body == b"b"
    assert job.meta == (b"x-disque-schedule", b"s", b"a", b"1")
    assert [shown(broker, client, "s")[word] for word in ("last", "fired")] == [None, 0]


def test_a_set_begins_anew(broker, client):
    """Spec SD5: the schedule has another generation, even within the same millisecond."""
    ask(broker, client, "SCHEDULE", "SET", "s", "EVERY", "1h", "QUEUE", "q")
    before = broker.recurring.known[b"s"].definition.generation
    ask(broker, client, "SCHEDULE", "PAUSE", "s")
    ask(broker, client, "SCHEDULE", "SET", "s", "EVERY", "1h", "QUEUE", "q")
    assert broker.recurring.known[b"s"].definition.generation > before
    assert shown(broker, client, "s")["paused"] == 0


def test_a_change_that_cannot_be_saved_is_answered_with_the_reason(broker, client):
    """Spec QS3: the error tells the client that the change was not saved."""
    from tests.support.brokers import host_of

    host_of(broker).failures["write_queue_settings"] = OSError(28, "No space left on device")
    assert error_of(broker, client, "SCHEDULE", "SET", "s", "EVERY", "1h", "QUEUE", "q") == (
        "ERR error saving the schedule: No space left on device"
    )
    pass_time(broker, 1)


def test_there_are_10000_schedules_at_most_and_one_of_them_can_be_set_anew(broker, client):
    """Spec SD10."""
    words = "EVERY", "1h", "QUEUE", "q"
    assert ask(broker, client, "SCHEDULE", "SET", "first", *words) == b"+OK\r\n"
    known = broker.recurring.known
    known.update(dict.fromkeys((b"%d" % number for number in range(9_998)), known[b"first"]))
    assert ask(broker, client, "SCHEDULE", "SET", "last", *words) == b"+OK\r\n"
    assert error_of(broker, client, "SCHEDULE", "SET", "more", *words) == "ERR too many schedules, at most 10000"
    assert ask(broker, client, "SCHEDULE", "SET", "last", *words) == b"+OK\r\n"


def next_in_turns(broker, client, *words):
    """Return the reply to SCHEDULE NEXT, and the number of turns that it took."""
    reply = ask(broker, client, "SCHEDULE", "NEXT", *words)
    turns = 1
    while client.waiting:
        dispatch.tick(broker)
        turns += 1
    reply += b"".join(client.out)
    client.out.clear()
    return reply, turns


def test_next_of_rare_ticks_is_answered_in_parts(broker, client):
    """The rules of a zone are read for all years between them."""
    words = "CRON", "0 0 29 2 *", "TZ", "Europe/Berlin", "QUEUE", "q"
    assert ask(broker, client, "SCHEDULE", "SET", "leap", *words) == b"+OK\r\n"
    reply, turns = next_in_turns(broker, client, "leap", "COUNT", 3)
    assert reply.startswith(b"*3\r\n")
    assert turns >= 3


def test_the_last_of_repeated_counts_is_the_number_of_ticks(broker, client):
    assert ask(broker, client, "SCHEDULE", "SET", "s", "EVERY", "60s", "QUEUE", "q") == b"+OK\r\n"
    assert next_in_turns(broker, client, "s", "COUNT", 3, "COUNT", 1)[0].startswith(b"*1\r\n")
