"""The feed of all nodes' events, as server-sent events that can be resumed at a place."""

from __future__ import annotations

import asyncio
import http.client
import json
import time

import pytest

from disque_py import testing
from disque_py.client import Address, EventLog, NoEventLogError, NotConnectedError
from disque_py.client.events import EventLines
from disque_py.client.results import Hello, NodeInfo
from disque_py.gateway import event_feed
from disque_py.gateway.event_feed import LOGS_MAX, EventFeed, EventFilter, parse_place, place_text
from disque_py.gateway.logins.grants import Principal, grant_of
from disque_py.gateway.problems import RefusedError
from gateways import until


class Stream:
    """A reader of /v1/events."""

    def __init__(self, gateway, query="", place=""):
        self.connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
        self.connection.request("GET", f"/v1/events{query}", headers={"Last-Event-ID": place} if place else {})
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200
        self.place = place
        assert self.answer.readline() == b"retry: 1000\n"
        assert self.answer.readline() == b"\n"

    def next(self):
        """Return name and data of the next event."""
        name = ""
        while True:
            field, _, value = self.answer.readline().decode().rstrip("\n").partition(": ")
            if field == "id":
                self.place = value
            elif field == "event":
                name = value
            elif field == "data":
                self.answer.readline()
                return name, json.loads(value)

    def close(self):
        """Hang up."""
        self.connection.sock.close() if self.connection.sock else None
        self.answer.close()


@pytest.fixture
def stream(gateway):
    """A function that opens streams: stream(query, place)."""
    opened = []

    def open_(query="", place=""):
        opened.append(Stream(gateway, query, place))
        return opened[-1]

    yield open_
    for each in opened:
        each.close()


