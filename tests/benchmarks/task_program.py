"""The program of the benchmark `tasks`: tasks that do nothing, as a worker and its producer see them."""

from __future__ import annotations

from disque_py.tasks import App

app = App(queue="benchmark")


@app.task
def nothing() -> None:
    """Do nothing, in a thread."""


@app.task
async def nothing_async() -> None:
    """Do nothing, in the event loop."""


@app.task
async def answer() -> int:
    """Return a result, which the node keeps."""
    return 42
