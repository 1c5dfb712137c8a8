"""The callback of a batch: a job that is added when the batch is done.

The node itself runs an ADDJOB with a KEY. So if several nodes add the callback at the same time, they make one job. The
reply is released when the job's record is safe, like the reply to any client. Then the job's id becomes part of the
batch's shared state, so that no node adds the callback again. A refused ADDJOB is repeated. Spec BT4.
"""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from typing import Final

from disque_py.core import keeping, own_addjob
from disque_py.core.batch_state import CALLBACK_BODY, CALLBACK_ID, CALLBACK_QUEUE, MADE, Batch
from disque_py.core.broker import Broker
from disque_py.core.keys import KEY_BYTES_MAX
from disque_py.log_lines import tell

CALLBACK_RETRY_MS: Final = 1_000
CALLBACK_ADD_MS: Final = b"5000"
CALLBACK_KEY: Final = b"x-disque-batch:"
META_BATCH: Final = b"x-disque-batch"


def call_back(broker: Broker) -> None:
    """Add the callbacks that are due, each by an ADDJOB as if a client had sent it."""
    batches = broker.batches
    for name, (at_ms, was_refused) in list(batches.callbacks.items()):
        batch = batches.by_name.get(name)
        if batch is None or CALLBACK_QUEUE not in batch.fields or CALLBACK_ID in batch.fields:
            del batches.callbacks[name]
        elif at_ms <= broker.now_ms:
            batches.callbacks[name] = broker.now_ms + 10 * CALLBACK_RETRY_MS, was_refused
            _add(broker, batch)


def _add(broker: Broker, batch: Batch) -> None:
    queue, body = batch.fields[CALLBACK_QUEUE], batch.fields.get(CALLBACK_BODY, b"")
    argv = [b"ADDJOB", queue, body, CALLBACK_ADD_MS, b"KEY", _key_of(batch), b"META", META_BATCH, batch.name]
    broker.batches.clients[batch.name] = own_addjob.add(broker, argv, partial(_called_back, broker, batch.name))


def _key_of(batch: Batch) -> bytes:
    key = b"%b%b:%b" % (CALLBACK_KEY, batch.fields[MADE], batch.name)
    if len(key) <= KEY_BYTES_MAX:
        return key
    # A digest stands for a long name.
    return b"%b%b:%b" % (CALLBACK_KEY, batch.fields[MADE], sha256(batch.name).digest())


def _called_back(broker: Broker, name: bytes, reply: bytes) -> None:
    """Note the callback's job, or try again later."""
    batches = broker.batches
    batches.clients.pop(name, None)
    batch = batches.by_name.get(name)
    if batch is None or not batch.is_known:
        return
    if reply.startswith(b"+"):
        batches.callbacks.pop(name, None)
        keeping.change(broker, batch, [(CALLBACK_ID, reply[1:-2])])
    else:
        _, was_refused = batches.callbacks.get(name, (0, False))
        batches.callbacks[name] = broker.now_ms + CALLBACK_RETRY_MS, True
        if not was_refused:  # Log it once.
            queue = batch.fields.get(CALLBACK_QUEUE, b"")
            texts = [text.decode("utf-8", "replace") for text in (name, queue, reply[1:-2])]
            tell(broker.host, "callback-failed", batch=texts[0], queue=texts[1], reason=texts[2])
