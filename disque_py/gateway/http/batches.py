"""Batches: each line of NDJSON is a job, and each line of the answer is its result, in the same order.

The answer to a line that can't be read, that is too long, or that names a batch without permission, is its problem;
the other jobs are added. Jobs are added in pipelines. If the caller hangs up, all jobs are added nevertheless.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from disque_py.client.request import Request
from disque_py.gateway.actions.calls import Call, check_other_names
from disque_py.gateway.actions.jobs import add_request, sent
from disque_py.gateway.http.arguments import of_json
from disque_py.gateway.http.exchange import encoded
from disque_py.gateway.operations import BY_NAME
from disque_py.gateway.problems import RefusedError, refusal_of

# Lines that are sent to a node together. Their answers leave before the next ones are sent.
CHUNK: Final = 1_000
ENQUEUE: Final = BY_NAME["enqueue"]


def lines_of(body: bytes, most: int) -> list[bytes]:
    """Return the lines of a batch. Raises RefusedError if there are none, or more than `most`."""
    lines = [line for line in body.split(b"\n") if line.strip()]
    if not lines:
        raise RefusedError("ERR", "the batch has no lines")
    if len(lines) > most:
        raise RefusedError("TOOBIG", f"the batch has more than {most} jobs (batch-max-jobs)")
    return lines


async def answers(call: Call, lines: list[bytes], codes: set[str] | None = None) -> AsyncIterator[bytes]:
    """Add the jobs, and yield the lines of the answer. Add the codes of refused lines to `codes`."""
    for start in range(0, len(lines), CHUNK):
        chunk = [_request(call, line) for line in lines[start : start + CHUNK]]
        requests = [each for each in chunk if isinstance(each, Request)]
        outcomes = iter(await sent(call, requests))
        found = [next(outcomes) if isinstance(each, Request) else each for each in chunk]
        if codes is not None:
            codes |= {refusal_of(outcome).code for outcome in found if isinstance(outcome, Exception)}
        yield b"".join(_line(outcome) for outcome in found)


def _request(call: Call, line: bytes) -> Request[str] | RefusedError:
    most = call.settings.body_max
    try:
        if len(line) > most:
            raise RefusedError("TOOBIG", f"the line has more than {most} bytes (body-max)")
        args = of_json(ENQUEUE, line)
        check_other_names(call.principal, ENQUEUE.role, args)
        return add_request(call.queue, args, call.trace)
    except (RefusedError, ValueError, TypeError) as error:
        return refusal_of(error)


def _line(outcome: Any) -> bytes:
    shape = refusal_of(outcome).problem() if isinstance(outcome, Exception) else {"id": outcome}
    return encoded(shape) + b"\n"
