"""A polite crawler: each URL once per window, one request per host at a time, back-off, and a report per round.

    python polite_crawler.py plan  127.0.0.1:7711 --seed http://a.example/ --seed http://b.example/ --cron "0 3 * * *"
    python polite_crawler.py crawl 127.0.0.1:7711 --dir /var/lib/crawler

`plan` sets the limits of the queue `crawl.pages`, and the schedule of the rounds. It runs once. `crawl` is a worker.
Run any number of workers, on any number of machines. At each tick of the schedule a round begins with the seeds. A page
that was fetched adds its links, as long as they stay on its host. The pages of a round at one depth are a batch. Its
callback closes the batch of the next depth, or writes the report if there is none. README.md has the rules.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sqlite3
from collections import Counter
from functools import lru_cache
from html.parser import HTMLParser
from http.client import HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import HTTPError
from urllib.parse import urldefrag, urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener
from urllib.robotparser import RobotFileParser

from disque_py.client import AsyncDisque, Backoff, Disque, Fail, Job, Worker

SEEDS, PAGES, DONE = "crawl.seeds", "crawl.pages", "crawl.done"
AGENT = "polite-crawler-example"
# Shorter than a day, so that a round each night fetches everything again.
WINDOW_S = 20 * 3600
DEPTH_MAX = 5
FETCH_S = 10
PAGE_BYTES_MAX = 1 << 20
LISTED_MAX = 10_000


# -- the plan -----------------------------------------------------------------------------------------------


def plan(client: Disque, seeds: list[str], cron: str, backoff: Backoff, rate: str = "1/1s") -> None:
    """Set the limits of the pages' queue, and the schedule of the rounds. A second call changes them."""
    client.set_queue(
        PAGES,
        max_running=1,
        max_running_by="host",
        rate=rate,
        rate_by="host",
        require_meta=["host"],
        attempts=4,
        backoff=backoff,
    )
    client.schedule("crawl", SEEDS, json.dumps(seeds), cron=cron, overlap="skip")


# -- a round ------------------------------------------------------------------------------------------------


class Crawler:
    """The handlers of a worker: of seeds, of pages, and of batches that are done."""

    def __init__(self, client: Disque, folder: Path) -> None:
        self._client = client
        self._folder = folder

    def handle(self, job: Job) -> None:
        """Do a job of any of the three queues. Doing it twice is harmless."""
        meta = job.meta or {}
        if job.queue == SEEDS:
            # The tick is the same for all deliveries of this job, so all of them belong to one round.
            self._begin(meta.get("x-disque-tick", job.id), json.loads(job.body))
        elif job.queue == PAGES:
            self._visit(job.text, meta["round"], int(meta["depth"]))
        else:
            name, _, depth = meta["x-disque-batch"].rpartition(".")
            self._close(name.removeprefix("crawl."), int(depth) + 1)

    def _begin(self, of_round: str, seeds: list[str]) -> None:
        self._add(seeds, of_round, 0)
        self._close(of_round, 0)

    def _add(self, urls: list[str], of_round: str, depth: int) -> None:
        for url in urls:
            # The key allows one job per URL and window, whatever page links to it, and in whatever round.
            self._client.add_job(
                PAGES,
                url,
                key=url,
                window=WINDOW_S,
                batch=batch_of(of_round, depth),
                meta={"host": urlsplit(url).netloc, "round": of_round, "depth": str(depth)},
                retry=60,
                retry_unsafe=True,
            )

    def _visit(self, url: str, of_round: str, depth: int) -> None:
        if not rules_of(urlsplit(url)._replace(path="/robots.txt", query="").geturl(), of_round).can_fetch(AGENT, url):
            raise Fail("robots.txt forbids it")
        page = fetch(url)
        if depth < DEPTH_MAX:
            self._add(page.links, of_round, depth + 1)
        with self._store() as store:
            store.execute("INSERT OR REPLACE INTO pages VALUES (?, ?, ?, ?)", (of_round, url, depth, page.title))

    def _close(self, of_round: str, depth: int) -> None:
        """Close the batch of a depth. All pages of the depth before are over, so no other page can be added.

        A batch has no jobs if each of its URLs was added before. A round without any job has no report.
        """
        batch = self._client.batch_info(batch_of(of_round, depth))
        if batch is not None and batch.total:
            self._client.close_batch(batch.name, callback=(DONE, ""))
            return
        if depth > 0:
            self._report(of_round)
        self._client.delete_batch(batch_of(of_round, depth))

    def _report(self, of_round: str) -> None:
        errored = self._client.qpeek(PAGES, LISTED_MAX, where={"round": of_round}, status="errored", cluster=True)
        shown = {job.text: self._client.show(job.id, cluster=True) for job in errored}
        with self._store() as store:
            rows = store.execute("SELECT url, depth, title FROM pages WHERE round = ?", (of_round,)).fetchall()
        report = {
            "round": of_round,
            "pages": {url: title for url, _, title in sorted(rows)},
            "by_depth": dict(sorted(Counter(depth for _, depth, _ in rows).items())),
            "failed": {url: info.error if info else None for url, info in sorted(shown.items())},
        }
        new = self._folder / f"report-{of_round}.new.{os.getpid()}"
        new.write_text(json.dumps(report, indent=2))
        new.replace(self._folder / f"report-{of_round}.json")

    def _store(self) -> sqlite3.Connection:
        store = sqlite3.connect(self._folder / "pages.db", timeout=30)
        store.execute(
            "CREATE TABLE IF NOT EXISTS pages (round TEXT, url TEXT, depth INT, title TEXT, PRIMARY KEY (round, url))"
        )
        return store


