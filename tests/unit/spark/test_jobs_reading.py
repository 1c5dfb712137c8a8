"""jobs_reading.py: batches of jobs by token, acknowledged after their commit, or delivered again."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("pyarrow", reason="the extra disque-py[spark] is not installed")

from disque_py.client import NotConnectedError
from disque_py.spark import jobs_reading
from disque_py.spark.job_tokens import jobs_of, token
from disque_py.spark.jobs_reading import JobPlanner, _batch, fetch, job_options
from disque_py.spark.nodes import ClusterError
from disque_py.spark.options import OptionError
from spark_stub import StubCluster

OPEN: list[JobPlanner] = []


@pytest.fixture(autouse=True)
def stopped():
    """Planners stop when the test is over."""
    yield
    while OPEN:
        OPEN.pop().stop()


def planner(cluster: StubCluster, **given: str) -> JobPlanner:
    options = {"bootstrapServers": cluster.servers, "subscribe": "work", **given}
    OPEN.append(JobPlanner(job_options(options)))
    return OPEN[-1]


def planned(cluster: StubCluster, count: int, **given: str) -> tuple[JobPlanner, dict]:
    """A planner, and the end of its first batch: of as many jobs of the first node."""
    cluster.nodes[0].fill("work", count)
    plan = planner(cluster, **given)
    return plan, plan.latest(plan.initial())


def planned_big(cluster: StubCluster, count: int, **given: str) -> tuple[JobPlanner, dict]:
    """The same with jobs of 100 kB."""
    cluster.nodes[0].fill("work", count, 100_000)
    plan = planner(cluster, **given)
    return plan, plan.latest(plan.initial())


def rows(plan: JobPlanner, end: dict) -> list[dict]:
    return [
        row
        for share, address in plan.shares(end)
        for batch in fetch(plan.options, end, share, address, is_repeated=plan.is_repeated(end))
        for row in batch.to_pylist()
    ]


def drain(plan: JobPlanner, start: dict) -> tuple[list[dict], dict]:
    """As Spark does it: a batch is committed when the next one is made."""
    found = []
    while (end := plan.latest(start)) is not start:
        if start["n"]:
            plan.commit(start)
        found += rows(plan, end)
        start = end
    return found, start


def test_every_job_is_read_once_and_acknowledged():
    with StubCluster(2) as cluster:
        for node in cluster.nodes:
            node.fill("work", 2500, carrier="UA")
        found, end = drain(planner(cluster, maxJobsPerTrigger="3000"), planner(cluster).initial())
        assert len({row["id"] for row in found}) == len(found) == 5000
        assert sum(len(node.acked) for node in cluster.nodes) == 5000
        assert end["shares"] == []


def test_a_trigger_asks_a_node_about_hundreds_of_queues_in_a_few_round_trips():
    with StubCluster(2) as cluster:
        cluster.nodes[1].fill("queue-299", 7)
        plan = planner(cluster, subscribe=",".join(f"queue-{number}" for number in range(300)))
        end = plan.latest(plan.initial())
        assert jobs_of(end) == 7
        assert max(node.round_trips for node in cluster.nodes) < 20


def test_a_row_has_the_values_of_the_nodes_reply():
    with StubCluster() as cluster:
        cluster.nodes[0].fill("work", 1, carrier="UA")
        plan = planner(cluster)
        row = rows(plan, plan.latest(plan.initial()))[0]
        assert (row["queue"], row["body"], row["nacks"], row["meta"]) == ("work", b"body-0", 0, [("carrier", "UA")])
        assert row["node"] == cluster.nodes[0].id


def test_jobs_of_a_lost_reply_are_fetched_again_so_that_they_are_not_acknowledged_unread():
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        plan, end = planned(cluster, 2500, minPartitions="1")
        node.swallow = {b"GETJOB": 3}
        found = rows(plan, end)
        plan.commit(end)
        assert len(node.acked) == len({row["id"] for row in found}) == 2500


def test_a_restarted_node_takes_back_jobs_whose_rows_may_be_lost():
    """Its journal knows the tokens, but their rows may never have arrived."""
    with StubCluster(2) as cluster:
        for node in cluster.nodes:
            node.fill("work", 10)
        plan = planner(cluster)
        end = plan.latest(plan.initial())
        rows(plan, end)
        cluster.nodes[0].run = "another"
        with pytest.warns(UserWarning, match=r"could not be acknowledged .the node was restarted"):
            plan.commit(end)
        assert [len(node.acked) for node in cluster.nodes] == [0, 10]
        again, _ = drain(plan, plan.latest(end))
        assert len(again) + 10 == 20


def test_undecodable_bytes_are_replaced_and_jobs_without_meta_have_an_empty_map():
    names = [b"nacks", 0, b"additional-deliveries", 0, b"meta"]
    entries = [[b"w\xff", b"D-1", b"\xfe", *names, []], [b"work", b"D-2", b"", *names, [b"k\xff", b"v"]]]
    first, second = _batch(entries, "n1").to_pylist()
    assert (first["queue"], first["body"], first["meta"]) == ("w\ufffd", b"\xfe", [])
    assert (second["queue"], second["meta"]) == ("work", [("k\ufffd", "v")])
    assert _batch(entries[:1], "n1").to_pylist() == [first]


def test_a_batch_read_again_gives_the_same_jobs():
    with StubCluster() as cluster:
        plan, end = planned(cluster, 100)
        first = rows(plan, end)
        cluster.nodes[0].fill("work", 100)
        assert rows(planner(cluster), end) == first


def test_a_repeated_batch_waits_for_a_node_that_may_have_given_jobs_before(monkeypatch):
    """At the commit the node may be reachable again, and the batch acknowledges its tokens."""
    monkeypatch.setattr("disque_py.spark.nodes.REST_S", 0.1)
    with StubCluster() as cluster:
        plan, end = planned(cluster, 10, minPartitions="1")
        first = rows(plan, end)
        again = planner(cluster)
        dial = jobs_reading.Nodes.connect
        failures = iter([True, False])

        def connect(nodes, address):
            if next(failures, False):
                raise NotConnectedError("refused")
            return dial(nodes, address)

        shares = again.shares(end)
        monkeypatch.setattr(jobs_reading.Nodes, "connect", connect)
        found = [row for item in shares for part in fetch(again.options, end, *item, is_repeated=True)
                 for row in part.to_pylist()]  # fmt: skip
        assert found == first


def test_a_repeated_batch_reads_the_jobs_of_all_tokens():
    """The jobs of its first token are over, and the next tokens have jobs that the batch will acknowledge."""
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        plan, end = planned(cluster, 2500, minPartitions="1")
        rows(plan, end)
        del node.tokens[token(end, node.id, 0)]
        again = planner(cluster)
        found = rows(again, end)
        again.commit(end)
        assert {row["id"] for row in found} == set(node.acked)
        assert len(node.acked) == 1500


def test_a_repeated_batch_that_is_full_still_reads_the_tokens_that_have_jobs():
    """Each token has one big job. The first one is over, and small jobs fill the batch under its token."""
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.fill("work", 3, 2_000_000)
        plan = planner(cluster, minPartitions="1")
        end = plan.latest(plan.initial())
        rows(plan, end)
        del node.tokens[token(end, node.id, 0)]
        node.fill("work", 10)
        again = planner(cluster)
        found = rows(again, end)
        again.commit(end)
        assert {row["id"] for row in found} == set(node.acked)
        assert len(node.acked) == 5


def test_a_repeated_batch_that_is_full_gives_back_jobs_whose_leases_are_not_extended():
    """The next token still has a job in the second half of its TTL. The batch must not acknowledge it unread."""
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.fill("work", 2, 2_000_000)
        plan = planner(cluster, minPartitions="1")
        end = plan.latest(plan.initial())
        rows(plan, end)
        del node.tokens[token(end, node.id, 0)]
        node.aged = {token(end, node.id, 1)}
        node.fill("work", 10)
        again = planner(cluster)
        found = rows(again, end)
        again.commit(end)
        assert {row["id"] for row in found} == set(node.acked)
        assert 2_000_000 in {len(job[1]) for job in node.jobs["work"]}


def test_a_query_that_starts_again_acknowledges_what_it_had_committed():
    with StubCluster() as cluster:
        plan, end = planned(cluster, 10)
        rows(plan, end)
        again = planner(cluster)
        bump = again.latest(end)
        assert (bump["n"], bump["shares"]) == (end["n"] + 1, [])
        again.commit(end)
        assert len(cluster.nodes[0].acked) == 10
        assert again.latest(bump) is bump


def test_available_now_takes_the_jobs_that_waited_at_the_start():
    with StubCluster() as cluster:
        cluster.nodes[0].fill("work", 50)
        plan = planner(cluster, maxJobsPerTrigger="20")
        plan.freeze()
        start = plan.latest(plan.initial())
        rows(plan, start)
        cluster.nodes[0].fill("work", 500)
        assert 30 <= len(drain(plan, start)[0]) <= 40


@pytest.mark.parametrize(("count", "size"), [(10_000, 2_000), (5_000, 10_000), (500, 100_000)])
def test_available_now_takes_all_jobs_however_few_a_reply_holds(count, size):
    """A reply ends at a megabyte, with fewer jobs than requested. Delivered jobs count, not planned ones."""
    with StubCluster() as cluster:
        cluster.nodes[0].fill("work", count, size)
        plan = planner(cluster)
        plan.freeze()
        found, _ = drain(plan, plan.initial())
        assert len({row["id"] for row in found}) == len(found) == len(cluster.nodes[0].acked) == count


def test_a_batch_of_big_jobs_is_as_big_as_its_bytes_allow():
    """A stream of jobs of 100 kB once took eleven per batch: one reply."""
    with StubCluster() as cluster:
        plan, end = planned_big(cluster, 200)
        assert len(rows(plan, end)) == 200
        plan, end = planned_big(cluster, 200, maxBytesPerTrigger="5000000", minPartitions="1")
        assert 50 <= len(rows(plan, end)) <= 62


def test_available_now_goes_on_after_batches_that_were_full_of_bytes():
    with StubCluster() as cluster:
        cluster.nodes[0].fill("work", 100, 100_000)
        plan = planner(cluster, maxBytesPerTrigger="3000000")
        plan.freeze()
        found, end = drain(plan, plan.initial())
        assert len({row["id"] for row in found}) == len(found) == 100
        assert end["n"] <= 6


def test_nodes_are_asked_for_delivered_jobs_only_when_the_plan_may_be_wrong():
    """EXTENDTOKEN touches every job of the batch."""
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        node.fill("work", 250)
        plan = planner(cluster, maxJobsPerTrigger="100")
        plan.freeze()
        assert len(drain(plan, plan.initial())[0]) == 250
        assert node.extended == []


def test_available_now_ends_with_a_warning_when_a_node_hands_out_nothing():
    """QLEN counts jobs of paused queues, and jobs with RETRY 0, but no token gets them."""
    with StubCluster(2) as cluster:
        for node in cluster.nodes:
            node.fill("work", 10)
        cluster.nodes[1].paused = {b"work"}
        plan = planner(cluster)
        plan.freeze()
        with pytest.warns(UserWarning, match=f"10 jobs .* node {cluster.nodes[1].id}.*gives none of them"):
            found, _ = drain(plan, plan.initial())
        assert len(found) == 10


def test_a_stream_makes_no_batch_after_batch_for_a_queue_that_gives_nothing(monkeypatch):
    monkeypatch.setattr(jobs_reading, "FRUITLESS_REST_S", 0.2)
    with StubCluster() as cluster:
        cluster.nodes[0].fill("work", 3)
        cluster.nodes[0].paused.add(b"work")
        plan = planner(cluster)
        found, end = drain(plan, plan.initial())
        assert (found, end["n"]) == ([], 4)
        cluster.nodes[0].paused.clear()
        time.sleep(0.3)
        assert len(drain(plan, end)[0]) == 3


def test_a_node_that_is_gone_gives_no_rows_and_a_warning(monkeypatch):
    monkeypatch.setattr(jobs_reading, "LOST_S", 0.1)
    with StubCluster(2) as cluster:
        cluster.nodes[1].fill("work", 10)
        plan = planner(cluster)
        end = plan.latest(plan.initial())
        cluster.nodes[1].stop()
        fresh = planner(cluster)
        with pytest.warns(UserWarning, match="they come back after their RETRY"):
            assert rows(fresh, end) == []
        with pytest.warns(UserWarning, match="could not be acknowledged .* delivered again"):
            fresh.commit(end)


def test_a_node_that_cannot_be_asked_for_its_queues_is_reported(capsys):
    with StubCluster(2) as cluster:
        cluster.nodes[1].stop()
        fresh = planner(cluster)
        fresh.latest(fresh.initial())
        assert f"disque: warning: node {cluster.nodes[1].id} can't be reached" in capsys.readouterr().err


def test_leases_of_unacknowledged_jobs_are_extended():
    with StubCluster() as cluster:
        cluster.nodes[0].fill("work", 10)
        plan = planner(cluster, leaseMs="1000")
        plan.latest(plan.initial())
        deadline = time.monotonic() + 10
        while not cluster.nodes[0].extended and time.monotonic() < deadline:
            time.sleep(0.05)
        assert cluster.nodes[0].extended[0].startswith(b"spark/")


def test_deliveries_last_as_long_as_the_option_says():
    """A job's RETRY may be over before the first extension, and would make the batch useless."""
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        plan, end = planned(cluster, 10, leaseMs="7500")
        asked = []
        node.on_getjob = lambda argv: asked.append(argv) or b"*-1\r\n"
        rows(plan, end)
        assert asked[0][asked[0].index(b"LEASE") + 1] == b"8"


