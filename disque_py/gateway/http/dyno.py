"""The REST interface of dyno-queues: `/dyno/{q}`, for programs that use it.

A message has an id that the caller chooses (it is the job's key), a payload, a timeout, a priority from 0 to 99 and a
shard. A lower priority is served first, whatever the age, because it is the high part of the job's PRIORITY, and the
time is the low part. The id, the priority, the timeout and the shard travel as metadata.

Every request is an operation of the table, so roles, rates and the audit log are the same as for all interfaces. In
dyno-queues an id can be pushed again after its message was acknowledged. Here the id stays used until the message's
time to live is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

import msgspec

from disque_py.gateway.actions.calls import Call
from disque_py.gateway.fields import check_encoding
from disque_py.gateway.http.exchange import JSON, Answer, Exchange, json_answer
from disque_py.gateway.http.routing import decoded
from disque_py.gateway.logins.grants import Principal
from disque_py.gateway.operations import BY_NAME
from disque_py.gateway.problems import RefusedError
from disque_py.gateway.service import Service

INTERFACE: Final = "dyno"
# One step of priority weighs more than any age in milliseconds.
STEP: Final = 10**13
PRIORITY_MAX: Final = 99
POP_MAX: Final = 1000
# Fields of a request's query, and requests for one message, whose path ends with its id.
QUERIES: Final = {"pop": ("count", "wait"), "peek": ("count",), "timeout": ("timeout",)}
WITH_ID: Final = frozenset(("ack", "unack", "timeout", "remove", "get"))
FIELDS: Final = {"id": str, "payload": str, "timeout": int, "priority": int, "shard": str}


class Dyno:
    """The interface, as an application below the path /dyno/."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._words: dict[tuple[str, str], Callable[[Visit], Coroutine[Any, Any, Any]]] = {
            ("POST", "push"): self._push,
            ("POST", "ensure"): self._ensure,
            ("GET", "pop"): self._pop,
            ("POST", "ack"): self._ack,
            ("POST", "unack"): self._unack,
            ("POST", "timeout"): self._timeout,
            ("DELETE", "remove"): self._remove,
            ("GET", "get"): self._get,
            ("GET", "peek"): self._peek,
            ("GET", "size"): self._size,
            ("GET", "shards"): self._shards,
            ("DELETE", "clear"): self._clear,
        }
        # HEAD has no body, so HEAD of pop would take messages without showing them.
        self._words |= {("HEAD", word): self._words["GET", word] for word in ("get", "peek", "size", "shards")}

    async def serve(self, exchange: Exchange, rest: str) -> Answer:
        """Answer a request for a path below /dyno/."""
        parts = rest.split("/", 2)
        if len(parts) < 2:
            raise RefusedError("NOTFOUND", "paths are /dyno/{queue}/{word} and /dyno/{queue}/{word}/{id}")
        queue, word = decoded(parts[0]), parts[1]
        work = self._words.get((exchange.verb, word))
        if work is None:
            known = [verb for verb, name in self._words if name == word]
            if known:
                raise RefusedError("METHOD", f"{word} supports {', '.join(known)}", methods=known)
            raise RefusedError("NOTFOUND", f"there is no {word!r}")
        exchange.check_source()  # Even a GET takes messages.
        words = exchange.headers.get("authorization", "")
        principal = await self._service.login(words, exchange.address, INTERFACE, exchange.certificate)
        body = await exchange.body(self._service.settings.body_max, "body-max")
        message_id = decoded(parts[2]) if len(parts) > 2 else ""
        check_encoding("the id of the message", message_id)
        check_request(word, message_id, exchange.query)
        visit = Visit(self._service, exchange, principal, queue, message_id, body)
        if word == "pop":
            return json_answer(await exchange.while_connected(work(visit), visit.give_back, self._service.ending))
        return json_answer(await work(visit))

    async def _push(self, visit: Visit) -> Any:
        return [await self._add(visit, message) for message in visit.messages()]

    async def _ensure(self, visit: Visit) -> Any:
        [message, *others] = visit.messages()
        if others:
            raise RefusedError("ERR", "ensure takes one message")
        if await visit.job_id(message["id"]) is not None:
            return False
        await self._add(visit, message)
        return True

    @staticmethod
    async def _add(visit: Visit, message: dict[str, Any]) -> str:
        priority = message.get("priority", 0)
        meta = {
            "dyno-id": message["id"],
            "dyno-priority": str(priority),
            "dyno-timeout": str(message.get("timeout", 0)),
        }
        if message.get("shard"):
            meta["dyno-shard"] = message["shard"]
        await visit.ask(
            "enqueue",
            queue=visit.queue,
            body=message.get("payload", ""),
            key=message["id"],
            priority=priority * STEP + int(time.time() * 1000),
            delay_ms=message.get("timeout") or None,
            meta=meta,
        )
        return str(message["id"])

    @staticmethod
    async def _pop(visit: Visit) -> Any:
        count, wait_ms = visit.number("count", 1, 1, POP_MAX), visit.number("wait", 0, 0, 2**31)
        found = await visit.ask("dequeue", queue=visit.queue, max=count, wait_ms=wait_ms)
        return [message_of(job) for job in found["jobs"]]

    @staticmethod
    async def _ack(visit: Visit) -> Any:
        return await visit.settle("complete")

    @staticmethod
    async def _unack(visit: Visit) -> Any:
        return await visit.settle("fail")

    @staticmethod
    async def _timeout(visit: Visit) -> Any:
        timeout_ms = visit.number("timeout", None, 0, 2**52)
        if await visit.settle("reschedule", delay_ms=timeout_ms):
            return True
        return bool(timeout_ms) and await visit.settle("extend", lease_ms=timeout_ms)

    @staticmethod
    async def _remove(visit: Visit) -> Any:
        return await visit.settle("cancel")

    @staticmethod
    async def _get(visit: Visit) -> Any:
        job_id = await visit.job_id(visit.message_id)
        if job_id is None:
            raise RefusedError("NOJOB", "there is no such message")
        return message_of(await visit.ask("get_job", id=job_id))

    @staticmethod
    async def _peek(visit: Visit) -> Any:
        count = visit.number("count", 1, 1, POP_MAX)
        found = await visit.ask("list_jobs", queue=visit.queue, limit=count)
        return [message_of(job) for job in found["jobs"]]

    @staticmethod
    async def _size(visit: Visit) -> Any:
        found = await visit.ask("depth", queue=visit.queue)
        return found["pending"] + found["invisible"]

    @staticmethod
    async def _shards(visit: Visit) -> Any:
        found = await visit.ask("depth", queue=visit.queue)
        size = found["pending"] + found["invisible"]
        return {"all": {"size": size, "uacked": found["running"]}}

    @staticmethod
    async def _clear(visit: Visit) -> Any:
        found = await visit.ask("purge_queue", queue=visit.queue, confirm=visit.queue)
        return {"operation": found["id"]}


