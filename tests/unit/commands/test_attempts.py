"""commands/attempts.py: WORKING and NACK, and the options ATTEMPTS, BACKOFF and ATTEMPT on one node."""

from __future__ import annotations

import pytest

from brokers import add_job, add_node, ask, ask_parsed, error_of, make_broker, make_client, pass_time, shown
from cluster_bus.messages import LEASED
from copies import advance, deliver, hold, hold_queued, make_id, queue_of, sent_of
from disque_py.commands.adding import BACKOFF_ERROR
from disque_py.core import acks
from disque_py.core.changing import UNHEARD_MAX
from disque_py.core.job import ACTIVE, ATTEMPT_MAX

# The maximum delay of a timer (core/schedule.py).
BUCKET_MS = 16


def start(**settings):
    broker = make_broker(**settings)
    return broker, make_client(broker)


def get(broker, client, *words):
    """Send GETJOB NOHANG. Return the id of the job, or None."""
    jobs = ask_parsed(broker, client, "GETJOB", "NOHANG", *words, "FROM", "q")
    return jobs[0][1] if jobs else None


# -- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("FENCE",), ("FENCE", 1, "soon"), ("FENCE", 1, "FENCE")])
def test_canceljob_names_the_word_that_is_wrong(words):
    """Commands that the original does not have name it."""
    broker, client = start()
    assert error_of(broker, client, "CANCELJOB", make_id(), *words) == f"ERR syntax error: '{words[-1]}'"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("ATTEMPTS", "-1"), "ERR ATTEMPTS must be a number from 0 to 1000000000"),
        (("ATTEMPTS", "1000000001"), "ERR ATTEMPTS must be a number from 0 to 1000000000"),
        (("ATTEMPTS", ""), "ERR ATTEMPTS must be a number from 0 to 1000000000"),
        (("ATTEMPTS",), "ERR syntax error"),
        (("ATTEMPTS", 2, "RETRY", 0), "ERR ATTEMPTS above 1 needs RETRY above 0"),
        (("BACKOFF", "quick:1:2"), BACKOFF_ERROR),
        (("BACKOFF", "fixed:3:2"), BACKOFF_ERROR),
        (("BACKOFF", "fixed:1:2:101"), BACKOFF_ERROR),
        (("TTLMS", 0), "ERR TTLMS must be a number of milliseconds > 0"),
        (("DELAYMS", -1), "ERR DELAYMS must be a number of milliseconds >= 0"),
        (("RETRYMS", "x"), "ERR RETRYMS must be a number of milliseconds >= 0"),
        (("META", "x-disque-from", "q"), "ERR META names that begin with x-disque- are reserved"),
    ],
)  # fmt: skip
def test_impossible_values_are_refused(words, text):
    """Spec Y11."""
    broker, client = start()
    assert error_of(broker, client, "ADDJOB", "q", "body", 0, *words) == text
    assert broker.job_count == 0


def test_spans_may_be_given_in_milliseconds():
    """The two forms are the same option, and the last one counts. SHOW rounds seconds up. Spec Y11."""
    broker, client = start()
    job = add_job(broker, client, "RETRY", 9, "RETRYMS", 1_500, "TTLMS", 20_001, "DELAY", 3, "DELAYMS", 2_500)
    fields = shown(broker, client, job.id)
    assert (fields["retry"], fields["delay"], fields["ttl"]) == (2, 3, 21)
    assert (fields["retry-ms"], fields["delay-ms"], fields["ttl-ms"]) == (1_500, 2_500, 20_001)


def test_a_lease_may_be_given_in_milliseconds():
    """Spec Y11."""
    broker, client = start()
    job = add_job(broker, client)
    assert error_of(broker, client, "GETJOB", "LEASEMS", 0, "FROM", "q") == (
        "ERR LEASEMS must be a number of milliseconds > 0"
    )
    get(broker, client, "LEASEMS", 250)
    assert job.requeue_at_ms == broker.now_ms + 250
    assert ask_parsed(broker, client, "WORKING", job.id, "LEASEMS", 1_250) == 1_250
    assert ask_parsed(broker, client, "WORKING", job.id, 2, "ATTEMPT", 1) == 2
    assert error_of(broker, client, "WORKING", job.id, 2, 3) == "ERR syntax error"


