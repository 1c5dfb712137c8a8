"""Make descriptors.binpb of the gateway's definitions: `python tests/house/rewrite_descriptors.py`, with grpcio-tools.

The file is the output of a compiler of protocol buffers. Unlike generated modules, it works with every release of the
runtime. test_descriptors.py compares names, and the bytes if grpcio-tools is installed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "disque_py/gateway/rpc/proto"
MADE = ROOT / "disque_py/gateway/rpc/descriptors.binpb"
FILES = ("disque/v1/queues.proto", "externalscaler/externalscaler.proto")


def made() -> bytes:
    """Return the compiled definitions. Raises ModuleNotFoundError without grpcio-tools."""
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        status = protoc.main(["protoc", f"-I{PROTO}", f"--descriptor_set_out={out}", *FILES])
        assert status == 0
        return out.read_bytes()


if __name__ == "__main__":
    MADE.write_bytes(made())