def test_a_node_that_refuses_the_command_ends_the_task():
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        plan, end = planned(cluster, 10)
        node.on_getjob = lambda argv: b"-ERR syntax error\r\n"
        with pytest.raises(ClusterError, match="refuses to hand out jobs: ERR syntax error"):
            rows(plan, end)


def test_a_filter_goes_along_with_every_question():
    """Jobs that don't match are neither counted nor fetched."""
    with StubCluster() as cluster:
        node = cluster.nodes[0]
        counted = []
        node.on_qlen = lambda argv: counted.append(argv) or b":10\r\n"
        plan, end = planned(cluster, 10, where="carrier=UA, origin=SFO")
        asked = []
        node.on_getjob = lambda argv: asked.append(argv) or b"*-1\r\n"
        rows(plan, end)
        words = [b"WHERE", b"carrier", b"UA", b"WHERE", b"origin", b"SFO"]
        assert counted[0][2:] == words
        at = asked[0].index(b"WHERE")
        assert asked[0][at : asked[0].index(b"FROM")] == words


@pytest.mark.parametrize(
    ("text", "pairs"),
    [("a=b", (("a", "b"),)), ("a=b=c,d=", (("a", "b=c"), ("d", ""))), ('{"a": "b,c"}', (("a", "b,c"),)), ("", ())],
)
def test_a_filter_consists_of_names_and_values(text, pairs):
    """A value with a comma needs JSON."""
    assert job_options({"bootstrapServers": "a", "subscribe": "q", "where": text}).where == pairs


@pytest.mark.parametrize("text", ["a", "=b", "a=b,a=c", ",", "{", '{"a": 1}'])
def test_a_filter_that_cannot_be_read_is_refused(text):
    with pytest.raises(OptionError, match="option where must be name=value,name=value"):
        job_options({"bootstrapServers": "a", "subscribe": "q", "where": text})


def test_an_option_that_is_missing_is_named():
    with pytest.raises(OptionError, match="needs the option subscribe"):
        job_options({"bootstrapServers": "a"})


@pytest.mark.parametrize("queues", [",", "mail,news,mail"])
def test_a_list_of_queues_without_a_queue_or_with_one_twice_is_refused(queues):
    """Without a queue, the query would wait for ever. A queue that is named twice would be counted twice."""
    with pytest.raises(OptionError, match="option subscribe must name queues, each once"):
        job_options({"bootstrapServers": "a", "subscribe": queues})


def test_a_node_that_loads_its_journal_does_not_end_a_query():
    with StubCluster(2) as cluster:
        cluster.nodes[0].fill("work", 2)
        plan = planner(cluster)
        cluster.nodes[1].is_loading = True
        end = plan.latest(plan.initial())
        assert [share.node for share, _ in plan.shares(end)] == [cluster.nodes[0].id]