def test_new_options_are_refused_while_an_older_node_is_known():
    """Commands that the original has still work. Spec Y1."""
    broker, client = start()
    old = add_node(broker, 2, protocol=1)
    job = hold(broker, old)
    refused = f"ERR not while node {old.name.decode()} runs an older version"
    for words in (
        ("ADDJOB", "q", "body", 0, "ATTEMPTS", 2), ("ADDJOB", "q", "body", 0, "BACKOFF", "fixed:1:1"),
        ("NACK", job.id, "FINAL"), ("NACK", job.id, "DELAY", 1), ("ACKJOB", job.id, "ATTEMPT", 1),
        ("CANCELJOB", job.id), ("NACKTOKEN", "t", "REASON", "x"),
    ):  # fmt: skip
        assert error_of(broker, client, *words) == refused
    assert ask(broker, client, "NACK", job.id) == b":1\r\n"
    assert ask(broker, client, "ACKJOB", job.id) == b":1\r\n"
    assert ask(broker, client, "ADDJOB", "q", "body", 0, "DELAYMS", 5, "REPLICATE", 1).startswith(b"+D-")


# -- attempts ---------------------------------------------------------------------------------------------------------


def test_the_nack_of_the_last_attempt_ends_in_an_error():
    """Spec Y4."""
    broker, client = start()
    job = add_job(broker, client, "ATTEMPTS", 2)
    for attempt in (1, 2):
        assert get(broker, client) == job.id
        assert shown(broker, client, job.id)["attempts-left"] == 2 - attempt
        assert ask_parsed(broker, client, "NACK", job.id, "REASON", "broken") == 1
    fields = shown(broker, client, job.id)
    assert (fields["status"], fields["error"], fields["attempts"], fields["attempt"]) == (b"errored", b"broken", 2, 2)
    assert get(broker, client) is None
    assert ask_parsed(broker, client, "NACK", job.id) == 0
    advance(broker, 600_000)
    assert queue_of(broker) == []


def test_the_end_of_the_last_lease_ends_in_an_error():
    """Spec Y4."""
    broker, client = start()
    job = add_job(broker, client, "ATTEMPTS", 1, "RETRY", 2)
    get(broker, client)
    advance(broker, 2_500)
    fields = shown(broker, client, job.id)
    assert (fields["status"], fields["error"]) == (b"errored", b"lease expired")
    assert fields["next-requeue-within"] is None


def test_a_job_without_words_knows_that_its_lease_ended():
    """The job needs no additional object for that. Spec Y2."""
    broker, client = start()
    job = add_job(broker, client, "RETRY", 2)
    get(broker, client)
    advance(broker, 2_500)
    assert shown(broker, client, job.id)["error"] == b"lease expired"
    assert job.attributes is None


def test_attempts_mean_nothing_for_an_at_most_once_job():
    """Spec Y4."""
    broker, client = start()
    job = add_job(broker, client, "ATTEMPTS", 1, "RETRY", 0)
    get(broker, client)
    assert ask_parsed(broker, client, "NACK", job.id) == 0
    assert shown(broker, client, job.id)["status"] != b"errored"


def test_final_spends_all_attempts():
    """This is also true for a job without a limit. Spec Y4."""
    broker, client = start()
    job = add_job(broker, client)
    get(broker, client)
    assert ask_parsed(broker, client, "NACK", job.id, "FINAL", "REASON", "no use") == 1
    fields = shown(broker, client, job.id)
    assert (fields["status"], fields["error"], fields["attempts-left"]) == (b"errored", b"no use", 0)


