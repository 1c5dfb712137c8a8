"""Ratios of the gateway's speed: `make gateway-ratios`, with the extras gateway and ratios (Starlette).

`ratios.py interfaces` measures HTTP and gRPC, `ratios.py console` the console. Without an argument, both are measured.

A node, a gateway and a bare Starlette handler run as separate processes on loopback. Both figures of a ratio come from
the same run, in which the two sides alternate: A B A B. The first ratio is the gateway's CPU time for a single add,
divided by that of the bare handler. The second ratio is the jobs per second of batches of 100, divided by those of the
client with pipelines. In the third one, a gRPC stream takes and completes jobs. The client does the same, a hundred
jobs at a time.

For the console, three nodes have 10,000 queues with one job each. Pages are fetched one after the other, also while
the gateway looks at the nodes. Each line has the median and the longest time of a page.
"""

from __future__ import annotations

import http.client
import json
import queue
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import grpc

from disque_py import testing
from disque_py.gateway.rpc import descriptors
from disque_py.loopback_ports import HOST, free_port

ROUNDS = 5
REQUESTS = 2_000
JOBS = 10_000
STREAMED = 5_000
BATCH = 100
QUEUES = 10_000
FETCHES = 30
PAGES = (
    "",
    "queues",
    "queues?sort=pending&cursor=5000",
    "queues?match=queue-00*&sort=oldest",
    "queue?name=queue-00007",
    "dead",
    "nodes",
)
BODY = json.dumps({"body": "to=ann subject=hello text=world"}).encode()
BARE = """
import msgspec, sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

async def add(request):
    found = msgspec.json.decode(await request.body())
    return Response(msgspec.json.encode({"id": found["body"]}), 201, media_type="application/json")

app = Starlette(routes=[Route("/v1/queues/{queue}/jobs", add, methods=["POST"])])
uvicorn.run(app, port=int(sys.argv[1]), access_log=False, log_level="error", loop="uvloop", http="httptools")
"""


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far."""
    words = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / 100


def wait_for(port: int) -> None:
    """Wait until a server listens on a port."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection(HOST, port, timeout=5)
        try:
            connection.request("GET", "/livez")
            connection.getresponse().read()
        except OSError:
            time.sleep(0.05)
        else:
            return
        finally:
            connection.close()
    raise TimeoutError(port)


def single_adds(port: int, pid: int) -> float:
    """Return the CPU microseconds of the server for one add."""
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    before = cpu_seconds(pid)
    for _ in range(REQUESTS):
        connection.request("POST", "/v1/queues/ratios/jobs", BODY, {"Content-Type": "application/json"})
        connection.getresponse().read()
    connection.close()
    return (cpu_seconds(pid) - before) / REQUESTS * 1e6


