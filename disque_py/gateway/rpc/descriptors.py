"""The definitions, as classes of messages and names of methods, loaded when they are first needed."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

QUEUES: Final = "disque.v1.QueueService"
SCALER: Final = "externalscaler.ExternalScaler"


@cache
def pool() -> Any:
    """Return the pool with the definitions. It is the default pool, because reflection reads that one."""
    found = descriptor_pool.Default()
    definitions = descriptor_pb2.FileDescriptorSet.FromString(
        files("disque_py.gateway.rpc").joinpath("descriptors.binpb").read_bytes()
    )
    for each in definitions.file:
        found.AddSerializedFile(each.SerializeToString())
    return found


@cache
def message(name: str) -> Any:
    """Return the class of a message, by its name in disque.v1 or its full name."""
    full = name if "." in name else f"disque.v1.{name}"
    return message_factory.GetMessageClass(pool().FindMessageTypeByName(full))


def methods(service: str) -> list[Any]:
    """Return the descriptors of a service's methods."""
    return list(pool().FindServiceByName(service).methods)


def request_class(method: Any) -> Any:
    """Return the class of a method's request."""
    return message_factory.GetMessageClass(method.input_type)
