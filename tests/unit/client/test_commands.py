"""Every command: its bytes on the wire for given arguments."""

from __future__ import annotations

from datetime import timedelta

import pytest

from disque_py.client import commands
from disque_py.client.address import Address
from disque_py.client.request import Lane, Repeat
from disque_py.client.results import Job

A, B = Address("a", 1), Address("b", 1)


def line(request):
    """The words with blanks between."""
    return b" ".join(request.argv).decode()


@pytest.mark.parametrize(
    ("request_", "wire"),
    [
        (commands.add_job("q", "b"), "ADDJOB q b 5000"),
        (commands.acquire_lock("l", "me", 500), "LOCK ACQUIRE l me 500"),
        (
            commands.acquire_lock("l", "me", timedelta(seconds=1), attempts=3, timeout_ms=9),
            "LOCK ACQUIRE l me 1000 TIMEOUT 9 ATTEMPTS 3",
        ),
        (commands.extend_lock("l", "me", 7, 500), "LOCK EXTEND l me 7 500"),
        (commands.release_lock("l", "me", 7), "LOCK RELEASE l me 7"),
        (commands.release_lock("l", "me", 7, done_ms=60), "LOCK RELEASE l me 7 DONE 60"),
        (commands.show_lock("l"), "LOCK SHOW l"),
        (commands.locks("n*"), "LOCK LIST n*"),
        (commands.cluster_voters(), "CLUSTER VOTERS"),
        (commands.cluster_voters_init("a", "b"), "CLUSTER VOTERS INIT a b"),
        (
            commands.add_job("q", b"b", timeout_ms=1, replicate=2, delay=3, retry=0, ttl=5, maxlen=6, async_=True),
            "ADDJOB q b 1 REPLICATE 2 DELAY 3 RETRY 0 TTL 5 MAXLEN 6 ASYNC",
        ),
        (commands.get_jobs("q", "r"), "GETJOB TIMEOUT 0 FROM q r"),
        (commands.get_jobs("q", count=3, timeout_ms=9, withcounters=True),
         "GETJOB TIMEOUT 9 COUNT 3 WITHCOUNTERS FROM q"),
        (commands.get_jobs("q", nohang=True), "GETJOB NOHANG FROM q"),
        (commands.add_job("q", "b", priority=-7, meta={"a": "b", "c": b"d"}, key="k"),
         "ADDJOB q b 5000 PRIORITY -7 META a b META c d KEY k"),
        (commands.get_jobs("q", nohang=True, withmeta=True, withlease=True, lease=9, token="t"),
         "GETJOB NOHANG WITHMETA WITHLEASE LEASE 9 TOKEN t FROM q"),
        (commands.ack_token("t", b"u"), "ACKTOKEN t u"),
        (commands.nack_token("t"), "NACKTOKEN t"),
        (commands.extend_token("t", 60), "EXTENDTOKEN t 60"),
        (commands.working("i", 90), "WORKING i 90"),
        (commands.ack("i", b"j"), "ACKJOB i j"),
        (commands.fast_ack("i"), "FASTACK i"),
        (commands.nack("i"), "NACK i"),
        (commands.enqueue("i"), "ENQUEUE i"),
        (commands.dequeue("i"), "DEQUEUE i"),
        (commands.delete("i"), "DELJOB i"),
        (commands.promote("i", b"j"), "PROMOTE i j"),
        (commands.reschedule("i", delay=60, priority=-2), "RESCHEDULE i DELAY 60 PRIORITY -2"),
        (commands.reschedule("i", delay=timedelta(milliseconds=1500)), "RESCHEDULE i DELAYMS 1500"),
        (commands.purge("q", where={"a": "b"}, status="errored"), "QPURGE q WHERE a b STATUS errored"),
        (commands.purge("q", wait=False), "QPURGE q ASYNC"),
        (commands.move("q", "r", limit=5, rate=10), "QMOVE q r LIMIT 5 RATE 10"),
        (commands.redrive("q", where={"a": "b"}, to="r", rate=1, wait=False), "QREDRIVE q WHERE a b TO r RATE 1 ASYNC"),
        (commands.tasks(), "QTASK LIST"),
        (commands.task("t"), "QTASK SHOW t"),
        (commands.cancel_task(b"t"), "QTASK CANCEL t"),
        (commands.working("i"), "WORKING i"),
        (commands.show("i"), "SHOW i"),
        (commands.qlen("q"), "QLEN q"),
        (commands.qpeek("q", -2), "QPEEK q -2"),
        (commands.qpeek("q", 2, where={"a": b"b"}), "QPEEK q 2 WHERE a b"),
        (commands.qlen("q", where={b"a": "b", b"c": "d"}), "QLEN q WHERE a b WHERE c d"),
        (commands.queue_depths("q", "a", count=5), "QDEPTH q BY a COUNT 5"),
        (commands.get_job("q", nohang=True, where={"a": "b"}), "GETJOB NOHANG WHERE a b FROM q"),
        (commands.qlen("q", status="running", cluster=True), "QLEN q STATUS running CLUSTER"),
        (commands.qpeek("q", 3, cluster=True), "QPEEK q 3 CLUSTER"),
        (commands.qpeek("q", 3, status="invisible"), "QPEEK q 3 STATUS invisible"),
        (commands.qstat("q"), "QSTAT q"),
        (commands.qstat("q", cluster=True), "QSTAT q CLUSTER"),
        (commands.qstat("q", recent=True), "QSTAT q RECENT"),
        (commands.show("i", cluster=True), "SHOW i CLUSTER"),
        (commands.job_ids("q", ["k", b"l"]), "JOBID q k l"),
        (commands.pause("q", "in", "out", bcast=True), "PAUSE q in out bcast"),
        (commands.pause("q"), "PAUSE q state"),
        (commands.queue_settings("q"), "QUEUE GET q"),
        (commands.queues_with_settings("m*"), "QUEUE LIST m*"),
        (commands.queues_with_settings(), "QUEUE LIST"),
        (commands.reset_queue("q"), "QUEUE RESET q"),
        (commands.set_queue("q", lease=30, delay=timedelta(milliseconds=1500), ttl="", replicate="quorum"),
         "QUEUE SET q lease 30 delay 1500ms ttl  replicate quorum"),
        (commands.set_queue("q", attempts=3, backoff="fixed:100:100", dead_letter="dead", retention=60),
         "QUEUE SET q attempts 3 backoff fixed:100:100 dead-letter dead retention 60"),
        (commands.set_queue("q", exclusive_by="user", assign="quorum"),
         "QUEUE SET q type exclusive exclusive-by user assign quorum"),
        (commands.set_queue("q", maxlen=1, maxsize=0, require_meta=["a", b"b"], index=["t"], more={"rate": "1/s"}),
         "QUEUE SET q maxlen 1 maxsize 0 require-meta a,b index t rate 1/s"),
        (commands.qscan_page(7, count=1, busyloop=True, minlen=2, maxlen=3, importrate=4),
         "QSCAN 7 COUNT 1 BUSYLOOP MINLEN 2 MAXLEN 3 IMPORTRATE 4"),
        (commands.jscan_page(queue="q", states=["active", "queued"]), "JSCAN 0 QUEUE q STATE active STATE queued"),
        (commands.jscan_info_page(1, busyloop=True), "JSCAN 1 BUSYLOOP REPLY all"),
        (commands.hello(), "HELLO"),
        (commands.ping(), "PING"),
        (commands.time(), "TIME"),
        (commands.info(), "INFO"),
        (commands.info("jobs"), "INFO jobs"),
        (commands.config_get("max*"), "CONFIG GET max*"),
        (commands.config_set("maxmemory", 100), "CONFIG SET maxmemory 100"),
        (commands.cluster_info(), "CLUSTER INFO"),
        (commands.cluster_nodes(), "CLUSTER NODES"),
        (commands.cluster_myid(), "CLUSTER MYID"),
        (commands.cluster_meet("h", 1), "CLUSTER MEET h 1"),
        (commands.cluster_meet("h", 1, 2), "CLUSTER MEET h 1 2"),
        (commands.cluster_forget("id"), "CLUSTER FORGET id"),
        (commands.cluster_reset(hard=True), "CLUSTER RESET HARD"),
        (commands.cluster_leaving(), "CLUSTER LEAVING"),
        (commands.cluster_leaving(False), "CLUSTER LEAVING no"),
        (commands.cluster_saveconfig(), "CLUSTER SAVECONFIG"),
        (commands.execute("any", 1, b"x"), "any 1 x"),
    ],
)  # fmt: skip
def test_arguments_become_words(request_, wire):
    """Spec R8."""
    assert line(request_) == wire


