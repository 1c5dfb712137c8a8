"""Many ADDJOBs in one pipeline, with their common part encoded once.

`add_jobs` is the public command. The clients derive their methods from it, as from the functions of commands.py. The
asyncio and the blocking client share this module and send the parts. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, Literal, TypeAlias, Unpack

from disque_py.client.adding_commands import add_job
from disque_py.client.arguments import ADD_TIMEOUT_MS, Body, Meta
from disque_py.client.bulk import Bulk
from disque_py.client.errors import AuthError, BatchError, NotConnectedError
from disque_py.client.job_options import AddOptions, LifeOptions, add_options, option_words
from disque_py.client.protocol import Reply, word
from disque_py.client.request import Repeat, Request
from disque_py.client.spans import Milliseconds, milliseconds

# Commands and bytes that are encoded at a time. A generator of millions must not be in memory as a whole, nor one of
# large bodies. Bytes are counted after so many commands.
SLAB: Final = 8_192
SLAB_BYTES: Final = 16 << 20
PIECE: Final = 16

Key: TypeAlias = "str | bytes"


class AddTemplate:
    """ADDJOB <queue> … <timeout> <options>, with a gap for the body, and room for a body's own options at the end.

    request   represents all the commands in the choice of a connection
    options   the words that all commands have at the end
    """

    def __init__(
        self,
        queue: str | bytes,
        *,
        timeout_ms: int,
        options: Sequence[bytes],
        retry_unsafe: bool | None,
        awaits_nodes: bool = True,
        is_keyed: bool = False,
    ) -> None:
        self.request: Request[str] = add_job(queue, b"", timeout_ms=timeout_ms, retry_unsafe=retry_unsafe)
        self.request.awaits_nodes = awaits_nodes
        if is_keyed:
            self.request.repeat = Repeat.SAFE
        self.options = tuple(options)
        self._timeout = b"%d" % timeout_ms
        self._word_count = 4 + len(options)
        self._start = b"$6\r\nADDJOB\r\n" + _bulk(word(queue))
        self._head = b"*%d\r\n%b" % (self._word_count, self._start)
        self._tail = b"".join(_bulk(value) for value in (self._timeout, *options))

    def payload(self, body: Body, more: Sequence[bytes] = ()) -> bytes:
        """Return the command for one body. `more` are the words of its own options."""
        body = word(body)
        head, tail = self._head, self._tail
        if more:
            head = b"*%d\r\n%b" % (self._word_count + len(more), self._start)
            for value in more:
                tail += b"$%d\r\n%b\r\n" % (len(value), value)
        return b"%b$%d\r\n%b\r\n%b" % (head, len(body), body, tail)

    def one(self, body: bytes, more: tuple[bytes, ...] = ()) -> Request[str]:
        """Return the command for one body as a separate request. `more` are the words of its own options."""
        like = self.request
        argv = (b"ADDJOB", like.argv[1], body, self._timeout, *self.options, *more)
        made = Request(argv, like.read, like.repeat, like.lane, like.wait_ms, awaits_nodes=like.awaits_nodes)
        made.encoded = self.payload(body, more)
        return made

    def bulk(self, payloads: Sequence[bytes], *, retry_unsafe: bool) -> Bulk:
        """Return the commands of some bodies, ready to be sent. `retry_unsafe` is the client's setting."""
        repeats: list[Repeat] = [self.request.repeat] * len(payloads)
        awaiting = range(len(payloads)) if self.request.awaits_nodes else ()
        every = range(len(payloads))
        return Bulk(payloads, repeats, retry_unsafe=retry_unsafe, awaiting_nodes=awaiting, movable=every)

    def ids(self, replies: Sequence[Reply]) -> list[str]:
        """Return the answers as ids. Raises BatchError if one is an error."""
        if any(isinstance(reply, Exception) for reply in replies):
            read = self.request.read
            raise BatchError([reply if isinstance(reply, Exception) else read(reply) for reply in replies])
        return [str(reply, "ascii") for reply in replies]


class Adding:
    """Bodies that are being added to a queue: `bulks` one after the other, `unsent` for the rest after a failure."""

    def __init__(
        self, template: AddTemplate, bodies: Iterable[Body], words_of: Callable[[Body], Sequence[bytes]] | None
    ) -> None:
        self.template = template
        self._words_of = words_of
        self._bodies = iter(bodies)

    def bulks(self, *, retry_unsafe: bool) -> Iterator[Bulk]:
        """Yield the commands in parts. `retry_unsafe` is the client's setting."""
        template, words_of = self.template, self._words_of
        payloads: Iterator[bytes] = map(template.payload, self._bodies)
        if words_of is not None:
            payloads = (template.payload(body, words_of(body)) for body in self._bodies)
        for slab in slabs(payloads):
            yield template.bulk(slab, retry_unsafe=retry_unsafe)

    def extend(self, more: Callable[[Sequence[bytes]], Sequence[bytes]]) -> None:
        """Add words to every command that is not encoded yet. `more` gets the words of the command's own options."""
        words_of = self._words_of

        def extended(body: Body) -> Sequence[bytes]:
            own = () if words_of is None else words_of(body)
            return (*own, *more(own))

        self._words_of = extended

    @property
    def queue(self) -> bytes:
        """The name of the queue."""
        return self.template.request.argv[1]

    def unsent(self, bulk: Bulk) -> list[Reply]:
        """Return errors in place of the ids of all remaining bodies, if `bulk` could not be sent in time."""
        reason = next(reply for reply in bulk.replies if isinstance(reply, Exception))
        error = reason if isinstance(reason, AuthError) else NotConnectedError(f"not sent: {reason}")
        return [error for _ in self._bodies]


