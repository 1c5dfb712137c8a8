"""The progress of many commands that are sent together, in rounds.

A pipeline may break in the middle. Then some commands were answered, some may have been executed, and some never left.
This module keeps track of them and decides which ones go out in the next round. The asyncio and the blocking client
share it and do the sending. Results always keep the order of the commands. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from disque_py.client.errors import (
    ConnectionLostError,
    DisqueConnectionError,
    DisqueError,
    NotConnectedError,
    ends_connection,
)
from disque_py.client.protocol import Reply
from disque_py.client.request import Repeat
from disque_py.client.retry import is_full, is_refused_for_now, may_repeat, means_elsewhere

# Limits of one write of a pipeline: large enough to make the system call cheap, small enough to keep memory use flat.
CHUNK_COMMANDS: Final = 256
CHUNK_BYTES: Final = 128 * 1024


class Bulk:
    """Commands that are being sent.

    replies           per command the reply, or the error in its place
    getjobs           the indexes of commands whose jobs are put back if the caller is cancelled
    awaiting_nodes    the indexes of commands that wait for missing nodes
    movable           the indexes of commands that another node may execute if a node's memory or disk is full
    refusal           the reply with which the node of the last round refused commands for now; None if it refused none
    made_progress     the last round answered at least one command for good
    """

    def __init__(
        self,
        payloads: Sequence[bytes],
        repeats: Sequence[Repeat],
        *,
        retry_unsafe: bool,
        getjobs: Sequence[int] = (),
        awaiting_nodes: Collection[int] = (),
        movable: Collection[int] = (),
    ) -> None:
        self.replies: list[Reply] = [None] * len(payloads)
        self.getjobs = getjobs
        self._awaiting_nodes = awaiting_nodes
        self._movable = movable
        self._full: list[int] = []
        self.refusal: Reply = None
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
        """Yield the writes of this round: bytes, and the number of commands in them."""
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

    def end_round(self, replies: Sequence[Reply], sent_count: int, error: DisqueConnectionError | None) -> None:
        """End a round: the first `sent_count` commands may have been executed, and `replies` arrived.

        `error` is the reason why there are fewer replies than commands. Commands that may be repeated form the next
        round.
        """
        self.refusal = None
        self.made_progress = False
        self._full = []
        again: list[int] = []
        for position, index in enumerate(self._todo):
            if position < len(replies):
                reply = self.replies[index] = replies[position]
                if is_refused_for_now(reply, awaits_nodes=index in self._awaiting_nodes):
                    if self.refusal is None or means_elsewhere(reply):
                        self.refusal = reply
                    again.append(index)
                elif index in self._movable and is_full(reply):
                    self._full.append(index)
                elif not ends_connection(reply):  # Else many commands that are too long would take for ever.
                    self.made_progress = True
                continue
            failure = self.replies[index] = _failure(error, sent=position < sent_count)
            if may_repeat(failure, self._repeats[index], retry_unsafe=self._retry_unsafe):
                again.append(index)
        self._todo = again

    def refuse(self, error: DisqueError) -> None:
        """Give the commands that are left this error. They are not sent, because every node refuses the login."""
        for index in self._todo:
            self.replies[index] = error

    @property
    def met_full(self) -> bool:
        """Whether the node of the last round refused commands that another node may execute, because it is full."""
        return bool(self._full)

    def repeat_full(self) -> None:
        """Send these commands again in the next round, because another node is left to be asked."""
        self.refusal = self.refusal or self.replies[self._full[0]]
        self._todo = sorted([*self._todo, *self._full])
        self._full = []


def _failure(error: DisqueConnectionError | None, *, sent: bool) -> DisqueConnectionError:
    if isinstance(error, NotConnectedError) and not sent:
        return error
    kind = type(error) if isinstance(error, ConnectionLostError) else ConnectionLostError
    return kind(str(error or "the answer never came"), sent=sent)