def test_enqueue_gives_an_errored_job_fresh_attempts_and_a_fresh_ttl():
    """Spec Y5."""
    broker, client = start()
    job = add_job(broker, client, "ATTEMPTS", 1, "TTL", 1_000)
    get(broker, client)
    ask(broker, client, "NACK", job.id)
    advance(broker, 10_000)
    assert ask_parsed(broker, client, "ENQUEUE", job.id) == 1
    fields = shown(broker, client, job.id)
    assert (fields["status"], fields["attempts-left"], fields["error"], fields["ttl"]) == (b"pending", 1, None, 1_000)
    assert get(broker, client) == job.id
    assert job.attempt == 2


def test_a_lease_of_a_job_with_a_fresh_ttl_may_be_prolonged():
    """Half of the first TTL is over, but not half of the fresh one. Spec Y5, L7."""
    broker, client = start()
    job = add_job(broker, client, "ATTEMPTS", 1, "TTL", 1_000)
    get(broker, client)
    ask(broker, client, "NACK", job.id)
    advance(broker, 900_000)
    ask(broker, client, "ENQUEUE", job.id)
    get(broker, client)
    assert ask_parsed(broker, client, "WORKING", job.id, 7) == 7
    pass_time(broker, 600_000)
    assert error_of(broker, client, "WORKING", job.id).startswith("TOOLATE")


def test_an_errored_job_stays_for_its_retention():
    """Then it expires. Spec Y5."""
    broker, client = start()
    job = add_job(broker, client, "ATTEMPTS", 1, "TTL", 100)
    get(broker, client)
    ask(broker, client, "NACK", job.id)
    assert job.expire_at_ms == broker.now_ms + 7 * 86_400_000
    pass_time(broker, 7 * 86_400_000)
    advance(broker, 200_000)
    assert broker.find(job.id) is None
    assert broker.used_memory < 2_000


def test_an_errored_job_is_acknowledged_and_canceled_like_others():
    """Spec Y5."""
    for command in ("ACKJOB", "CANCELJOB"):
        broker, client = start()
        job = add_job(broker, client)
        get(broker, client)
        ask(broker, client, "NACK", job.id, "FINAL")
        assert ask_parsed(broker, client, command, job.id) == 1
        assert broker.find(job.id) is None


# -- back-off ---------------------------------------------------------------------------------------------------------


def test_a_nack_is_delayed_by_the_back_off():
    """A NACK's own DELAY wins. Spec Y6."""
    broker, client = start()
    job = add_job(broker, client, "BACKOFF", "linear:1000:9000")
    for attempt, words, span_ms in ((1, (), 1_000), (2, (), 2_000), (3, ("DELAYMS", 300), 300), (4, ("DELAY", 0), 0)):
        assert get(broker, client) == job.id
        assert job.attempt == attempt
        assert ask_parsed(broker, client, "NACK", job.id, *words) == 1
        if span_ms:
            assert shown(broker, client, job.id)["status"] == b"invisible"
            advance(broker, span_ms - 1)
            assert queue_of(broker) == []
            advance(broker, BUCKET_MS)
        assert queue_of(broker) == [job.id]
    assert (job.nacks, job.deliveries) == (4, 0)


def test_the_end_of_a_lease_has_no_back_off():
    """Spec Y6."""
    broker, client = start()
    job = add_job(broker, client, "BACKOFF", "fixed:60000:60000", "RETRY", 1)
    get(broker, client)
    advance(broker, 1_500)
    assert queue_of(broker) == [job.id]


def test_a_delayed_job_waits_for_the_end_of_a_pause():
    """Spec Y6."""
    broker, client = start()
    job = add_job(broker, client)
    get(broker, client)
    ask(broker, client, "PAUSE", "q", "in")
    ask(broker, client, "NACK", job.id, "DELAYMS", 500)
    advance(broker, 1_000)
    assert queue_of(broker) == []
    ask(broker, client, "PAUSE", "q", "none")
    assert queue_of(broker) == [job.id]


