"""Many commands as one: what was answered, what goes out again, in rounds.

A pipeline breaks in the middle: some commands were answered, some may have been executed, some
never left. This is the bookkeeping of it, shared by the asyncio and the blocking client, which do
the sending. Pure. Results keep the order of the commands whatever happens.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from disque_py.client.errors import ConnectionLostError, DisqueConnectionError, NotConnectedError
from disque_py.client.protocol import Reply
from disque_py.client.request import Repeat
from disque_py.client.retry import is_refused_for_now, may_repeat

# One write of a pipeline. Large enough that the system call does not matter, small enough to keep memory flat.
CHUNK_COMMANDS: Final = 256
CHUNK_BYTES: Final = 128 * 1024


class Bulk:
    """Commands on their way.

    replies           per command the reply, or the error that took its place
    getjobs           the places of commands that take jobs
    awaiting_nodes    the places of commands that wait for missing nodes
    wants_elsewhere   the last round met a node that wants us to go elsewhere
    made_progress     …and it answered something for good
    """

    def __init__(
        self,
        payloads: Sequence[bytes],
        repeats: Sequence[Repeat],
        *,
        retry_unsafe: bool,
        getjobs: Sequence[int] = (),
        awaiting_nodes: Collection[int] = (),
    ) -> None:
        self.replies: list[Reply] = [None] * len(payloads)
        self.getjobs = getjobs
        self._awaiting_nodes = awaiting_nodes
        self.wants_elsewhere = False
        self.made_progress = False
        self._payloads = payloads
        self._repeats = repeats
        self._retry_unsafe = retry_unsafe
        self._todo: Sequence[int] = range(len(payloads))

    @property
    def is_done(self) -> bool:
        """Whether no command is left that may be sent."""
        return not self._todo

    def chunks(self) -> Iterator[tuple[bytes, int]]:
        """What has to be sent in this round: bytes and the number of commands in them."""
        part: list[bytes] = []
        size = 0
        for index in self._todo:
            payload = self._payloads[index]
            part.append(payload)
            size += len(payload)
            if len(part) >= CHUNK_COMMANDS or size >= CHUNK_BYTES:
                yield b"".join(part), len(part)
                part = []
                size = 0
        if part:
            yield b"".join(part), len(part)

    def heard(self, replies: Sequence[Reply], sent_count: int, error: DisqueConnectionError | None) -> None:
        """A round is over: the first `sent_count` commands may have been executed, `replies` are the answers that came.

        `error` says why there are fewer than commands. What may go out again makes the next round.
        """
        self.wants_elsewhere = False
        self.made_progress = False
        again: list[int] = []
        for position, index in enumerate(self._todo):
            if position < len(replies):
                reply = self.replies[index] = replies[position]
                if is_refused_for_now(reply, awaits_nodes=index in self._awaiting_nodes):
                    self.wants_elsewhere = True
                    again.append(index)
                else:
                    self.made_progress = True
                continue
            failure = self.replies[index] = _failure(error, sent=position < sent_count)
            if may_repeat(failure, self._repeats[index], retry_unsafe=self._retry_unsafe):
                again.append(index)
        self._todo = again


def _failure(error: DisqueConnectionError | None, *, sent: bool) -> DisqueConnectionError:
    if isinstance(error, NotConnectedError) and not sent:
        return error
    kind = type(error) if isinstance(error, ConnectionLostError) else ConnectionLostError
    return kind(str(error or "the answer never came"), sent=sent)
