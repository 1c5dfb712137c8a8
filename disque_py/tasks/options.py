"""Options of tasks, and the options of ADDJOB that they become.

An option may be given in three places, and the later ones win: the defaults of the app, the declaration of the task, a
call with `task.options(…)`. The broker keeps delays, attempts, back-off and keys, so no worker has to run for them. The
caller passes the current time. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypedDict

from disque_py.client.arguments import BackoffPolicy
from disque_py.client.options import check_words
from disque_py.client.spans import Span, float_seconds

# The default of `attempts`. A worker that stops costs one attempt, so one is too few.
ATTEMPTS: Final = 5
# The default of `lease`: seconds after which the task of a dead worker runs elsewhere.
LEASE_S: Final = 60
# The default of `ttl`. A lease can be extended up to half of it (TOOLATE), so this is twice the longest run.
TTL: Final = timedelta(days=7)


class AddOptions(TypedDict, total=False):
    """Options of one call, of a task, or of all tasks of an app.

    queue       name of the queue; `default` by default
    delay       seconds until workers may run it; by default none
    eta         the time until which it waits, instead of `delay`: a datetime with a time zone
    priority    a lower number runs first; by default the creation time in Unix milliseconds
    attempts    the most deliveries, 5 by default; None: the setting of its queue
    backoff     pauses between attempts, a `Backoff` or its text; by default those of the queue, else from a second up
                to five minutes
    lease       seconds after which the task of a dead worker runs elsewhere, 60 by default. 0: it runs at most once
    ttl         seconds after which it is deleted, with all its attempts; by default seven days and twice its delay
    key         one task per queue and key: while the key is used, `add` returns the handle of the task that has it
    window      seconds for which a key is used; 0, the default: until its task is over. With `replace` the default is
                until its delay is over
    replace     True: replace a task with the same key that still waits for its delay. False by default
    replicate   number of copies, or "quorum"; by default the node chooses
    zones       number of zones with a copy; by default any number
    maxlen      refuse the task if its queue has this many jobs or more; by default there is no limit
    meta        names and values that travel with the job, four at most; none by default
    batch       name of the batch that it belongs to; groups set it
    """

    queue: str
    delay: Span
    eta: datetime
    priority: int
    attempts: int | None
    backoff: BackoffPolicy | None
    lease: Span
    ttl: Span
    key: str
    window: Span | None
    replace: bool
    replicate: int | Literal["quorum"]
    zones: int
    maxlen: int
    meta: Mapping[str, str]
    batch: str


NAMES: Final = frozenset(AddOptions.__annotations__)
# Options that `add_job` has under the same name.
_SAME: Final = ("priority", "attempts", "backoff", "key", "replace", "replicate", "zones", "maxlen", "meta", "batch")


def checked(options: AddOptions) -> AddOptions:
    """Return the options if they are valid. Raises TypeError for unknown names, ValueError for invalid values."""
    check_words(options, NAMES, "an option of tasks")
    if "delay" in options and "eta" in options:
        raise ValueError("a task has either a delay or an eta, not both")
    eta = options.get("eta")
    if eta is not None and eta.tzinfo is None:
        raise ValueError("eta needs a time zone, as in datetime.now(UTC)")
    for name, span in (("delay", options.get("delay")), ("lease", options.get("lease")), ("ttl", options.get("ttl"))):
        if span is not None and float_seconds(name, span) < 0:
            raise ValueError(f"{name} must not be negative")
    return options


def merged(first: AddOptions, second: AddOptions) -> AddOptions:
    """Return the options of both. Those of the second win, and a delay and an eta replace each other."""
    both: dict[str, Any] = {**first, **second}
    for name, other in (("delay", "eta"), ("eta", "delay")):
        if name in second and other not in second:
            both.pop(other, None)
    return both  # type: ignore[return-value]  # Both have known names only.


def arguments(options: AddOptions, now: datetime) -> dict[str, Any]:
    """Return the arguments of the client's `add_job`, except queue and body."""
    found: dict[str, Any] = {name: options[name] for name in _SAME if options.get(name) is not None}
    delay = _delay(options, now)
    if delay:
        found["delay"] = delay
    found["retry"] = milli(options.get("lease", LEASE_S))
    found["ttl"] = milli(options["ttl"]) if "ttl" in options else TTL + 2 * delay
    if "attempts" not in options:
        found["attempts"] = ATTEMPTS
    if "key" in options:
        # Without a window, the key of a task that may be replaced is used until its delay is over.
        window = options.get("window", None if options.get("replace") else 0)
        if window is not None:
            found["window"] = milli(window)
    return found


def _delay(options: AddOptions, now: datetime) -> timedelta:
    eta = options.get("eta")
    if eta is not None:
        return max(timedelta(), milli(eta - now))
    return milli(options.get("delay", 0))


def milli(span: Span) -> timedelta:
    """Return a span in whole milliseconds."""
    return timedelta(milliseconds=round(1000 * float_seconds("span", span)))