def test_an_addjob_is_repeated_only_with_permission():
    """A second ADDJOB is a second job."""
    assert commands.add_job("q", "b").repeat is Repeat.ASK
    assert commands.add_job("q", "b", retry_unsafe=True).repeat is Repeat.SAFE
    assert commands.add_job("q", "b", retry_unsafe=False).repeat is Repeat.NEVER


def test_commands_that_may_wait_have_lanes_of_their_own():
    """An ack must not stand behind a GETJOB, nor behind an ADDJOB that waits for copies."""
    assert commands.get_jobs("q").lane is Lane.OWN
    assert commands.add_job("q", "b").lane is Lane.ADDS
    assert commands.get_jobs("q", nohang=True).lane is Lane.PLAIN
    assert commands.ack("i").lane is Lane.PLAIN


def test_commands_about_a_job_go_where_it_was_fetched():
    """WORKING and NACK only work where the job is known."""
    job = Job("q", "i", b"", node=A)
    assert commands.working(job).node == A
    assert commands.show(job).node == A
    assert commands.nack("i").node is None


def test_jobs_of_several_nodes_are_grouped():
    """Groups are in the order in which the nodes appear."""
    one, two, three = Job("q", "1", b"", node=A), Job("q", "2", b"", node=B), Job("q", "3", b"", node=A)
    assert commands.by_node([one, two, "4", three]) == {A: [one, three], B: [two], None: ["4"]}


