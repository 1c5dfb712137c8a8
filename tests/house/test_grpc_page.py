"""docs/grpc.md names every call, and the scaler's words."""

from __future__ import annotations

import re

from rewrite_gateway_page import ROOT

PAGE = (ROOT / "docs/grpc.md").read_text(encoding="utf-8")
PROTO = ROOT / "disque_py/gateway/rpc/proto/disque/v1/queues.proto"


def test_every_call_is_in_the_table():
    calls = re.findall(r"^  rpc (\w+)", PROTO.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(calls) > 10
    assert [call for call in calls if f"`{call}`" not in PAGE] == []


def test_every_word_of_a_trigger_is_explained():
    source = (ROOT / "disque_py/gateway/rpc/scaler.py").read_text(encoding="utf-8")
    words = set(re.findall(r'words(?:\.get\(|\[)"(\w+)"', source)) | {
        "jobsPerReplica",
        "oldestAgeSeconds",
        "activation",
    }
    assert [word for word in sorted(words) if f"`{word}`" not in PAGE] == []
