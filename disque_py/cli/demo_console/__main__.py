"""The program of bin/demo --console."""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Final

import click
from rich.console import Console

from disque_py.cli.demo.nodes import Nodes, NodesError
from disque_py.cli.demo.running import run
from disque_py.cli.demo_console.load import Shop
from disque_py.client import AsyncDisque, DisqueError
from disque_py.loopback_ports import HOST, free_port, is_free
from disque_py.program_commands import ProgramCommand

PORT: Final = 8711
START_S: Final = 20.0
STOP_S: Final = 10.0


@click.command(cls=ProgramCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the console.  [default: 8711, or a free one]")
def main(port: int | None) -> None:
    """Start three nodes, the gateway and a load that never ends, and print the console's address."""
    console = Console(stderr=True, highlight=False)
    sys.exit(run(console, demonstrate(console, port), (NodesError, DisqueError, OSError)))


async def demonstrate(console: Console, port: int | None) -> int:
    """Run until interrupted."""
    with Nodes() as nodes:
        await nodes.join()
        seeds = [f"{HOST}:{node.port}" for node in nodes.all]
        with _gateway(",".join(seeds), port or (PORT if is_free(PORT) else free_port())) as address:
            async with AsyncDisque(*seeds, name="demo") as client:
                hello = await client.hello()
                await client.cluster_voters_init(*(node.id for node in hello.nodes))
                shop = Shop(client, random.Random())
                await shop.prepare()
                await _wait_until_it_answers(address)
                console.print(f"The console:  [bold]{address}/console/[/bold]")
                console.print(f"HTTP:         {address}/docs")
                console.print(f"Three nodes:  {', '.join(seeds)}")
                console.print("Press Ctrl-C to stop.")
                await shop.run()
    return 0


@contextlib.contextmanager
def _gateway(seeds: str, port: int) -> Iterator[str]:
    """Run a gateway. Yield its address."""
    words = [
        sys.executable,
        "-m",
        "disque_py.gateway.command",
        "--listen",
        f"{HOST}:{port}",
        "--url",
        f"disque://{seeds}",
    ]
    words += ["--grpc-listen", f"{HOST}:{free_port()}"]
    quiet = subprocess.DEVNULL
    # Ctrl-C in a terminal is for this program, which stops the gateway in order.
    with subprocess.Popen(words, stdin=quiet, stderr=quiet, start_new_session=True) as process:
        try:
            yield f"http://{HOST}:{port}"
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
            process.kill()


async def _wait_until_it_answers(address: str) -> None:
    """Wait for the gateway. Raises NodesError."""

    def is_ready() -> bool:
        try:
            with urllib.request.urlopen(f"{address}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    deadline = asyncio.get_running_loop().time() + START_S
    while not await asyncio.to_thread(is_ready):
        if asyncio.get_running_loop().time() > deadline:
            raise NodesError("the gateway does not answer")
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    main(prog_name="bin/demo --console")