def batches(port: int) -> float:
    """Return the jobs per second of batches over HTTP."""
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    body = (BODY + b"\n") * BATCH
    started = time.perf_counter()
    for _ in range(JOBS // BATCH):
        connection.request("POST", "/v1/queues/ratios/jobs:batch", body, {"Content-Type": "application/x-ndjson"})
        connection.getresponse().read()
    connection.close()
    return JOBS / (time.perf_counter() - started)


def stream(port: int) -> float:
    """Return the jobs per second that one Consume stream takes and completes."""
    method = next(each for each in descriptors.methods(descriptors.QUEUES) if each.name == "Consume")
    made, answer = descriptors.request_class(method), descriptors.message(method.output_type.full_name)
    requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    requests.put(made(start={"queue": "ratios"}, credit=10 * BATCH).SerializeToString())
    with grpc.insecure_channel(f"{HOST}:{port}") as channel:
        started, settled = time.perf_counter(), 0
        answers = channel.stream_stream(f"/{descriptors.QUEUES}/Consume")(iter(requests.get, None), timeout=120)
        for octets in answers:
            found = answer.FromString(octets)
            settled += len(found.settled)
            if settled >= STREAMED:
                break
            if found.messages:
                ids = [{"id": each.id} for each in found.messages]
                requests.put(made(credit=len(ids), settlements=ids).SerializeToString())
        seconds = time.perf_counter() - started
        requests.put(None)
        answers.cancel()
    return settled / seconds


def taken(node: testing.Node) -> float:
    """Return the jobs per second that the client takes and completes, a hundred at a time."""
    with node.client() as client:
        started = time.perf_counter()
        for _ in range(STREAMED // BATCH):
            client.ack(*client.get_jobs("ratios", count=BATCH, timeout_ms=5000))
        return STREAMED / (time.perf_counter() - started)


def pipelined(node: testing.Node) -> float:
    """Return the jobs per second of the blocking client, with pipelines of 100."""
    with node.client() as client:
        started = time.perf_counter()
        for _ in range(JOBS // BATCH):
            pipeline = client.pipeline()
            for _ in range(BATCH):
                pipeline.add_job("ratios", BODY)
            pipeline.execute()
        return JOBS / (time.perf_counter() - started)


def pages() -> None:
    """Print how long pages of the console take with many queues."""
    with testing.cluster(3) as cluster, tempfile.TemporaryDirectory() as folder:
        with cluster.client() as client:
            for begin in range(0, QUEUES, 500):
                pipeline = client.pipeline()
                for number in range(begin, begin + 500):
                    pipeline.add_job(f"queue-{number:05}", b"b", replicate=1)
                pipeline.execute()
        port = free_port()
        words = [
            "--listen",
            f"{HOST}:{port}",
            "--grpc-listen",
            "",
            "--url",
            cluster.url,
            "--audit-log",
            f"{folder}/log",
        ]
        gateway = subprocess.Popen([sys.executable, "-m", "disque_py.gateway.command", *words])
        try:
            wait_for(port)
            print(f"console/queues, with the first look at the nodes: {fetched(port, 'queues'):.0f} ms")
            wait_for_queues(port)
            for page in PAGES:
                found = [fetched(port, page) for _ in range(FETCHES)]
                name = page or "(overview)"
                print(f"console/{name}: {statistics.median(found):.0f} ms, {max(found):.0f} at most (goal 300)")
        finally:
            gateway.terminate()
            gateway.wait(20)


def wait_for_queues(port: int) -> None:
    """Wait until the gateway has seen all queues."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"http://{HOST}:{port}/v1/queues?limit=1", timeout=120) as answer:
            if json.load(answer)["total"] == QUEUES:
                return
        time.sleep(0.5)
    raise TimeoutError("the nodes did not answer in time")


def fetched(port: int, page: str) -> float:
    """Return the milliseconds that a page takes."""
    connection = http.client.HTTPConnection(HOST, port, timeout=120)
    started = time.perf_counter()
    connection.request("GET", f"/console/{page}")
    answer = connection.getresponse()
    answer.read()
    milliseconds = (time.perf_counter() - started) * 1000
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{page}: {answer.status}")
    return milliseconds


def main() -> None:
    """Measure the interfaces, the console or both."""
    parts = sys.argv[1:] or ["interfaces", "console"]
    if "interfaces" in parts:
        interfaces()
    if "console" in parts:
        pages()


def interfaces() -> None:
    """Print the ratios."""
    ports = free_port(), free_port(), free_port()
    with testing.node() as node:
        words = ["--listen", f"{HOST}:{ports[0]}", "--grpc-listen", f"{HOST}:{ports[1]}", "--url", node.url]
        gateway = subprocess.Popen(
            [sys.executable, "-m", "disque_py.gateway.command", *words], stderr=subprocess.DEVNULL
        )
        bare = subprocess.Popen([sys.executable, "-c", BARE, str(ports[2])])
        try:
            wait_for(ports[0])
            wait_for(ports[2])
            single, batch, call = [], [], []
            for _ in range(ROUNDS):
                single.append(single_adds(ports[0], gateway.pid) / single_adds(ports[2], bare.pid))
                direct = pipelined(node)
                batch.append(batches(ports[0]) / direct)
                call.append(stream(ports[1]) / taken(node))
        finally:
            for process in (gateway, bare):
                process.terminate()
                process.wait(20)
    for name, found, goal in (
        ("CPU of a single add, of a bare Starlette handler's", single, "at most 2"),
        ("jobs/s of batches of 100, of the pipelined client's", batch, "at least 0.5"),
        ("jobs/s of a gRPC stream, of the client's", call, "at least 0.4"),
    ):
        print(f"{name}: {statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f}; goal {goal})")


if __name__ == "__main__":
    main()