def add_jobs(
    queue: str | bytes,
    bodies: Iterable[Body],
    *,
    timeout_ms: Milliseconds = ADD_TIMEOUT_MS,
    replicate: int | Literal["quorum"] | None = None,
    zones: int | None = None,
    async_: bool = False,
    priority: int | Callable[[Any], int] | None = None,
    meta: Meta | Callable[[Any], Meta] | None = None,
    key: Callable[[Any], Key] | Iterable[Key] | None = None,
    batch: str | bytes | None = None,
    retry_unsafe: bool | None = None,
    **options: Unpack[LifeOptions],
) -> Adding:
    """Add many jobs to a queue in one pipeline (ADDJOB) → their ids, in the order of the bodies.

    queue          name of the queue
    bodies         the jobs' contents. A generator is read in parts, or in one go if `key` is a list
    timeout_ms     milliseconds in which the node has to make the copies of a job, 5000 by default; 0 waits for ever
    replicate      number of copies, or "quorum": a majority of the node's data centre; by default the node chooses
    zones          number of zones that have a copy before the answer; by default any number
    delay          seconds until the jobs are queued; by default they are queued immediately
    retry          seconds without an ack after which a job is queued again; by default the node chooses.
                   0: each is delivered at most once
    ttl            seconds after which a job is dropped; by default the node chooses
    maxlen         refuse a job if the queue has this many jobs or more; by default there is no limit
    async_         True: the node replies before the copies are made. False by default
    priority       a lower number is served first; one number for all, or a function of the body. By default the
                   creation time in Unix milliseconds
    meta           pairs that are stored with each job; the same for all, or a function of the body. None by default
    key            makes the call safe to repeat: one job per queue and key. A function of the body, or one key for each
                   body, in the same order. None by default
    attempts       deliveries after which a job that failed is errored, or a dead letter; 0: any number. By default as
                   the queue's settings say
    backoff        the delay after a NACK without one: a `Backoff`, or text as `exponential:1000:60000:20`. By default
                   as the queue's settings say
    batch          name of the batch that the jobs belong to; None, the default: none
    retry_unsafe   True: send jobs again if their answers are lost. Then they may exist twice. None, the default: the
                   client's setting. With keys they are always sent again

    Raises BatchError if some jobs failed; its `results` has an id or an error for each body. Raises ValueError for a
    number that is not whole and, before any job is sent, for more or fewer keys than bodies; TypeError if `key` is a
    single key.

        ids = client.add_jobs("orders", [b"17", b"18"], retry=60, key=lambda body: body)
    """
    if isinstance(key, (str, bytes)):
        raise TypeError("key must be a function of the body, or a key for each body: one key makes one job")
    per_job: list[Callable[[Body], tuple[bytes, ...]]] = []
    if callable(priority):
        priority_of, priority = priority, None
        per_job.append(lambda body: add_options(priority=priority_of(body)))
    if callable(meta):
        meta_of, meta = meta, None
        per_job.append(lambda body: add_options(meta=meta_of(body)))
    if callable(key):
        key_of = key
        per_job.append(lambda body: add_options(key=key_of(body)))
    elif key is not None:
        listed = list(key)
        bodies = bodies if isinstance(bodies, Collection) else list(bodies)
        if len(listed) != len(bodies):
            raise ValueError(f"give as many keys as bodies: there are {len(listed)} keys for {len(bodies)} bodies")
        keys = iter(listed)
        per_job.append(lambda _: add_options(key=next(keys)))
    named = {
        "replicate": replicate,
        "zones": zones,
        "async_": async_,
        "priority": priority,
        "meta": meta,
        "batch": batch,
    }
    template = AddTemplate(
        queue,
        timeout_ms=milliseconds("timeout_ms", timeout_ms),
        options=option_words("add_jobs", named | dict(options)),
        retry_unsafe=retry_unsafe,
        awaits_nodes=replicate is None,
        is_keyed=key is not None,
    )
    words_of = (lambda body: [word for words in per_job for word in words(body)]) if per_job else None
    return Adding(template, bodies, words_of)


def template_of(queue: str | bytes, *, retry_unsafe: bool | None = None, **options: Unpack[AddOptions]) -> AddTemplate:
    """Return the template of ADDJOBs that have a queue and options in common. Raises ValueError as `add_job`."""
    return AddTemplate(
        queue,
        timeout_ms=ADD_TIMEOUT_MS,
        options=add_options(**options),
        retry_unsafe=retry_unsafe,
        awaits_nodes=options.get("replicate") is None,
    )


def _bulk(value: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(value), value)


def slabs(payloads: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield commands in parts of SLAB, or of about SLAB_BYTES if that is less."""
    rest = iter(payloads)
    part: list[bytes] = []
    size = 0
    while piece := list(islice(rest, PIECE)):
        part += piece
        size += sum(map(len, piece))
        if len(part) >= SLAB or size >= SLAB_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