def batch_of(of_round: str, depth: int) -> str:
    """Return the name of the batch of a round's pages at a depth."""
    return f"crawl.{of_round}.{depth}"


# -- HTTP ---------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """The title of a page, and its links on the same host, each once."""

    def __init__(self, url: str, text: str = "") -> None:
        super().__init__()
        self.title = ""
        self.links: list[str] = []
        self._url = url
        self._is_title = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a link."""
        self._is_title = tag == "title"
        href = dict(attrs).get("href")
        if tag == "a" and href:
            self.add_link(href)

    def handle_data(self, data: str) -> None:
        """Note the title."""
        if self._is_title:
            self.title = data.strip()
            self._is_title = False

    def add_link(self, href: str) -> None:
        """Note a link, without its fragment, unless it leads to another host."""
        link = urldefrag(urljoin(self._url, href)).url
        here, there = urlsplit(self._url), urlsplit(link)
        if (here.scheme, here.netloc) == (there.scheme, there.netloc) and link not in self.links:
            self.links.append(link)


class NoRedirect(HTTPRedirectHandler):
    """A redirect is treated as a link: its target waits for its turn like any other page."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """Follow no redirect."""


def _opener() -> OpenerDirector:
    opener = build_opener(NoRedirect)
    opener.addheaders = [("User-Agent", AGENT)]
    return opener


def fetch(url: str) -> Page:
    """Fetch a page. A page that is missing or forbidden fails for good, and any other error is tried again."""
    try:
        response: HTTPResponse
        with _opener().open(url, timeout=FETCH_S) as response:
            return Page(url, response.read(PAGE_BYTES_MAX).decode("utf-8", "replace"))
    except HTTPError as error:
        with error:
            if 300 <= error.code < 400:
                page = Page(url)
                page.add_link(error.headers.get("Location", url))
                return page
            if 400 <= error.code < 500 and error.code not in (408, 429):
                raise Fail(f"{error.code} {error.reason}") from error
            raise


@lru_cache(maxsize=10_000)
def rules_of(url: str, of_round: str) -> RobotFileParser:
    """Return the rules of a robots.txt. Each process fetches it once per round, in the job of a page."""
    rules = RobotFileParser(url)
    try:
        with _opener().open(url, timeout=FETCH_S) as response:
            rules.parse(response.read(PAGE_BYTES_MAX).decode("utf-8", "replace").splitlines())
    except HTTPError as error:
        with error:
            if error.code >= 500:
                raise
            rules.parse([])
    return rules


# -- processes ----------------------------------------------------------------------------------------------


def main() -> None:
    """Set the plan, or run a worker until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("plan", "crawl"))
    parser.add_argument("nodes", nargs="+")
    parser.add_argument("--seed", action="append", default=[])
    parser.add_argument("--cron", default="0 3 * * *")
    parser.add_argument("--dir", type=Path, default=Path("."))
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    with Disque(*chosen.nodes) as client:
        if chosen.what == "plan":
            plan(client, chosen.seed, chosen.cron, Backoff(base_ms=10_000, cap_ms=600_000))
        else:
            crawler = Crawler(client, chosen.dir)
            queues = [SEEDS, DONE, PAGES]
            Worker(AsyncDisque(*chosen.nodes), queues, crawler.handle, concurrency=20, withmeta=True).run()


if __name__ == "__main__":
    main()