def test_getjob_without_a_queue_is_refused():
    """The node would answer `syntax error`, which does not name the missing part."""
    with pytest.raises(ValueError, match="queue"):
        commands.get_jobs()


def test_answers_are_read():
    """Where they are more than a number or a word."""
    assert commands.time().read([b"7", b"8"]) == (7, 8)
    assert commands.cluster_leaving().read(b"yes") is True
    assert commands.cluster_leaving(True).read(b"OK") is True
    assert commands.qscan_page().read([b"0", [b"q"]]) == (0, ["q"])
    assert commands.jscan_info_page().read([b"5", [[b"id", b"i", b"state", b"active"]]])[1][0].id == "i"
    assert commands.execute("X").read([1, None]) == [1, None]


def test_an_addjob_with_a_key_may_be_sent_again():
    """The second one is answered with the id of the first."""
    assert commands.add_job("q", "b").repeat is Repeat.ASK
    assert commands.add_job("q", "b", key="k").repeat is Repeat.SAFE


def test_a_token_belongs_to_the_node_that_answered():
    again = commands.get_jobs("q", token="t", node=A)
    assert (again.node, again.is_pinned) == (A, True)
    assert (commands.ack_token("t", node=A).node, commands.ack_token("t", node=A).is_pinned) == (A, True)
    assert not commands.get_jobs("q", token="t").is_pinned


def test_a_queue_is_not_set_without_a_field_or_with_a_word_for_a_time():
    with pytest.raises(ValueError, match="needs a field"):
        commands.set_queue("q")
    with pytest.raises(ValueError, match="lease must be a number of seconds"):
        commands.set_queue("q", lease="soon")


def test_the_figures_of_a_queue_are_of_the_cluster_or_recent():
    with pytest.raises(ValueError, match="not both"):
        commands.qstat("q", cluster=True, recent=True)


def claimed(fence=5):
    return Job("q", "D-1", b"", attempt=2, fence=fence)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (commands.ack(claimed()), [b"FENCE", b"5"]),
        (commands.ack(claimed(), attempt=2), [b"ATTEMPT", b"2", b"FENCE", b"5"]),
        (commands.nack(claimed()), [b"FENCE", b"5"]),
        (commands.working(claimed()), [b"FENCE", b"5"]),
        (commands.working("D-1", fence=7), [b"FENCE", b"7"]),
        (commands.cancel("D-1", fence=7), [b"FENCE", b"7"]),
        (commands.cancel(claimed()), []),
        (commands.ack(claimed(fence=0)), []),
        (commands.ack(claimed(), claimed()), []),
    ],
)
def test_a_job_under_a_claim_is_named_with_its_fence(request_, words):
    ids = 2 if request_.argv.count(b"D-1") == 2 else 1
    assert list(request_.argv[1 + ids :]) == words


def test_a_fence_is_about_one_job():
    with pytest.raises(ValueError, match="exactly one job"):
        commands.ack("D-1", "D-2", fence=5)
