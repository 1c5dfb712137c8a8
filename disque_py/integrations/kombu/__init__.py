"""The transport of kombu and Celery for `disque://` and `disques://` URLs.

    app = Celery("shop", broker="disque://:password@10.0.0.1:7711;disque://10.0.0.2:7711")

Importing this package makes the two schemes known to kombu. kombu imports it by itself when it loads its serializers,
because the package is an entry point of the group `kombu.serializers`. Celery always loads them. A program that uses
only `kombu.Connection` imports this package first, as `import disque_py.integrations.kombu`.

    transport.py   the classes that kombu calls
    courier.py     a thread that talks to the nodes
    urls.py        URLs and options
    wire.py        messages as jobs, and jobs as messages
    bindings.py    queues of exchanges, shared among programs
"""

from __future__ import annotations

from typing import Final

from kombu.transport import TRANSPORT_ALIASES

from disque_py.integrations.kombu.wire import CONTENT_TYPE, dump, load

TRANSPORT_ALIASES["disque"] = "disque_py.integrations.kombu.transport:Transport"
TRANSPORT_ALIASES["disques"] = "disque_py.integrations.kombu.transport:Transport"

# The arguments of kombu's `register`, for the entry point. kombu disables no serializer of an entry point, so this one
# is JSON under a name of its own.
SERIALIZER: Final = (dump, load, CONTENT_TYPE, "utf-8")
