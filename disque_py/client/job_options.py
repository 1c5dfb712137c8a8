"""Options that several commands take: of new jobs, and of deliveries. Pure. Spec R8.

A command takes a typed dictionary as `**options: Unpack[…]`, so editors and type checkers see each name and type. The
options of a new job become words in `add_options`, those of a delivery in `get_jobs`. Both have them as parameters and
refuse other names. The docstring of each command explains its options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, TypedDict, TypeVar

from disque_py.client.address import Address
from disque_py.client.arguments import BackoffPolicy, Body, JobRef, Meta, Where
from disque_py.client.options import check_words
from disque_py.client.protocol import Reply, word
from disque_py.client.request import Lane, Repeat, Request
from disque_py.client.results import Job
from disque_py.client.spans import Milliseconds, Seconds, milliseconds, seconds, time_words, whole

T = TypeVar("T")

# A number of copies, or a majority of the node's data centre.
Copies: TypeAlias = int | Literal["quorum"]


class LifeOptions(TypedDict, total=False):
    """The options of every command that makes jobs, one or many."""

    delay: Seconds | None
    retry: Seconds | None
    ttl: Seconds | None
    maxlen: int | None
    attempts: int | None
    backoff: BackoffPolicy | None


class JobOptions(LifeOptions, total=False):
    """The options of every command that makes one job at a time."""

    priority: int | None
    meta: Meta | None


class KeyedOptions(JobOptions, total=False):
    """The options of commands whose sender waits for the copies, and which may be sent again."""

    async_: bool
    key: str | bytes | None
    window: Seconds | None
    replace: bool


class CopyOptions(KeyedOptions, total=False):
    """The options of ADDJOB without its batch."""

    replicate: Copies | None
    zones: int | None


class AddOptions(CopyOptions, total=False):
    """The options of ADDJOB."""

    batch: str | bytes | None


# For suggestions, with the parameters that the commands have besides their options.
OPTION_NAMES: Final = frozenset((*AddOptions.__annotations__, "timeout_ms", "retry_unsafe"))


class FetchOptions(TypedDict, total=False):
    """The options of GETJOB, also of one that is sent again and again."""

    withcounters: bool
    withmeta: bool
    withlease: bool
    lease: Seconds | None
    where: Where | None
    match: Iterable[str | bytes] | None
    node: Address | None


def add_options(
    *,
    replicate: Copies | None = None,
    zones: int | None = None,
    delay: Seconds | None = None,
    retry: Seconds | None = None,
    ttl: Seconds | None = None,
    maxlen: int | None = None,
    async_: bool = False,
    priority: int | None = None,
    meta: Meta | None = None,
    key: str | bytes | None = None,
    window: Seconds | None = None,
    replace: bool = False,
    attempts: int | None = None,
    backoff: BackoffPolicy | None = None,
    batch: str | bytes | None = None,
) -> tuple[bytes, ...]:
    """Return ADDJOB's words after the timeout. None leaves the choice to the node."""
    options: list[bytes] = []
    if replicate is not None:
        options += (b"REPLICATE", b"QUORUM" if replicate == "quorum" else b"%d" % whole("replicate", replicate))
    if zones is not None:
        options += (b"ZONES", b"%d" % whole("zones", zones))
    if delay is not None:
        options += time_words("delay", delay)
    if retry is not None:
        options += time_words("retry", retry)
    if ttl is not None:
        options += time_words("ttl", ttl)
    if maxlen is not None:
        options += (b"MAXLEN", b"%d" % whole("maxlen", maxlen))
    if priority is not None:
        options += (b"PRIORITY", b"%d" % whole("priority", priority))
    if attempts is not None:
        options += (b"ATTEMPTS", b"%d" % whole("attempts", attempts))
    if backoff is not None:
        options += (b"BACKOFF", str(backoff).encode())
    if async_:
        options.append(b"ASYNC")
    if meta:
        for name_of_pair, value_of_pair in meta.items():
            options += (b"META", word(name_of_pair), word(value_of_pair))
    if key is not None:
        options += (b"KEY", word(key))
    if batch is not None:
        options += (b"BATCH", word(batch))
    if window is not None:
        options += (b"WINDOW", b"%d" % whole("window", seconds("window", window)))
    if replace:
        options.append(b"REPLACE")
    return tuple(options)


def option_words(command: str, options: Mapping[str, Any]) -> tuple[bytes, ...]:
    """Return the words of a command's options. Raises TypeError for an unknown option, with the name of the command."""
    try:
        return add_options(**options)
    except TypeError:  # Checked only now, so that a correct call costs nothing more.
        check_words(options, OPTION_NAMES, f"an option of {command}")
        raise


def of_delivery(jobs: tuple[JobRef, ...], attempt: int | None, fence: int | None) -> tuple[bytes, ...]:
    """Return the words that name one delivery. A single `Job` under a claim brings its own fence."""
    words: tuple[bytes, ...] = ()
    if attempt is not None:
        words += (b"ATTEMPT", b"%d" % whole("attempt", attempt))
    if fence is None and len(jobs) == 1 and isinstance(jobs[0], Job):
        fence = jobs[0].fence
    if fence:
        words += (b"FENCE", b"%d" % whole("fence", fence))
    if words and len(jobs) != 1:
        raise ValueError("attempt and fence need exactly one job")
    return words


def adding(
    command: str,
    start: tuple[bytes, ...],
    body: Body,
    read: Callable[[Reply], T],
    timeout_ms: Milliseconds,
    retry_unsafe: bool | None,
    options: AddOptions,
) -> Request[T]:
    """Return a command that adds a body. `start` are the words before it, `read` reads the answer."""
    timeout = milliseconds("timeout_ms", timeout_ms)
    argv = (*start, word(body), b"%d" % timeout, *option_words(command, options))
    if options.get("key") is not None and options.get("window") is None:
        repeat = Repeat.SAFE
    elif retry_unsafe is None:
        repeat = Repeat.ASK
    else:
        repeat = Repeat.SAFE if retry_unsafe else Repeat.NEVER
    return Request(argv, read, repeat, Lane.ADDS, timeout, awaits_nodes=options.get("replicate") is None)