class Visit:
    """One request: its queue, its message's id, and operations in the caller's name."""

    def __init__(
        self, service: Service, exchange: Exchange, principal: Principal, queue: str, message_id: str, body: bytes
    ) -> None:
        self._service = service
        self._exchange = exchange
        self._principal = principal
        self._body = body
        self._call: Call | None = None
        self.queue = queue
        self.message_id = message_id

    async def ask(self, name: str, **args: Any) -> Any:
        """Execute an operation. Raises RefusedError."""
        operation = BY_NAME[name]
        kinds = {argument.name: argument.kind for argument in operation.arguments}
        checked = {key: kinds[key].read(key, value) for key, value in args.items() if value is not None}
        self._call = self._service.call(self._principal, checked, self._exchange.headers)
        return await self._service.perform(operation, self._call, self._exchange.address, INTERFACE)

    async def give_back(self) -> None:
        """Put back the messages of the last operation, because the caller is gone."""
        if self._call is not None:
            await self._call.give_back()

    async def job_id(self, message_id: str) -> str | None:
        """Return the job of a message's id; None if there is none."""
        found = await self.ask("find_jobs", queue=self.queue, keys=[message_id])
        job_id = found["ids"][message_id]
        return None if job_id is None else str(job_id)

    async def settle(self, operation: str, **args: Any) -> bool:
        """Execute an operation on the message's job. Return whether it changed something."""
        job_id = await self.job_id(self.message_id)
        if job_id is None:
            return False
        try:
            found = await self.ask(operation, id=job_id, **args)
        except RefusedError as error:
            if error.code in ("NOJOB", "STALE", "TOOLATE"):
                return False
            raise
        return bool(found.get("changed", True))

    def number(self, name: str, default: int | None, least: int, most: int) -> int:
        """Return a number of the query; without a default it must be there. Raises RefusedError."""
        texts = self._exchange.query.get(name, [])
        if not texts:
            if default is None:
                raise RefusedError("ERR", f"{name} is missing")
            return default
        text = texts[-1]
        if not text.isascii() or not text.isdigit() or len(text) > 18 or not least <= int(text) <= most:
            raise RefusedError("ERR", f"{name} must be a whole number from {least} to {most}")
        return int(text)

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages of the body: one, or a list. Raises RefusedError."""
        kind = self._exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != JSON:
            raise RefusedError("ERR", f"content-type must be {JSON}")
        try:
            found = msgspec.json.decode(self._body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise RefusedError("ERR", f"the body is not JSON: {error}") from None
        listed = found if isinstance(found, list) else [found]
        if not 1 <= len(listed) <= self._service.settings.batch_max_jobs:
            raise RefusedError("ERR", "the body must have a message, and at most batch-max-jobs of them")
        for message in listed:
            check_message(message)
        return listed


def check_request(word: str, message_id: str, query: Mapping[str, Any]) -> None:
    """Refuse a path with an id too few or too many, and unknown fields of the query. Raises RefusedError."""
    if bool(message_id) != (word in WITH_ID):
        raise RefusedError("NOTFOUND", f"{word} needs an id" if word in WITH_ID else f"{word} takes no id")
    known = QUERIES.get(word, ())
    for name in query:
        if name not in known:
            raise RefusedError("ERR", f"there is no field {name!r} in the query of {word}")


def check_message(message: Any) -> None:
    """Refuse an object that is not a message of dyno-queues. Raises RefusedError."""
    if not isinstance(message, dict):
        raise RefusedError("ERR", "a message must be an object")
    for name, value in message.items():
        if name not in FIELDS:
            raise RefusedError("ERR", f"there is no field {name!r} (the fields are {', '.join(FIELDS)})")
        if not isinstance(value, FIELDS[name]) or isinstance(value, bool):
            raise RefusedError("ERR", f"{name} has the wrong type")
    if not message.get("id"):
        raise RefusedError("ERR", "a message needs an id")
    if not 0 <= message.get("priority", 0) <= PRIORITY_MAX:
        raise RefusedError("ERR", f"priority must be from 0 to {PRIORITY_MAX}")
    if message.get("timeout", 0) < 0:
        raise RefusedError("ERR", "timeout must be 0 or more")


def message_of(job: dict[str, Any]) -> dict[str, Any]:
    """Return a job as a message. If it was not added here, its id is that of the job."""
    meta = job.get("meta") or {}
    return {
        "id": meta.get("dyno-id", job["id"]),
        "payload": job.get("body", job.get("body_base64", "")),
        "timeout": _number(meta, "dyno-timeout"),
        "priority": _number(meta, "dyno-priority"),
        "shard": meta.get("dyno-shard", ""),
    }


def _number(meta: dict[str, str], name: str) -> int:
    text = meta.get(name, "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
