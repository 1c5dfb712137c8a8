"""The picture of all nodes."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise

import pytest

from disque_py.client.errors import NotConnectedError, ReplyTimeoutError, from_reply
from disque_py.client.options import make_options
from disque_py.client.results import Hello, NodeInfo, QueueStat
from disque_py.gateway.board import PAUSE_LOOKS, Board, Picture, QueueRow, Report, node_row, queues_of, set_rates
from disque_py.gateway.metrics.look import Look
from disque_py.gateway.metrics.watching import Seen
from disque_py.gateway.problems import RefusedError


def stat(name, length, **words):
    return QueueStat(name, length, 0, 0, 0, [], 0, words.pop("jobs_in", 0), 0, words.pop("pause", "none"), **words)


def seen(*stats, count=3):
    hello = Hello(1, "a", [NodeInfo(str(number), "h", 1, 1) for number in range(count)])
    return Seen("h:1", Look(hello=hello, stats=list(stats)))


def test_a_queue_is_the_sum_of_all_nodes():
    rows = queues_of([seen(stat("q", 2, oldest_ms=5)), seen(stat("q", 3, oldest_ms=9, pause="in")), Seen("h:2", None)])
    assert (rows["q"].pending, rows["q"].oldest_ms, rows["q"].paused) == (5, 9, "in")


def test_rates_are_computed_from_the_previous_snapshot_and_never_negative():
    before = Picture(10.0, 0, [seen()], {"q": QueueRow("q", jobs_in=5, jobs_out=9)})
    now = Picture(12.0, 0, [seen()], {"q": QueueRow("q", jobs_in=9, jobs_out=1), "new": QueueRow("new", jobs_in=7)})
    set_rates(now, before)
    assert [(row.rate_in, row.rate_out) for row in now.queues.values()] == [(2.0, 0.0), (0.0, 0.0)]


def test_a_node_that_missed_a_look_makes_no_rate():
    """Its counters are those since its start."""
    missing, back = Seen("h:2", None), Seen("h:2", seen(stat("q", 2, jobs_in=1_000_000)).look)

    def picture(at, jobs_in, other):
        nodes = [seen(stat("q", 2, jobs_in=jobs_in)), other]
        return Picture(at, 0, nodes, queues_of(nodes), [node_row(each) for each in nodes])

    pictures = [picture(10.0, 10, back), picture(12.0, 14, missing), picture(14.0, 20, back), picture(16.0, 22, back)]
    for before, now in pairwise(pictures):
        set_rates(now, before)
    assert [each.queues["q"].rate_in for each in pictures[1:]] == [2.0, 3.0, 1.0]
    assert [row.rate_in for row in pictures[2].rows] == [3.0, 0.0]


def test_the_gateway_is_ready_with_a_majority_of_the_nodes():
    assert Picture(nodes=[seen(), seen(), Seen("h:3", None)]).is_ready
    assert not Picture(nodes=[seen(), Seen("h:2", None), Seen("h:3", None)]).is_ready
    assert not Picture().is_ready


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        (None, "NONODE"),
        (NotConnectedError("refused"), "NONODE"),
        (ReplyTimeoutError("silent", sent=True), "NONODE"),
        (from_reply("ERR invalid password"), "WRONGPASS"),
        (from_reply("NOAUTH log in"), "NOAUTH"),
        (from_reply("LOADING wait"), "LOADING"),
    ],
)
def test_a_picture_without_an_answer_is_refused_with_the_reason(cause, code):
    """Otherwise a cluster that can't be reached looks like an empty one."""
    with pytest.raises(RefusedError) as caught:
        Picture(nodes=[Seen("h:1", None, "why", cause)]).check()
    assert caught.value.code == code
    Picture(nodes=[seen(), Seen("h:2", None, "why", cause)]).check()


def test_changes_of_the_nodes_answers_are_logged_once(caplog):
    report = Report()
    gone, wrong = Seen("h:1", None, "refused"), Seen("h:1", None, "why", from_reply("WRONGPASS why"))
    with caplog.at_level(logging.INFO):
        for nodes in ([seen()], [gone], [gone], [wrong], [wrong], [seen()]):
            report.write(Picture(nodes=nodes))
    assert [record.getMessage() for record in caplog.records] == [
        "no node answers: h:1: refused",
        "h:1 refuses the gateway's login: WRONGPASS why",
        "h:1 accepts the gateway's login again",
        "nodes answer again",
    ]


def test_one_round_of_questions_serves_all_viewers(nodes):
    async def look():
        board = Board(make_options((nodes[0].address,), {}), 60)
        try:
            pictures = await asyncio.gather(*(board.picture() for _ in range(50)))
            return pictures, len(board.totals), await board.picture()
        finally:
            await board.close()

    pictures, looks, later = asyncio.run(look())
    assert looks == 1
    assert {id(picture) for picture in pictures} == {id(later)}


def test_a_viewer_gets_the_previous_snapshot_while_a_new_one_is_made(nodes):
    async def look():
        board = Board(make_options((nodes[0].address,), {}), 60)
        try:
            first = await board.picture()
            limit_s = max(60, PAUSE_LOOKS * first.seconds)
            first.at -= 1.5 * limit_s
            second = await board.picture()
            strict = await board.picture(60)
            strict.at -= 3 * limit_s
            return first, second, strict, await board.picture()
        finally:
            await board.close()

    first, second, strict, fourth = asyncio.run(look())
    assert second is first
    assert strict is not first
    assert fourth is not strict
