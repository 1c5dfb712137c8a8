"""The client library alone: no other package is installed, and the system has neither poll nor unix sockets."""

from __future__ import annotations

import subprocess
import sys

# A finder that refuses all modules except the standard library and this project's client library, as if on Windows.
PROGRAM = """
import asyncio, select, signal, socket, sys

class OnlyTheClient:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        ours = name.startswith(("disque_py.client", "disque_py.event_format")) or name == "disque_py"
        if not ours and (top not in sys.stdlib_module_names or top in {"fcntl", "grp", "pwd", "resource", "termios"}):
            raise ModuleNotFoundError(f"{name} is not installed", name=name)

sys.meta_path.insert(0, OnlyTheClient())
runner = asyncio.Runner()
loop = runner.get_loop()  # It has a pair of unix sockets, unlike that of Windows.
del select.poll, socket.AF_UNIX

import disque_py.client
from disque_py.client import AsyncDisque, Disque, DisqueConnectionError, Worker

for name in disque_py.client.__all__:
    getattr(disque_py.client, name)
if len(sys.argv) > 1:
    node = sys.argv[1]
    with Disque(node) as disque:
        disque.add_job("mail", "Dear Ada")
        job = disque.get_job("mail")
        assert job.body == b"Dear Ada", job
        disque.ack(job)

    async def in_a_loop():
        async with AsyncDisque(node) as disque:
            await disque.add_job("mail", "Dear Grace")
            job = await disque.get_job("mail")
            assert job.body == b"Dear Grace", job
            await disque.ack(job)

    runner.run(in_a_loop())
    try:
        with Disque("unix:/tmp/disque.sock", connect_timeout=1) as disque:
            disque.add_job("mail", "x")
    except DisqueConnectionError as error:
        assert "no unix sockets" in str(error), error
    else:
        raise AssertionError("a socket that can't be")
assert "disque_py.client.plain_protocol" in sys.modules
runner.close()
foreign = {"uvloop", "hiredis", "msgpack", "click", "rich", "mypy_extensions", "librt", "tzdata"} & set(sys.modules)
assert not foreign, foreign
"""


def run(*words):
    return subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=False)


def test_the_client_library_needs_the_standard_library_only():
    done = run()
    assert done.returncode == 0, done.stderr


def test_the_client_library_alone_adds_and_fetches_jobs(disque_node):
    done = run(f"127.0.0.1:{disque_node.port}")
    assert done.returncode == 0, done.stderr
