"""The programs of docs/integrations/fastapi.md, with uvicorn, a worker and a real node, and also in memory."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra [fastapi] is not installed")
httpx = pytest.importorskip("httpx", reason="the extra [fastapi] is not installed")
uvicorn = pytest.importorskip("uvicorn", reason="the extra [fastapi] is not installed")

PAGE = Path(__file__).parents[3] / "docs/integrations/fastapi.md"
BLOCKS = re.findall(r"^```python\n(.+?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
WORKER = ("-m", "disque_py.tasks.command", "photos:tasks")


@pytest.fixture
def programs(tmp_path, monkeypatch, shared_node, name):
    """The page's programs in the test's folder, freshly imported, with a queue that no other test uses."""
    for number, file in enumerate(("photos.py", "web.py")):
        assert BLOCKS[number].startswith(f"# {file}\n")
        (tmp_path / file).write_text(BLOCKS[number].replace("App()", f"App(queue={name!r})"), encoding="utf-8")
        monkeypatch.delitem(sys.modules, file.removesuffix(".py"), raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("DISQUE_URL", shared_node.url)
    yield tmp_path
    for module in ("photos", "web"):
        sys.modules.pop(module, None)


@contextmanager
def serving(web):
    """Serve an application with uvicorn on a free port. Yield a client of it."""
    server = uvicorn.Server(uvicorn.Config(web, port=0, log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until = time.monotonic() + 60
        while not server.started:
            assert time.monotonic() < until
            assert thread.is_alive()
            time.sleep(0.02)
        host, port = server.servers[0].sockets[0].getsockname()
        with httpx.Client(base_url=f"http://{host}:{port}", timeout=60) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()


def events_of(client, path):
    """Yield the name and the data of each event of a stream."""
    with client.stream("GET", path) as answer:
        name = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))


def test_endpoints_add_a_task_wait_for_it_and_stream_its_progress(programs, run, shared_node):
    import web

    with serving(web.web) as client:
        added = client.post("/photos", json={"name": "lisbon.raw", "pages": 30})
        assert added.status_code == 202
        task_id = added.json()["id"]
        assert client.post("/photos", json={"name": "lisbon.raw", "pages": 30}).json() == {"id": task_id}
        assert client.get(f"/results/{task_id}").json() == {"status": "pending", "result": None, "error": None}
        run(shared_node.url, *WORKER)
        events = list(events_of(client, f"/progress/{task_id}"))
        result = client.get(f"/results/{task_id}", params={"wait": 30}).json()
    assert (result["status"], len(result["result"]), result["result"][29]) == ("completed", 30, "lisbon-30.png")
    assert [name for name, _ in events][-2:] == ["progress", "done"]
    assert events[-1] == ("done", {"result": result["result"]})
    percents = [data["percent"] for name, data in events if name == "progress"]
    assert percents == sorted(set(percents))


def test_endpoints_answer_errors_and_unknown_ids(programs, run, shared_node):
    import web

    run(shared_node.url, *WORKER)
    with serving(web.web) as client:
        task_id = client.post("/photos", json={"name": "lisbon.gif"}).json()["id"]
        answer = client.get(f"/results/{task_id}", params={"wait": 30}).json()
        assert answer == {"status": "errored", "result": None, "error": "lisbon.gif is no raw photo"}
        assert list(events_of(client, f"/progress/{task_id}"))[-1][1] == {
            "error": "ValueError: lisbon.gif is no raw photo"
        }
        assert client.get("/results/D-00000000-000000000000000000000000-05a1", params={"wait": 5}).status_code == 404
        assert client.get("/results/no-id").status_code == 404


def test_the_worker_may_run_in_the_web_server(programs):
    import web
    from fastapi import FastAPI

    names = {}
    exec(BLOCKS[2], names)
    both = FastAPI(lifespan=names["lifespan"])
    both.include_router(web.web.router)
    with serving(both) as client:
        task_id = client.post("/photos", json={"name": "rome.raw", "pages": 1}).json()["id"]
        assert client.get(f"/results/{task_id}", params={"wait": 30}).json()["result"] == ["rome-1.png"]


@pytest.mark.filterwarnings("ignore:Using `httpx`")  # Newer releases prefer another package with the same interface.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Older releases use deprecated names of newer dependencies.
def test_the_test_on_the_page_passes(programs):
    names = {}
    exec(BLOCKS[3], names)
    names["test_a_photo_is_resized"]()
