"""The worked example docs/examples/recency_index: tasks in any order leave the same lists."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from disque_py.client import Disque
from servers import HOST, Server, until

PROGRAM = Path(__file__).resolve().parents[2] / "docs/examples/recency_index/recency_index.py"
USERS = 8
CONTACTS = range(100, 140)


def load():
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("recency_index", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


recency = load()


@pytest.fixture
def site(tmp_path):
    with closing(recency.Site(tmp_path)) as site:
        yield site


@pytest.fixture
def index(tmp_path, site):
    with closing(recency.Index(tmp_path, site)) as index:
        yield index


def run(index, *tasks):
    """Run tasks for user 1 as a worker does."""
    for task in tasks:
        index.look(1, json.loads(task)["contact"])


def fill(site, index, count):
    """Give user 1 so many contacts. The one with the highest number uploaded last."""
    for number in range(count):
        site.upload(number, float(number + 1))
        run(index, site.add_contact(1, number))


def right(site, user):
    return [contact for contact, _ in site.newest(user, recency.SHOWN)]


def test_unordered_tasks_leave_the_newest_contacts(tmp_path, site, index):
    """Two workers run shuffled tasks, each of them twice. At last each user removes five of the ten newest contacts."""
    rng = random.Random(18)

    def is_right():
        return all(index.recent(user) == right(site, user) for user in range(USERS))

    with Server(tmp_path / "node") as server, Disque(f"{HOST}:{server.port}") as client:
        words = [sys.executable, str(PROGRAM), "work", f"{HOST}:{server.port}", "--dir", str(tmp_path)]
        workers = [subprocess.Popen(words, stderr=subprocess.DEVNULL) for _ in range(2)]
        try:
            tasks = [change(site, rng, number) for number in range(600)]
            recency.notify(client, *rng.sample(tasks * 2, len(tasks) * 2))
            until(is_right)
            tasks = [site.remove_contact(user, contact) for user in range(USERS) for contact in right(site, user)[:5]]
            recency.notify(client, *rng.sample(tasks * 2, len(tasks) * 2))
            until(lambda: index.refills() and is_right())
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
    sizes = [index.size(user) for user in range(USERS)]
    assert 0 < min(sizes) <= max(sizes) <= recency.CAP, sizes


def change(site, rng, number):
    """Change the site at random: first it grows, and then many contacts are removed."""
    user, contact, draw = rng.randrange(USERS), rng.choice(CONTACTS), rng.random()
    favourites = right(site, user)
    if number >= 300 and draw < 0.35 and favourites:
        return site.remove_contact(user, rng.choice(favourites))
    if draw < 0.8:
        return site.add_contact(user, contact)
    return site.upload(contact, rng.random())


def test_a_list_has_at_most_its_cap(site, index):
    """The least recently active contacts are dropped."""
    fill(site, index, 30)
    assert index.size(1) == recency.CAP
    assert index.recent(1) == list(range(29, 19, -1))


def test_a_list_below_its_floor_is_refilled_to_the_cap(site, index):
    """The third removal leaves nine contacts."""
    fill(site, index, 30)
    run(index, site.remove_contact(1, 29), site.remove_contact(1, 28))
    assert (index.size(1), index.refills()) == (recency.FLOOR, 0)
    run(index, site.remove_contact(1, 27))
    assert (index.size(1), index.refills()) == (recency.CAP, 1)
    assert index.recent(1) == right(site, 1)


def test_an_old_contact_leaves_no_gap(site, index):
    """The list has room, but contacts that the cap cut off would come before the new one."""
    fill(site, index, 30)
    site.upload(77, 1.5)
    run(index, site.remove_contact(1, 29), site.add_contact(1, 77))
    assert index.size(1) == recency.CAP - 1
    run(index, *(site.remove_contact(1, number) for number in (28, 27, 26)))
    assert index.recent(1) == right(site, 1)


def test_a_remove_and_an_add_may_change_places(site, index):
    """Both tasks look at the database, which has the contact."""
    fill(site, index, 5)
    removed, added = site.remove_contact(1, 3), site.add_contact(1, 3)
    run(index, added, removed)
    assert index.recent(1) == [4, 3, 2, 1, 0]


def test_a_page_leaves_out_a_contact_whose_removal_is_on_its_way(site, index):
    """The database knows at once, and the index after the task."""
    fill(site, index, 5)
    removed = site.remove_contact(1, 4)
    assert (index.recent(1), index.size(1)) == ([3, 2, 1, 0], 5)
    run(index, removed)
    assert (index.recent(1), index.size(1)) == ([3, 2, 1, 0], 4)


def test_a_short_list_that_has_everything_is_not_refilled(site, index):
    """The database has no more contacts, so it need not be asked."""
    fill(site, index, 3)
    run(index, site.remove_contact(1, 2))
    assert (index.size(1), index.refills()) == (2, 0)
