"""The result backend of Dramatiq: one slot per message (result_slots.py).

Readers wait on the nodes and need not poll.
"""

from __future__ import annotations

from typing import Any

from dramatiq.encoder import Encoder
from dramatiq.results.backend import DEFAULT_TIMEOUT, Missing, ResultBackend
from dramatiq.results.errors import ResultMissing, ResultTimeout

from disque_py.client.processes import ProcessClient
from disque_py.integrations.result_slots import ResultSlots


class DisqueBackend(ResultBackend):
    """A result backend of Dramatiq. The first result of a message counts.

    url         URL of the nodes; by default disque://127.0.0.1:7711
    namespace   name of the queue that has the results, "dramatiq-results" by default
    encoder     Dramatiq's encoder of results; by default the global one
    """

    def __init__(
        self,
        *,
        url: str = "disque://127.0.0.1:7711",
        namespace: str = "dramatiq-results",
        encoder: Encoder | None = None,
    ) -> None:
        super().__init__(namespace=namespace, encoder=encoder)
        self._client = ProcessClient(url, "dramatiq-results")
        self._found: ResultSlots | None = None

    def _slots(self) -> ResultSlots:
        client = self._client()  # A forked child has another client.
        if self._found is None or self._found.client is not client:
            self._found = ResultSlots(client, self.namespace)
        return self._found

    def get_result(self, message: Any, *, block: bool = False, timeout: int | None = None) -> Any:
        """Return the result of a message.

        message   the message
        block     True: wait for it. False by default: the result must exist
        timeout   milliseconds to wait, 10,000 by default

        Raises ResultMissing, ResultTimeout; ResultFailure if the message failed.
        """
        key = self.build_message_key(message)
        if not block:
            found = self._get(key)
            if found is Missing:
                raise ResultMissing(message)
            return self.unwrap_result(found)
        data = self._slots().wait(key, (DEFAULT_TIMEOUT if timeout is None else timeout) / 1000)
        if data is None:
            raise ResultTimeout(message)
        return self.unwrap_result(self.encoder.decode(data))

    def _get(self, message_key: str) -> Any:
        data = self._slots().get(message_key)
        return Missing if data is None else self.encoder.decode(data)

    def _store(self, message_key: str, result: Any, ttl: int) -> None:
        self._slots().put(message_key, self.encoder.encode(result), ttl)

    def close(self) -> None:
        """Close the connections of this process."""
        self._client.close()
