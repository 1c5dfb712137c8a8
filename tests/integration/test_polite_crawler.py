"""The worked example docs/examples/polite_crawler: two workers crawl three small hosts."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import pytest

from disque_py.client import Backoff, Disque
from servers import HOST, Server, until

PROGRAM = Path(__file__).resolve().parents[2] / "docs/examples/polite_crawler/polite_crawler.py"
BACKOFF = Backoff(base_ms=200, cap_ms=10_000, jitter_percent=0)


def load():
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("polite_crawler", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


crawler = load()


class Site(ThreadingHTTPServer):
    """A host of seven pages that name each other. It notes each request, and how many it had at a time."""

    daemon_threads = True

    def __init__(self):
        super().__init__((HOST, 0), Handler)
        self.url = f"http://{HOST}:{self.server_port}/"
        self.requests = []
        self.running, self.most_running = 0, 0
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def counts(self):
        """How often each path was asked for."""
        return Counter(path for path, _ in self.requests)

    def close(self):
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    """The front page names the pages, and each page the next. /old leads to /page/3, and /bad always fails."""

    def do_GET(self):
        with self.server.lock:
            self.server.requests.append((self.path, time.monotonic()))
            self.server.running += 1
            self.server.most_running = max(self.server.running, self.server.most_running)
        time.sleep(0.02)
        with self.server.lock:
            self.server.running -= 1
        self._answer()

    def _answer(self):
        if self.path == "/robots.txt":
            return self._send(200, "User-agent: *\nDisallow: /private\n")
        if self.path == "/bad":
            return self._send(503)
        if self.path == "/old":
            return self._send(301, location="/page/3")
        if self.path == "/":
            links = [*(f"/page/{number}" for number in range(3)), "/old", "/bad", "/missing", "/private", "/#top"]
        elif self.path in ("/page/0", "/page/1", "/page/2", "/page/3"):
            links = ["/", f"/page/{int(self.path[-1]) + 1}", "http://elsewhere.invalid/"]
        elif self.path == "/page/4":
            links = []
        else:
            return self._send(404)
        anchors = "".join(f'<a href="{link}">x</a>' for link in links)
        return self._send(200, f"<title>Page {self.path}</title>{anchors}")

    def _send(self, code, text="", location=None):
        self.send_response(code)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def crawled(tmp_path_factory):
    """The sites, the node's client and the reports after a crawl by two workers, with a round each second."""
    folder = tmp_path_factory.mktemp("crawl")
    sites = [Site() for _ in range(3)]
    with Server(folder / "node") as server, Disque(f"{HOST}:{server.port}") as client:
        words = [sys.executable, str(PROGRAM), "crawl", f"{HOST}:{server.port}", "--dir", str(folder)]
        workers = [subprocess.Popen(words, stderr=subprocess.DEVNULL) for _ in range(2)]
        try:
            crawler.plan(client, [site.url for site in sites], "* * * * * *", BACKOFF, rate="100/1s")
            until(lambda: list(folder.glob("report-*.json")))
            fired = client.schedule_info("crawl").fired
            until(lambda: client.schedule_info("crawl").fired >= fired + 2)
            time.sleep(0.5)
            yield sites, client, [json.loads(path.read_text()) for path in folder.glob("report-*.json")]
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
            for site in sites:
                site.close()


def test_no_url_is_fetched_twice(crawled):
    """Neither for two links nor in two rounds. A page that failed is no fetch, and each worker reads robots.txt."""
    for site in crawled[0]:
        counts = site.counts()
        assert counts.pop("/robots.txt") <= 2
        assert counts.pop("/bad") == 4
        assert counts == dict.fromkeys(["/", "/old", "/missing", *(f"/page/{number}" for number in range(5))], 1)


def test_a_host_has_one_request_at_a_time(crawled):
    """Two workers of twenty threads crawl it."""
    assert [site.most_running for site in crawled[0]] == [1, 1, 1]


def test_each_retry_of_a_failing_page_waits_longer(crawled):
    """Delays of 200, 400 and 800 ms."""
    for site in crawled[0]:
        moments = [moment for path, moment in site.requests if path == "/bad"]
        gaps = [later - earlier for earlier, later in pairwise(moments)]
        assert all(gap >= least for gap, least in zip(gaps, (0.2, 0.4, 0.8), strict=True)), gaps


def test_failed_pages_end_errored(crawled):
    """Their jobs stay with the reason, and no other job is left."""
    sites, client, _ = crawled
    errored = {job.text for job in client.qpeek(crawler.PAGES, 100, status="errored")}
    assert errored == {site.url + path for site in sites for path in ("bad", "missing", "private")}
    assert client.qlen(crawler.PAGES) == 0


def test_the_callback_of_the_last_batch_writes_the_report(crawled):
    """One report, because later rounds found each URL within its window."""
    sites, _, (report,) = crawled
    assert report["by_depth"] == {"0": 3, "1": 12, "2": 3, "3": 3}
    assert len(report["pages"]) == 21
    for site in sites:
        assert report["pages"][site.url + "page/4"] == "Page /page/4"
        assert report["failed"][site.url + "bad"] == "HTTPError: HTTP Error 503: Service Unavailable"
        assert report["failed"][site.url + "missing"] == "404 Not Found"
        assert report["failed"][site.url + "private"] == "robots.txt forbids it"


def test_the_seeds_have_a_schedule(crawled):
    """Its rounds go on."""
    assert crawled[1].schedule_info("crawl").queue == crawler.SEEDS
    assert crawled[1].schedule_info("crawl").fired >= 3