# -- NACK -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("REASON", "x" * 1025), "ERR REASON must have at most 1024 bytes"),
        (("REASON",), "ERR syntax error"),
        (("FINAL", "again"), "ERR syntax error"),
        (("ATTEMPT", 0), "ERR ATTEMPT must be a number from 1 to 4294967295"),
        (("DELAY", -1), "ERR DELAY time must be a non negative number"),
    ],
)
def test_impossible_options_of_a_nack_are_refused(words, text):
    """Spec Y11."""
    broker, client = start()
    job = add_job(broker, client)
    get(broker, client)
    assert error_of(broker, client, "NACK", job.id, *words) == text
    assert job.nacks == 0


def test_attempt_needs_exactly_one_id():
    """Spec Y9."""
    broker, client = start()
    for command in ("ACKJOB", "NACK"):
        for ids in ((), (make_id(1), make_id(2))):
            assert error_of(broker, client, command, *ids, "ATTEMPT", 1) == (
                "ERR ATTEMPT and FENCE need exactly one job id"
            )
        assert error_of(broker, client, command, "x", "ATTEMPT", 1) == "BADID Invalid Job ID format."


def test_a_reason_is_kept_until_the_next_nack():
    """Spec Y6."""
    broker, client = start()
    job = add_job(broker, client)
    for words, error in ((("REASON", "first"), b"first"), ((), None)):
        get(broker, client)
        ask(broker, client, "NACK", job.id, *words)
        assert shown(broker, client, job.id)["error"] == error


def test_a_nack_for_an_older_delivery_counts_0():
    """So a repeated NACK has no second effect. Spec Y9."""
    broker, client = start()
    job = add_job(broker, client)
    get(broker, client)
    assert ask_parsed(broker, client, "NACK", job.id, "ATTEMPT", 1, "DELAYMS", 100) == 1
    assert ask_parsed(broker, client, "NACK", job.id, "ATTEMPT", 1, "DELAYMS", 100) == 0
    advance(broker, 100 + BUCKET_MS)
    get(broker, client)
    assert ask_parsed(broker, client, "NACK", job.id, "ATTEMPT", 1) == 0
    assert ask_parsed(broker, client, "ACKJOB", job.id, "ATTEMPT", 1) == 0
    assert error_of(broker, client, "WORKING", job.id, "ATTEMPT", 1) == "STALE A later delivery of the job is known"
    assert job.nacks == 1
    assert ask_parsed(broker, client, "ACKJOB", job.id, "ATTEMPT", 2) == 1


def test_tokens_are_given_back_with_a_delay_and_a_reason():
    """Spec Y6."""
    broker, client = start()
    job = add_job(broker, client)
    get(broker, client, "TOKEN", "t")
    assert ask_parsed(broker, client, "NACKTOKEN", "t", "DELAYMS", 100, "REASON", "later") == 1
    fields = shown(broker, client, job.id)
    assert (fields["status"], fields["error"]) == (b"invisible", b"later")


# -- WORKING ----------------------------------------------------------------------------------------------


def test_working_answers_retry_and_begins_the_lease_anew():
    broker, client = start()
    node = add_node(broker)
    hold_queued(broker, node, retry_s=30)
    job = deliver(broker)
    pass_time(broker, 20_000)
    assert ask_parsed(broker, client, "WORKING", job.id) == 30
    assert job.requeue_at_ms == broker.now_ms + 30_000
    assert sent_of(broker, LEASED) == [((node,), (job.id, 30_000, 1, 2))]


@pytest.mark.parametrize("word", ["WORKING", "NACK"])
def test_an_attempt_that_is_far_too_high_leaves_numbers_for_later_deliveries(word):
    broker, client = start()
    hold_queued(broker, add_node(broker), retry_s=30)
    job = deliver(broker)
    ask(broker, client, word, job.id, "ATTEMPT", ATTEMPT_MAX)
    assert job.attempt <= 1 + UNHEARD_MAX


