"""Requests and answers above ASGI."""

from __future__ import annotations

import asyncio

import pytest

from disque_py.gateway.http.exchange import CallerGoneError, Exchange, json_answer, problem_answer
from disque_py.gateway.problems import RefusedError


def exchange(*messages, query=b"", headers=()):
    waiting = list(messages)

    async def receive():
        if waiting:
            return waiting.pop(0)
        return await asyncio.Event().wait()

    scope = {"method": "GET", "raw_path": b"/a%2Fb", "query_string": query, "headers": list(headers), "scheme": "http"}
    return Exchange(scope, receive)


def part(body, more=False):
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_body_comes_in_parts():
    assert asyncio.run(exchange(part(b"a", True), part(b"b")).body(2, "x")) == b"ab"


def test_a_body_above_the_limit_is_refused_before_it_has_arrived():
    with pytest.raises(RefusedError, match=r"2 bytes \(x\)"):
        asyncio.run(exchange(part(b"abc", True)).body(2, "x"))
    with pytest.raises(RefusedError, match="x"):
        asyncio.run(exchange(headers=[(b"content-length", b"3")]).body(2, "x"))


def test_a_caller_that_hangs_up_within_its_request_is_noticed():
    with pytest.raises(CallerGoneError):
        asyncio.run(exchange(part(b"a", True), {"type": "http.disconnect"}).body(9, "x"))


def test_cookies_of_several_headers_are_joined():
    asked = exchange(headers=[(b"cookie", b"a=1"), (b"accept", b"x"), (b"cookie", b"b=2")])
    asked.check_headers()
    assert asked.headers["cookie"] == "a=1; b=2"


def test_the_only_coding_of_a_transfer_is_chunked():
    with pytest.raises(RefusedError, match="transfer-encoding must be chunked"):
        asyncio.run(exchange(part(b"a"), headers=[(b"transfer-encoding", b"gzip, chunked")]).body(9, "x"))


def test_work_is_cancelled_when_its_caller_is_gone():
    ended = []

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    with pytest.raises(CallerGoneError):
        asyncio.run(watched(exchange({"type": "http.disconnect"}), work(), Undone()))
    assert ended == [True]


async def watched(asked, work, undo, ends=False):
    """Do the work while the caller is connected, and until the gateway ends."""
    ending = asyncio.get_running_loop().create_future()
    if ends:
        ending.set_result(None)
    return await asked.while_connected(work, undo, ending)


class Undone:
    """A function that counts its calls."""

    count = 0

    async def __call__(self):
        self.count += 1


def test_work_is_undone_when_the_gateway_ends():
    undo = Undone()
    with pytest.raises(RefusedError, match="this gateway ends"):
        asyncio.run(watched(exchange(), asyncio.sleep(60), undo, ends=True))
    assert undo.count == 1


def test_work_that_is_done_gives_its_result():
    undo = Undone()
    assert asyncio.run(watched(exchange(), asyncio.sleep(0, 5), undo)) == 5
    assert undo.count == 0


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_work_that_ends_as_its_caller_hangs_up_is_undone(turns):
    """The connection ends up to two turns of the event loop after the work."""
    undo = Undone()

    async def hang_up():
        closed = asyncio.Event()

        async def receive():
            await closed.wait()
            return {"type": "http.disconnect"}

        async def work():
            await asyncio.sleep(0)
            close(turns)

        def close(left):
            if left:
                asyncio.get_running_loop().call_soon(close, left - 1)
            else:
                closed.set()

        scope = {"method": "GET", "raw_path": b"/", "query_string": b"", "headers": [], "scheme": "http"}
        await watched(Exchange(scope, receive), work(), undo)

    with pytest.raises(CallerGoneError):
        asyncio.run(hang_up())
    assert undo.count == 1


def test_a_query_with_too_many_pairs_is_refused():
    with pytest.raises(RefusedError, match="query"):
        exchange(query=b"&".join(b"a=%d" % number for number in range(200))).query  # noqa: B018


def test_a_query_keeps_bytes_that_are_not_utf_8():
    """Names may have them. They become surrogates, as in the client library."""
    assert exchange(query=b"a=%e9").query == {"a": ["\udce9"]}


def test_a_refusal_is_a_problem_with_its_headers():
    answer = problem_answer(RefusedError("NOAUTH", "x"), ("basic", "bearer"))
    assert (answer.status, answer.content_type) == (401, "application/problem+json")
    assert [name for name, _ in answer.headers] == ["www-authenticate"] * 2
    assert ("retry-after", "1") in problem_answer(RefusedError("NOREPL", "x")).headers


@pytest.mark.parametrize(
    ("schemes", "offered"),
    [(("basic",), ["Basic"]), (("bearer", "certificate"), ["Bearer"]), ((), ["Bearer"])],
)
def test_a_refusal_offers_the_kinds_of_login_that_the_gateway_accepts(schemes, offered):
    """A browser shows a dialog for Basic, and people would type passwords into it in vain. 401 needs some challenge."""
    answer = problem_answer(RefusedError("WRONGPASS", "x"), schemes)
    assert [value.partition(" ")[0] for name, value in answer.headers if name == "www-authenticate"] == offered


def test_a_response_to_head_has_the_length():
    assert (b"content-length", b"2") in json_answer({}).head()["headers"]
