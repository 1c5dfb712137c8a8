"""The compiled definitions are those of the files, and their names obey the rules of buf's linter."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from disque_py.gateway.rpc.descriptors import QUEUES, SCALER, message, methods, request_class

RPC = Path(__file__).resolve().parents[2] / "disque_py/gateway/rpc"
TEXT = (RPC / "proto/disque/v1/queues.proto").read_text(encoding="utf-8")


def test_the_compiled_definitions_have_what_the_file_has():
    """After a change of the file, run python tests/house/rewrite_descriptors.py."""
    assert [method.name for method in methods(QUEUES)] == re.findall(r"^  rpc (\w+)", TEXT, re.MULTILINE)
    without_nested = re.sub(r"^  message .*?^  \}\n", "", TEXT, flags=re.MULTILINE | re.DOTALL)
    for name, body in re.findall(r"^message (\w+) \{\n(.*?)^\}", without_nested, re.MULTILINE | re.DOTALL):
        fields = re.findall(r"^  (?:optional |repeated )?[\w<>,. ]*\b(\w+) = (\d+);", body, re.MULTILINE)
        found = [(each.name, str(each.number)) for each in message(name).DESCRIPTOR.fields]
        assert sorted(found) == sorted(fields), name


@pytest.mark.skipif(importlib.util.find_spec("grpc_tools") is None, reason="grpcio-tools is not installed")
def test_the_compiled_definitions_are_those_of_the_files():
    from rewrite_descriptors import MADE, made

    def read(data):
        return [
            each.SerializeToString(deterministic=True)
            for each in descriptor_pb2.FileDescriptorSet.FromString(data).file
        ]

    assert read(MADE.read_bytes()) == read(made())


def test_requests_and_responses_have_the_names_of_their_calls():
    for method in methods(QUEUES):
        assert (method.input_type.name, method.output_type.name) == (f"{method.name}Request", f"{method.name}Response")
        assert request_class(method).DESCRIPTOR is method.input_type


def test_names_are_those_of_the_style_guide():
    assert QUEUES.endswith("Service")
    enum = message("Message").DESCRIPTOR.fields_by_name["state"].enum_type
    assert all(value.name.startswith("MESSAGE_STATE_") for value in enum.values)
    assert enum.values[0].name == "MESSAGE_STATE_UNSPECIFIED"
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in re.findall(r"(\w+) = \d+;", TEXT) if name.islower())


def test_kedas_calls_are_there():
    assert {method.name for method in methods(SCALER)} == {"IsActive", "StreamIsActive", "GetMetricSpec", "GetMetrics"}