def test_working_takes_a_queued_job_out_of_its_queue():
    broker, client = start()
    job = hold_queued(broker)
    ask(broker, client, "WORKING", job.id)
    assert (job.state, queue_of(broker), job.is_leased_here) == (ACTIVE, [], True)


def test_working_does_not_lose_a_queued_at_most_once_job():
    """The original lost such a job (spec Q6)."""
    broker, client = start()
    job = hold_queued(broker, retry_s=0)
    assert ask_parsed(broker, client, "WORKING", job.id) == 0
    assert queue_of(broker) == [job.id]


def test_working_is_refused_for_unknown_and_acknowledged_jobs():
    """For an acknowledged job, the original answered with the RETRY (spec Q17)."""
    broker, client = start()
    assert error_of(broker, client, "WORKING", make_id()) == "NOJOB Job not known in the context of this node."
    job = hold(broker, add_node(broker))
    acks.acknowledge(broker, job)
    assert error_of(broker, client, "WORKING", job.id).startswith("NOJOB")


@pytest.mark.parametrize(("age_s", "is_late"), [(49, False), (50, False), (51, True)])
def test_working_is_too_late_when_more_than_half_of_the_ttl_is_over(age_s, is_late):
    """Spec L7."""
    broker, client = start()
    job = add_job(broker, client, "TTL", 100, "RETRY", 10)
    pass_time(broker, age_s * 1000)
    reply = ask(broker, client, "WORKING", job.id)
    assert reply.startswith(b"-TOOLATE Half of job TTL already elapsed") is is_late


# -- JSCAN ------------------------------------------------------------------------------------------------------------


def test_jscan_finds_jobs_by_status_and_meta():
    """A job must fulfil all conditions. Spec Y11."""
    broker, client = start()
    red = add_job(broker, client, "META", "color", "red", "ATTEMPTS", 1)
    blue = add_job(broker, client, "META", "color", "blue", "DELAY", 5)
    get(broker, client)
    ask(broker, client, "NACK", red.id)

    def found(*words):
        return ask_parsed(broker, client, "JSCAN", *words)[1]

    assert found("STATUS", "errored") == [red.id]
    assert sorted(found("STATUS", "errored", "STATUS", "invisible")) == sorted([red.id, blue.id])
    assert found("WHERE", "color", "blue") == [blue.id]
    assert found("WHERE", "color", "blue", "STATUS", "errored") == []
    assert error_of(broker, client, "JSCAN", "STATUS", "lost") == (
        "ERR STATUS must be invisible, pending, running, completed, canceled or errored"
    )
    assert error_of(broker, client, "JSCAN", "WHERE", "a") == "ERR syntax error: WHERE needs a name and a value"


def test_counted_jobs_are_those_that_count_on_this_node():
    """Spec Z2. Another holder has a lower id, so the errored job counts there."""
    broker, client = start()
    errored = add_job(broker, client, "ATTEMPTS", 1)
    get(broker, client)
    ask(broker, client, "NACK", errored.id)
    delayed, running = add_job(broker, client, "DELAY", 5), add_job(broker, client)
    get(broker, client)
    pending = add_job(broker, client)

    def counted(status):
        return ask_parsed(broker, client, "JSCAN", "QUEUE", "q", "STATUS", status, "COUNTED")[1]

    found = [counted(status) for status in ("errored", "invisible", "running", "pending")]
    assert found == [[errored.id], [delayed.id], [running.id], [pending.id]]
    broker.find(errored.id).holders = broker.sets.add(errored.holders, add_node(broker, 0))
    assert counted("errored") == []
    assert ask_parsed(broker, client, "JSCAN", "STATUS", "errored")[1] == [errored.id]


@pytest.mark.parametrize("words", [(), ("STATUS", "completed"), ("STATUS", "errored", "STATUS", "pending")])
def test_counted_needs_one_status(words):
    """Spec Z2."""
    broker, client = start()
    text = "ERR COUNTED needs one STATUS: invisible, pending, running or errored"
    assert error_of(broker, client, "JSCAN", *words, "COUNTED") == text