def test_events_of_all_nodes_arrive(gateway, queue, stream):
    reader = stream(f"?queue={queue}&event=added")
    ids = [gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b"}).json["id"] for _ in range(3)]
    assert [reader.next()[1]["job_id"] for _ in ids] == ids


def test_a_reader_that_comes_back_with_its_place_misses_nothing(gateway, queue, stream):
    reader = stream(f"?queue={queue}&event=added")
    first = gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b"}).json["id"]
    assert reader.next()[1]["job_id"] == first
    reader.close()
    missed = [gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b"}).json["id"] for _ in range(2)]
    again = stream(f"?queue={queue}&event=added", reader.place)
    assert [again.next()[1]["job_id"] for _ in missed] == missed


def test_a_reader_that_leaves_before_its_first_event_has_a_place(gateway, queue, stream):
    reader = stream(f"?queue={queue}&event=added")
    name, _, reader.place = reader.answer.readline().decode().rstrip("\n").partition(": ")
    assert name == "id"
    reader.close()
    missed = [gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b"}).json["id"] for _ in range(2)]
    again = stream(f"?queue={queue}&event=added", reader.place)
    assert [again.next()[1]["job_id"] for _ in missed] == missed


def log_of(client):
    try:
        return client.events_info().log
    except NoEventLogError:
        return ""


def test_a_reader_learns_of_a_log_that_has_ended_while_it_was_away(make_gateway, queue):
    with testing.node() as node:
        gateway = make_gateway(url=node.url)
        gone = Stream(gateway)
        gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b"})
        gone.next()
        gone.close()
        old = gone.place.partition(":")[0]
        with node.client() as client:
            for word in ("no", "yes"):
                client.execute("CONFIG", "SET", "events", word)
            assert until(lambda: log_of(client) not in ("", old))
        gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b"})
        back = Stream(gateway, place=gone.place)
        names = {}
        while names.keys() < {"log-ended", "added"}:
            name, found = back.next()
            names[name] = found
        assert names["log-ended"] == {"log": old}
        assert old not in back.place
        back.close()


def test_a_place_behind_the_end_of_a_log_begins_with_its_first_event(make_gateway, queue):
    """For example, the node's disk was restored from a copy."""
    with testing.node() as node:
        gateway = make_gateway(url=node.url)
        gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b"})
        first = Stream(gateway)
        [(log, number)] = parse_place(first.answer.readline().decode().strip()[4:]).items()
        first.close()
        back = Stream(gateway, place=f"{log}:{number + 5}")
        assert back.next() == ("trimmed", {"log": log, "first": 1})
        assert [back.next()[0] for _ in range(2)] == ["started", "added"]
        back.close()


def test_the_events_of_one_job_can_be_followed(gateway, queue, stream):
    job = gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b", "delay_ms": 60_000}).json["id"]
    reader = stream(f"?job={job.replace('+', '%2B')}")
    gateway.post(f"/v1/jobs/{job}/cancel")
    assert reader.next()[1]["job_id"] == job


def test_the_end_of_a_stream_is_counted(gateway, stream):
    service = gateway.gateway.service
    reader = stream()
    assert service._streams == {"local": 1}
    reader.close()
    deadline = time.monotonic() + 30
    while service._streams and time.monotonic() < deadline:
        gateway.get("/livez")
        time.sleep(0.02)
    assert service._streams == {}


def test_a_place_survives_conversion_to_text_and_back():
    place = {"a": 5, "b": 0}
    assert parse_place(place_text(place)) == place
    assert parse_place("") == {}


TOO_MANY = ",".join(f"{number}:1" for number in range(LOGS_MAX + 1))


@pytest.mark.parametrize(
    "text", ["a", "a:", ":5", "a:-1", "a:b", "a:" + "9" * 30, "a" * 65 + ":1", TOO_MANY, "a\nb:1", "é:1"]
)
def test_an_invalid_place_is_refused(text):
    """The id of each event has the place, so a long one would be a load of its own."""
    with pytest.raises(RefusedError, match="place"):
        parse_place(text)


def event(**words):
    return {"event": "added", "queue": "a1", "job_id": "D-1"} | words


def test_a_reader_sees_events_of_its_queues_only():
    wanted = EventFilter(Principal("p", (grant_of("bodies:a*"),), client=None))
    assert wanted.admits(event())
    assert not wanted.admits(event(queue="b"))


def test_events_of_the_node_itself_need_the_role_everywhere():
    of_node = event(queue=None, job_id=None)
    assert EventFilter(Principal("p", (grant_of("bodies"),), client=None)).admits(of_node)
    assert not EventFilter(Principal("p", (grant_of("bodies:a*"),), client=None)).admits(of_node)


def test_filters_are_combined():
    wanted = EventFilter(Principal("p", (grant_of("bodies"),), client=None), "a*", "D-1", "added")
    assert wanted.admits(event())
    assert not wanted.admits(event(queue="b"))
    assert not wanted.admits(event(job_id="D-2"))
    assert not wanted.admits(event(event="acked"))


class NoNodes:
    """A client of a cluster without nodes."""

    async def hello(self):
        return Hello(1, "a", [])


def test_a_reader_that_leaves_while_an_event_arrives_is_removed():
    """The cancellation is not lost. So the stream ends, and no longer counts towards `streams-max`."""

    async def follow(feed):
        async for _ in feed.parts(EventFilter(Principal("p", (), client=None)), 3600):
            pass

    async def read():
        feed = EventFeed(NoNodes(), {"log": 0})
        waiting = asyncio.create_task(follow(feed))
        while feed._finder is None:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        feed._queue.put_nowait(("log", 0, [], "", None))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait((waiting,), timeout=10)
        await feed.close()
        return waiting.cancelled()

    assert asyncio.run(read())


def test_hidden_events_move_the_place():
    """A reader that comes back with the place of an event does not get the event again."""
    lines = [json.dumps(event(seq=seq, event=name)).encode() for seq, name in ((5, "added"), (8, "hidden"))]

    async def read():
        feed = EventFeed(NoNodes(), {"log": 3})
        feed._queue.put_nowait(("log", 3, lines, "", None))
        parts = feed.parts(EventFilter(Principal("p", (), client=None, asks_broker=True)), 3600)
        await anext(parts)
        found = await anext(parts)
        await feed.close()
        return found

    found = asyncio.run(read())
    assert [(place, each["event"]) for place, each in found.events] == [("log:6", "added")]
    assert found.place == "log:9"


class TwoNodes:
    """A client of two nodes with logs. The second node can't be reached while `is_away`."""

    node = Address("a", 1)

    def __init__(self):
        self.is_away = True
        self.names = {1: "first", 2: "second"}
        self.logs = {1: [], 2: [(0, "old")]}
        # Further answers of the first node: by the number that is asked for, and errors.
        self.raw = {}
        self.faults = []

    def add(self, port, job):
        self.logs[port].append((round(1000 * time.time()), job))

    def _check(self, node):
        if node.port == 2 and self.is_away:
            raise NotConnectedError("away")

    async def hello(self):
        return Hello(1, "a", [NodeInfo("a", "a", 1, 1), NodeInfo("b", "b", 2, 1)])

    async def events_info(self, node):
        self._check(node)
        if node.port == 1 and self.faults:
            raise self.faults.pop()
        return EventLog(self.names[node.port], 1, len(self.logs[node.port]) + 1, 0)

    async def events_seek(self, ms, node):
        self._check(node)
        return 1 + sum(at < ms for at, _ in self.logs[node.port])

    async def events_read(self, log, number, count, block_ms, node):
        await asyncio.sleep(0.01)
        self._check(node)
        if log != self.names[node.port]:
            raise NoEventLogError("NOLOG other")
        if node.port == 1 and number in self.raw:
            return EventLines(log, number, self.raw[number])
        found = enumerate(self.logs[node.port], 1)
        lines = [json.dumps(event(seq=seq, job_id=job)) + "\n" for seq, (_, job) in found if seq >= number]
        return EventLines(log, number, "".join(lines).encode())


def jobs_of(change, count, monkeypatch):
    """Return the jobs in the first events of a stream without a place, after `change(client)`."""
    monkeypatch.setattr(event_feed, "RETRY_S", 0.05)

    async def read():
        client, jobs = TwoNodes(), []
        feed = EventFeed(client, {})
        try:
            async with asyncio.timeout(60):
                async for part in feed.parts(EventFilter(Principal("p", (grant_of("bodies"),), client)), 0.05):
                    if client.is_away:
                        change(client)
                        client.is_away = False
                    jobs += [each["job_id"] for _, each in part.events]
                    if len(jobs) >= count:
                        return jobs
        finally:
            await feed.close()

    return asyncio.run(read())


def test_events_of_a_node_that_is_away_as_a_stream_begins_are_in_the_stream(monkeypatch):
    """The node itself goes on. Its older events are not in the stream."""

    def change(client):
        client.add(2, "new")

    assert jobs_of(change, 1, monkeypatch) == ["new"]


def test_a_log_that_begins_after_the_stream_is_read_from_its_first_event(monkeypatch):
    def change(client):
        client.names[2], client.logs[2] = "another", []
        for job in ("one", "two"):
            client.add(2, job)

    assert jobs_of(change, 2, monkeypatch) == ["one", "two"]


def parts_of(client, until, monkeypatch):
    """Return the parts of a stream from the first events on, up to the one for which `until(part)` is true."""
    monkeypatch.setattr(event_feed, "RETRY_S", 0.05)

    async def read():
        found = []
        feed = EventFeed(client, {"first": 1, "second": 1})
        try:
            async with asyncio.timeout(60):
                async for part in feed.parts(EventFilter(Principal("p", (grant_of("bodies"),), client)), 0.05):
                    found.append(part)
                    if until(part):
                        return found
        finally:
            await feed.close()

    client.is_away = False
    return asyncio.run(read())


def test_the_place_does_not_name_a_log_that_has_ended(monkeypatch):
    client = TwoNodes()

    def is_over(part):
        if part.events and client.names[2] == "second":
            client.names[2], client.logs[2] = "another", []
        return "another" in part.place

    notices = {part.notice: part.place for part in parts_of(client, is_over, monkeypatch)}
    assert notices["log-ended"] == "first:1"
    assert notices[""] == "first:1,another:1"


@pytest.mark.parametrize("line", [b"{", b"[]", b"{}", b'{"seq":2,"event":1}', b'{"seq":2,"event":"added","queue":3}'])
def test_a_line_that_is_no_event_is_left_out(line, monkeypatch, caplog):
    """The stream logs the first one, and goes on with the next event."""
    client = TwoNodes()
    added = json.dumps(event(seq=4, job_id="D-4")).encode()
    client.raw = {1: line + b"\n", 2: line + b"\n", 3: added + b"\n"}
    found = parts_of(client, lambda part: any(each["seq"] == 4 for _, each in part.events), monkeypatch)
    assert found[-1].place.startswith("first:5")
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_reader_survives_an_unexpected_answer(monkeypatch, caplog):
    client = TwoNodes()
    client.add(1, "new")
    client.faults = [KeyError("log-id"), KeyError("log-id")]
    jobs = []

    def is_new(part):
        jobs.extend(each["job_id"] for _, each in part.events)
        return "new" in jobs

    parts_of(client, is_new, monkeypatch)
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_without_an_answer_of_the_nodes_no_stream_begins(make_gateway):
    reply = make_gateway(url="disque://127.0.0.1:1/?patience=0.2").get("/v1/events")
    assert (reply.status, reply.json["code"]) == (503, "NONODE")


def test_a_head_request_for_a_stream_opens_no_stream(gateway):
    assert gateway.request("HEAD", "/v1/events").status in (200, 405)
    assert until(lambda: gateway.gateway.service._streams == {})
