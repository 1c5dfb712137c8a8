"""Disque: commands from threads to nodes that may fail."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress

import pytest

from client_node import (
    AT_ONCE,
    HANG_UP,
    JOB_A,
    JOB_B,
    SILENCE,
    Node,
    bulk,
    closed_port,
    in_turn,
    jobs_reply,
    node_that_closes_its_door,
)
from disque_py.client import Disque
from disque_py.client.address import parse_address
from disque_py.client.errors import (
    AuthError,
    BatchError,
    ClientClosedError,
    ConnectionLostError,
    LeavingError,
    NoReplError,
    NotConnectedError,
    OutOfMemoryError,
    PausedError,
    ProtocolError,
    ReplyTimeoutError,
)
from disque_py.client.feed import WINDOW_JOBS
from disque_py.client.templates import SLAB

JOB_C = "D-cccccccc-" + "z" * 24 + "-05a1"
LEAVING = b"-LEAVING This node is leaving the cluster\r\n"


def client_of(*nodes, **settings):
    return Disque(*(node if isinstance(node, str) else node.address for node in nodes), **settings)


def test_a_job_is_added_fetched_and_acknowledged():
    """This is the basic cycle of every program."""
    answers = {"ADDJOB": f"+{JOB_A}\r\n".encode(), "GETJOB": jobs_reply(JOB_A, body=b"hi"), "ACKJOB": b":1\r\n"}
    with Node(answers=answers) as node, client_of(node, decode="utf-8") as client:
        assert client.add_job("q", "hi", retry=5) == JOB_A
        job = client.get_job("q")
        assert job is not None
        assert (job.id, job.value, str(job.node)) == (JOB_A, "hi", node.address)
        assert client.ack(job) == 1
        assert node.greetings == 1


def test_threads_share_a_client():
    """It has as many connections as commands that run at the same time."""
    with Node(answers={"SAY": lambda words: bulk(words[1])}) as node, client_of(node, pool_size=3) as client:
        heard = []

        def talk(number):
            heard.extend(client.execute("SAY", number) for _ in range(50))

        threads = [threading.Thread(target=talk, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(heard) == sorted(b"%d" % number for number in range(8) for _ in range(50))
        assert node.greetings <= 3


def test_errors_have_types():
    """An error reply leaves the connection usable."""
    with Node(answers={"ADDJOB": b"-PAUSED Queue paused\r\n"}) as node, client_of(node) as client:
        with pytest.raises(PausedError):
            client.add_job("q", "")
        assert client.ping() == "PONG"


def test_the_next_seed_is_tried_when_one_is_dead():
    """The client tries seeds until it finds an available one."""
    with Node() as node, client_of(f"127.0.0.1:{closed_port()}", node) as client:
        assert client.ping() == "PONG"
        assert str(client.node) == node.address


def test_without_any_answer_the_patience_ends():
    """The error gives the reason of the last attempt."""
    with pytest.raises(NotConnectedError, match="refused"):
        client_of(f"127.0.0.1:{closed_port()}", patience=0.05).ping()


@pytest.mark.parametrize("answer", [b"-WRONGPASS no\r\n", b"-NOAUTH Authentication required.\r\n"])
def test_a_command_goes_to_another_node_if_one_refuses_the_login(answer):
    """An operator changes the password node by node. Open connections get NOAUTH, new ones either error."""
    with Node("a") as node, Node("b") as other:
        node.peers, other.peers = [other], [node]
        with Disque(node.address, patience=5) as client:
            assert client.ping() == "PONG"
            node.answers |= {"PING": b"-NOAUTH Authentication required.\r\n", "HELLO": answer}
            if answer.startswith(b"-WRONGPASS"):
                node.drop()
            assert client.ping() == "PONG"
        assert other.named("PING")


def test_a_first_login_that_is_refused_is_reported_at_once_although_another_node_is_away():
    with Node("b", {"AUTH": b"-WRONGPASS no\r\n"}) as node, pytest.raises(AuthError):
        Disque(node.address, f"127.0.0.1:{closed_port()}", password="x", patience=60).ping()


@pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="the system does not tell what it has sent")
def test_a_long_body_may_take_longer_than_a_time_out():
    """The node is not silent: it still reads. The system takes some megabytes of the body at once."""
    with Node(answers={"ECHO": b"+heard\r\n"}, pause_s=0.02) as node, client_of(node, timeout=0.4) as client:
        began = time.monotonic()
        assert client.execute("ECHO", b"x" * 8_000_000) == b"heard"
        assert time.monotonic() - began > 0.8


def test_a_long_body_to_a_node_that_does_not_read_ends_with_a_time_out():
    node = Node(pause_s=2)
    with node, client_of(node, timeout=0.3, patience=0) as client, pytest.raises(ReplyTimeoutError):
        client.execute("ECHO", b"x" * 8_000_000)


def test_a_client_leaves_a_server_that_is_no_node_for_a_node():
    with Node("a", {"HELLO": b"*2\r\n$6\r\nserver\r\n$5\r\nredis\r\n"}) as redis, Node("b") as node:
        with client_of(redis, node, patience=1) as client:
            assert client.ping() == "PONG"
        with pytest.raises(NotConnectedError, match="a redis server answers here"):
            client_of(redis, patience=0).ping()


def test_a_wrong_password_is_reported_at_once():
    """The client asks no node twice."""
    with Node(answers={"AUTH": b"-ERR invalid password\r\n"}) as node, pytest.raises(AuthError):
        client_of(node, password="x", patience=60).connect()


def test_a_command_for_one_node_is_told_that_this_node_refuses_the_login():
    """Another node accepts it, so the client itself is logged in."""
    node, refusing = Node("a", {"AUTH": b"+OK\r\n"}), Node("b", {"AUTH": b"-WRONGPASS no\r\n"})
    with node, refusing, client_of(node, password="x") as client:
        with pytest.raises(AuthError, match="WRONGPASS"):
            client.execute("QLEN", "q", node=parse_address(refusing.address))
        pipe = client.pipeline()
        pipe.command("QLEN", "q", node=parse_address(refusing.address))
        with pytest.raises(AuthError, match="WRONGPASS"):
            pipe.execute()
        assert client.ping() == "PONG"


def test_a_login_that_is_refused_in_the_middle_of_many_jobs_leaves_the_ids_of_the_others():
    """The first part of the jobs was added, then the node began to ask for a password."""
    with node_that_closes_its_door() as node, client_of(node) as client, pytest.raises(BatchError) as caught:
        client.add_jobs("q", [b"first"] * SLAB + [b"last"], retry_unsafe=True)
    assert caught.value.results[: SLAB - 1] == ["D-1"] * (SLAB - 1)
    assert all(isinstance(result, AuthError) for result in caught.value.results[SLAB - 1 :])


def test_a_node_that_answers_garbage_is_left_for_another_one():
    """For example behind a proxy. An ADDJOB may have been executed, so it is not sent again."""
    garbage = {"QLEN": b"HTTP/1.1 502 Bad Gateway\r\n", "ADDJOB": b"HTTP/1.1 502 Bad Gateway\r\n"}
    with Node("a", garbage) as bad, Node("b", {"QLEN": b":7\r\n", "ADDJOB": b"+D-1\r\n"}) as good:
        bad.peers = [good]
        with client_of(bad) as client:
            assert client.qlen("q") == 7
        with client_of(bad) as client, pytest.raises(ProtocolError, match=f"^{bad.address}: ") as caught:
            client.add_job("q", "x")
        assert caught.value.sent


def test_a_harmless_command_is_repeated_on_another_node():
    """A QLEN that runs twice does no harm."""
    with Node("a", {"QLEN": HANG_UP}) as bad, Node("b", {"QLEN": b":7\r\n"}) as good:
        bad.peers = [good]
        with client_of(bad) as client:
            assert client.qlen("q") == 7


def test_an_addjob_that_may_have_been_executed_is_not_repeated():
    """It is repeated only if the caller allows it."""
    answers = {"ADDJOB": in_turn(HANG_UP, HANG_UP, f"+{JOB_A}\r\n".encode())}
    with Node(answers=answers) as node, client_of(node) as client:
        with pytest.raises(ConnectionLostError) as caught:
            client.add_job("q", "")
        assert caught.value.sent
        assert client.add_job("q", "", retry_unsafe=True) == JOB_A


def test_a_refusal_of_a_leaving_node_moves_the_client_to_another_node():
    """The node refuses only the command itself, and the client sends it elsewhere."""
    with Node("a", {"GETJOB": LEAVING}) as bad, Node("b", {"GETJOB": jobs_reply(JOB_B)}) as good:
        bad.peers = [good]
        with client_of(bad) as client:
            assert [job.id for job in client.get_jobs("q")] == [JOB_B]
            assert str(client.node) == good.address


def test_leaving_is_an_error_without_another_node():
    """The error is raised when the patience ends."""
    with (
        Node(answers={"GETJOB": LEAVING}) as node,
        client_of(node, patience=0.05) as client,
        pytest.raises(LeavingError),
    ):
        client.get_job("q")


@pytest.mark.parametrize("refusal", [b"-MISCONF Errors writing to the AOF file\r\n", b"-OOM full\r\n"])
def test_a_command_that_a_full_node_refuses_goes_to_another_node(refusal):
    """docs/protocol.md advises clients to do so. GETJOB gets MISCONF if it would deliver a job of RETRY 0."""
    answers = {"ADDJOB": f"+{JOB_B}\r\n".encode(), "GETJOB": jobs_reply(JOB_B)}
    with Node("a", dict.fromkeys(answers, refusal)) as full, Node("b", answers) as good:
        full.peers = [good]
        for use in (lambda client: client.add_job("q", ""), lambda client: client.get_job("q").id):
            with client_of(full) as client:
                assert use(client) == JOB_B
        with client_of(full) as client:
            assert client.add_jobs("q", [b"1", b"2"]) == [JOB_B] * 2


def test_if_all_nodes_are_full_each_is_asked_once():
    """The state may last for hours, so the client does not wait for its end."""
    with Node("a", {"ADDJOB": b"-OOM full\r\n"}) as node, Node("b", {"ADDJOB": b"-OOM full\r\n"}) as other:
        with client_of(node, other) as client:
            for _ in range(2):
                with pytest.raises(OutOfMemoryError):
                    client.add_job("q", "")
            with pytest.raises(BatchError, match="2 of 2"):
                client.add_jobs("q", [b"1", b"2"])
        assert len(node.named("ADDJOB") + other.named("ADDJOB")) == 2 + 1 + 2


def test_a_full_node_refuses_a_command_about_a_job_for_good():
    """Another node may not know the job."""
    refused = f"NACK {JOB_A}"
    with Node("a", {"NACK": b"-OOM full\r\n", "GETJOB": jobs_reply(JOB_A)}) as full, Node("b") as other:
        full.peers = [other]
        with client_of(full) as client, pytest.raises(OutOfMemoryError):
            client.nack(client.get_job("q"))
        assert other.named("NACK") == []
        assert [b" ".join(words[:2]).decode() for words in full.named("NACK")] == [refused]


def test_a_fetch_without_a_job_in_time_returns_none():
    """With NOHANG the result is empty too."""
    with Node(answers={"GETJOB": b"*-1\r\n"}) as node, client_of(node) as client:
        assert client.get_job("q", timeout_ms=10) is None
        assert client.get_jobs("q", nohang=True) == []


def test_the_connection_to_a_silent_node_is_closed():
    """The connection is not used again."""
    with (
        Node(answers={"QLEN": SILENCE}) as node,
        client_of(node, timeout=0.05, patience=0) as client,
        pytest.raises(ReplyTimeoutError),
    ):
        client.qlen("q")


def test_many_jobs_are_added_in_one_pipeline():
    """The ids are in the order of the bodies."""
    answers = {"ADDJOB": lambda words: bulk(b"D-" + words[2])}
    with Node(answers=answers) as node, client_of(node) as client:
        ids = client.add_jobs("q", (b"%d" % number for number in range(3_000)), replicate=1)
        assert ids == [f"D-{number}" for number in range(3_000)]


def test_many_jobs_share_one_patience():
    """Otherwise the waits of a million jobs could add up to a hundred times the patience."""
    client = client_of(f"127.0.0.1:{closed_port()}", patience=0.3)
    began = time.monotonic()
    with pytest.raises(BatchError, match="refused") as caught:
        client.add_jobs("q", (b"" for _ in range(20 * SLAB + 1)))
    assert len(caught.value.results) == 20 * SLAB + 1
    assert time.monotonic() - began < 3


def test_a_broken_pipeline_reports_the_outcome_of_each_command():
    """The first command was answered, and the second may have been executed."""
    with Node(answers={"ADDJOB": in_turn(b"+one\r\n", HANG_UP)}) as node, client_of(node) as client:
        with pytest.raises(BatchError) as caught:
            client.add_jobs("q", [b"1", b"2"])
        assert caught.value.results[0] == "one"
        assert isinstance(caught.value.first, ConnectionLostError)


def test_pipelines_mix_commands():
    """Each has its own result."""
    with Node(answers={"QLEN": b":3\r\n", "ADDJOB": b"-PAUSED no\r\n"}) as node, client_of(node) as client:
        pipe = client.pipeline()
        added, length = pipe.add_job("q", ""), pipe.qlen("q")
        outcomes = pipe.execute()
        assert isinstance(outcomes[0], PausedError)
        assert length.value == 3
        with pytest.raises(PausedError):
            _ = added.value


def test_consumers_move_to_the_node_that_feeds_them():
    """Producers stay where they are."""
    far = jobs_reply(*[JOB_B] * WINDOW_JOBS)
    with Node("a", {"GETJOB": far}) as here, Node("b", {"GETJOB": jobs_reply(JOB_B)}) as there:
        here.peers, there.peers = [there], [here]
        with client_of(here) as client:
            client.get_jobs("q", count=WINDOW_JOBS)
            client.get_jobs("q")
            assert (str(client.node), str(client.consumer_node)) == (here.address, there.address)


def test_a_getjob_in_words_has_the_reply_of_the_node():
    with Node(answers={"GETJOB": jobs_reply(JOB_A)}) as node, client_of(node) as client:
        [[_, job_id, *_]] = client.execute("GETJOB", "FROM", "q")
        assert job_id == JOB_A.encode()


def test_jobs_come_as_an_iterator():
    """The iterator ends when no job has come for a while."""
    answers = {"GETJOB": in_turn(jobs_reply(JOB_A, JOB_A), jobs_reply(JOB_B), b"*-1\r\n")}
    with Node(answers=answers) as node, client_of(node) as client:
        assert [job.id for job in client.jobs("q", count=2, idle_ms=5)] == [JOB_A, JOB_A, JOB_B]


def test_scans_follow_their_cursors():
    """The scan ends with cursor 0."""
    pages = in_turn(b"*2\r\n$1\r\n7\r\n*1\r\n$1\r\na\r\n", b"*2\r\n$1\r\n0\r\n*1\r\n$1\r\nb\r\n")
    with Node(answers={"QSCAN": pages, "JSCAN": b"*2\r\n$1\r\n0\r\n*0\r\n"}) as node, client_of(node) as client:
        assert list(client.qscan()) == ["a", "b"]
        assert list(client.jscan()) == list(client.jscan_info()) == []


def test_closing_ends_the_waits_of_other_threads():
    """Every later call fails too."""
    with Node(answers={"GETJOB": SILENCE}) as node:
        client = client_of(node).connect()
        timer = threading.Timer(0.05, client.close)
        timer.start()
        with pytest.raises((ConnectionLostError, ClientClosedError)):
            client.get_job("q")
        timer.join()
        with pytest.raises(ClientClosedError):
            client.ping()


def test_a_url_makes_a_client():
    """Keyword arguments override the URL."""
    with Node() as node, Disque.from_url(f"disque://{node.address}?timeout=2") as client:
        assert client.options.timeout == 2.0


MISSING = b"-NOREPL Not enough reachable nodes for the requested replication level\r\n"


def test_an_addjob_without_replicate_waits_for_missing_nodes():
    """This applies to single and to many jobs, unless the caller sets a number of copies."""
    added = f"+{JOB_A}\r\n".encode()
    with Node(answers={"ADDJOB": in_turn(MISSING, added, MISSING, added)}) as node, client_of(node) as client:
        assert client.add_job("q", "") == JOB_A
        assert client.add_jobs("q", [b"1", b"2"]) == [JOB_A, JOB_A]
        assert client._pool.cluster.is_good(client.node)
    with (
        Node(answers={"ADDJOB": in_turn(MISSING, added)}) as node,
        client_of(node) as client,
        pytest.raises(NoReplError),
    ):
        client.add_job("q", "", replicate=2)


def test_an_iterator_that_ends_early_puts_the_remaining_jobs_back():
    """It ends when its loop is left in any way, when it is closed, and when its client is closed."""
    with Node(answers={"GETJOB": jobs_reply(JOB_A, JOB_B), "NACK": b":1\r\n"}) as node:
        with client_of(node) as client:
            for _ in client.jobs("q", count=2):
                break
            with suppress(ZeroDivisionError):
                for _ in client.jobs("q", count=2):
                    raise ZeroDivisionError
            jobs, kept = client.jobs("q", count=2), client.jobs("q", count=2)
            assert (next(jobs).id, next(kept).id) == (JOB_A, JOB_A)
            jobs.close()
            assert len(node.named("NACK")) == 3
        assert node.named("NACK") == [[b"NACK", JOB_B.encode(), *AT_ONCE]] * 4


def test_get_job_fills_in_the_requested_fields():
    """The job counts as received from the node that created it, as jobs in a list do."""
    entry = b"*1\r\n*5\r\n" + bulk("q") + bulk(JOB_A) + bulk(b"hi") + bulk("meta") + b"*2\r\n" + bulk("a") + bulk("b")
    with Node(answers={"GETJOB": entry}) as node, client_of(node, decode="utf-8") as client:
        job = client.get_job("q", withmeta=True)
        assert job is not None
        assert (job.meta, job.value, job.node) == ({"a": "b"}, "hi", client.node)


def test_putting_jobs_back_does_not_search_for_nodes():
    """A loop that ends because its node is gone must not wait for that node again."""
    with Node(answers={"GETJOB": jobs_reply(JOB_A, JOB_B)}) as node, client_of(node, patience=5.0) as client:
        jobs = client.jobs("q", count=2)
        next(jobs)
        node.close()
        began = time.monotonic()
        jobs.close()
        assert time.monotonic() - began < 2


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12 and later: the node has threads.
class Interrupt(BaseException):
    """An exception of a signal handler: Ctrl-C, or the time limit of a task."""


def interrupted(work, place):
    """Run some work, and raise Interrupt in its n-th call, where a signal handler would run."""
    left = place

    def look(frame, event, function):
        nonlocal left
        if event in ("call", "c_return"):
            left -= 1
            if left == 0:
                sys.setprofile(None)
                raise Interrupt

    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # A socket that has no name yet.
@pytest.mark.parametrize("is_connected", [True, False])
def test_an_interrupt_at_any_moment_costs_no_connection(is_connected):
    """With one connection that is not given back, the client of one connection would never work again."""
    answers = {"QLEN": b":1\r\n"}
    with Node(answers=answers) as node, client_of(node, pool_size=1, patience=2) as client:
        for place in range(1, 1_000):
            if is_connected:
                client.qlen("q")
            else:
                node.drop()
            try:
                interrupted(lambda: client.qlen("q"), place)
            except Interrupt:
                continue
            break
        assert client.qlen("q") == 1
        assert place > 20


def interrupted_twice(work, place, then):
    """Run some work, raise Interrupt in the n-th call of our code, and again in the n-th of our functions after that.

    Code of others is not counted, because hooks of pytest would be interrupted, too.
    """
    left = then

    def is_ours(frame):
        return frame.f_globals["__name__"].startswith("disque_py.")

    def look(frame, event, argument):
        nonlocal left
        if event == "call" and is_ours(frame):
            left -= 1
            if left == 0:
                sys.settrace(None)
                raise Interrupt

    def first(frame, event, function):
        nonlocal place
        if event in ("call", "c_return") and is_ours(frame):
            place -= 1
            if place == 0:
                sys.setprofile(None)
                sys.settrace(look)
                raise Interrupt

    before = sys.gettrace()
    sys.setprofile(first)
    try:
        work()
    finally:
        sys.setprofile(None)
        sys.settrace(before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # A socket that has no name yet.
@pytest.mark.parametrize("then", [1, 2, 3, 4])
@pytest.mark.parametrize("is_connected", [True, False])
def test_a_second_interrupt_during_the_clean_up_costs_no_connection(is_connected, then):
    answers = {"QLEN": b":1\r\n"}
    with Node(answers=answers) as node, client_of(node, pool_size=1, patience=2) as client:
        for place in range(1, 1_000):
            if is_connected:
                assert client.qlen("q") == 1, place
            else:
                node.drop()
            try:
                interrupted_twice(lambda: client.qlen("q"), place, then)
            except Interrupt:
                continue
            break
        assert client.qlen("q") == 1
        assert place > 20


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # A socket that has no name yet.
def test_an_interrupt_at_any_moment_leaves_the_client_to_other_threads():
    """The thread that was interrupted may hold no lock. It would not notice, because it may take its locks again."""
    with Node(answers={"QLEN": b":1\r\n"}) as node, client_of(node, pool_size=1, patience=2) as client:
        for place in range(1, 1_000):
            node.drop()
            with suppress(Interrupt):
                interrupted(lambda: client.qlen("q"), place)
                break
            lengths = []
            other = threading.Thread(target=lambda found=lengths: found.append(client.qlen("q")), daemon=True)
            other.start()
            other.join(10)
            assert lengths == [1], place
        assert place > 20


def test_a_forked_child_neither_hands_out_nor_puts_back_its_parents_jobs():
    """The parent works on these jobs. The child fetches its own."""
    batch = jobs_reply(JOB_A, JOB_B)
    answers = {"GETJOB": in_turn(batch, batch, jobs_reply(JOB_C)), "NACK": b":1\r\n"}
    with Node(answers=answers) as node, client_of(node) as client:
        jobs, others = client.jobs("q", count=2), client.jobs("q", count=2)
        assert (next(jobs).id, next(others).id) == (JOB_A, JOB_A)
        pid = os.fork()
        if pid == 0:
            signal.alarm(5)
            is_own = next(jobs).id == JOB_C
            client.close()
            os._exit(0 if is_own else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert node.named("NACK") == []
        assert (next(jobs).id, next(others).id) == (JOB_B, JOB_B)


def test_a_node_that_knows_plain_nacks_only_gets_these():
    """The node refuses the options once. The jobs are put back anyway."""

    def nack(words):
        return b":1\r\n" if len(words) == 2 else b"-BADID Invalid Job ID format.\r\n"

    with Node(answers={"GETJOB": jobs_reply(JOB_A), "NACK": nack}) as node, client_of(node) as client:
        for _ in range(2):
            client.put_back(client.get_jobs("q"))
        assert [words[1:] for words in node.named("NACK")] == [[JOB_A.encode(), *AT_ONCE], *[[JOB_A.encode()]] * 2]
