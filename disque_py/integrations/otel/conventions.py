"""Names of OpenTelemetry's semantic conventions for messaging, version 1.44.

https://opentelemetry.io/docs/specs/semconv/messaging/ has them. They are in development, so they are copied here and
not imported from the package opentelemetry-semantic-conventions, where such names may move.
"""

from __future__ import annotations

from typing import Final

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"

SYSTEM: Final = "messaging.system"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
MESSAGE_ID: Final = "messaging.message.id"
BATCH_COUNT: Final = "messaging.batch.message_count"
ERROR_TYPE: Final = "error.type"

DISQUE: Final = "disque"

# Types of operations.
CREATE: Final = "create"
SEND: Final = "send"
RECEIVE: Final = "receive"
PROCESS: Final = "process"
SETTLE: Final = "settle"

# Metrics.
OPERATION_DURATION: Final = "messaging.client.operation.duration"
SENT: Final = "messaging.client.sent.messages"
CONSUMED: Final = "messaging.client.consumed.messages"
PROCESS_DURATION: Final = "messaging.process.duration"
# The buckets that the conventions recommend, in seconds.
BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
