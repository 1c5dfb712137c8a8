"""Messages as bytes: runs joined into frames, and a decoder that trusts nothing.

    frame   = length (u32: bytes that follow) | version (u8) | crc32 of the payload (u32) | payload
    payload = msgpack array of runs; a run is the array [kind, item, item, ...]

On links of version 3, runs of some kinds are packed by position (columns.py). The decoder returns them in their plain
form, so no other code knows of the packing.

All integers are big-endian. A run is packed once, however many nodes get it: `frame` only joins packed runs behind an
array header. Version 0 marks the two frames of the link handshake, which nodes of every version can read. After the
handshake a link carries the version that both ends agreed on.

The decoder takes bytes in pieces of any size. It raises FrameError at the first error that a node of ours would not
make. Then the link is closed, because the start of the next frame can't be trusted. A declared length is bounded before
anything is buffered for it.

docs/bus.md describes these bytes for people. tests/unit/cluster_bus/test_codec.py checks that they don't change.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]  # It ships no types.

from cluster_bus import columns
from cluster_bus.columns import COLUMNS_VERSION, PACKED
from cluster_bus.decode_limit import has_few_objects

PROTOCOL_MIN: Final = 1
PROTOCOL_MAX: Final = 5
HANDSHAKE_VERSION: Final = 0

# A job's body may have 64 MiB by default (`proto-max-bulk-len`). The slack is for the job around it.
FRAME_BYTES_MAX: Final = (64 << 20) + (1 << 20)

# msgpack allocates an array from its declared count before it reads the items: eight bytes each. So a run has at most
# this many items, and `encode_runs` splits longer ones.
RUN_ITEMS_MAX: Final = 1 << 12
# A frame is handled in one step. A longer frame has a single run, because a node starts a new frame well below this
# size.
RUNS_BYTES_MAX: Final = 256 << 10
# Longer payloads are scanned before they are decoded (decode_limit.py).
UNCHECKED_BYTES_MAX: Final = 1 << 20
# A Packer keeps the memory of the longest run that it has packed. After a longer one than this it is replaced.
_PACKER_BYTES_MAX: Final = 1 << 20
_MAP_FIELDS_MAX: Final = 1024
_STR_BYTES_MAX: Final = 4096

Run = list[Any]

_ONE_RUN = 0x91  # msgpack: an array of one.
_HEADER = struct.Struct(">IBI")
# To make a Packer for each run, as `msgpack.packb` does, takes twice as long as packing a short run.
_packer = msgpack.Packer()
_LENGTH_BYTES: Final = 4
_AFTER_LENGTH_BYTES: Final = _HEADER.size - _LENGTH_BYTES
# With less data than this behind an open frame, moving the rest to the front saves nothing.
_COMPACT_BYTES: Final = 64 << 10
# A payload this small is copied: that is quicker than two views of the buffer.
_COPY_BYTES: Final = 8 << 10


class FrameError(ValueError):
    """Bytes that a node would not send. `reason` is short and fixed, for counting; `detail` is for people."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


def common_version(versions: tuple[int, int], ours: tuple[int, int] = (PROTOCOL_MIN, PROTOCOL_MAX)) -> int:
    """Return the highest version that we and a node with this (lowest, highest) speak; 0 if there is none."""
    low, high = max(ours[0], versions[0]), min(ours[1], versions[1])
    return high if low <= high else 0


def encode_run(kind: int, items: Sequence[Any], version: int = PROTOCOL_MIN) -> bytes:
    """Return one packed run. For more than RUN_ITEMS_MAX items, or very large ones, see `encode_runs`."""
    if version >= COLUMNS_VERSION and kind in columns.KINDS:
        groups = columns.pack(kind, items)
        if groups is not None:
            return _packed([kind + PACKED, *groups])
    return _packed([kind, *items])


def _packed(run: Run) -> bytes:
    global _packer
    packed: bytes = _packer.pack(run)
    if len(packed) > _PACKER_BYTES_MAX:
        _packer = msgpack.Packer()
    return packed


def encode_runs(
    kind: int, items: Sequence[Any], version: int = PROTOCOL_MIN, bytes_max: int = FRAME_BYTES_MAX // 2
) -> list[bytes]:
    """Pack the items as one run, or as several if one would have more than `bytes_max` bytes.

    A single item above the limit becomes a run of its own. Whether it may travel was decided when the job was
    accepted.
    """
    if len(items) < RUN_ITEMS_MAX:
        packed = encode_run(kind, items, version)
        if len(packed) <= bytes_max or len(items) == 1:
            return [packed]
    half = len(items) // 2
    return encode_runs(kind, items[:half], version, bytes_max) + encode_runs(kind, items[half:], version, bytes_max)


def frame(version: int, runs: Sequence[bytes]) -> bytes:
    """Return one frame of packed runs, in this order."""
    count = len(runs)
    if count < 16:
        head = bytes((0x90 | count,))
    elif count < 1 << 16:
        head = b"\xdc" + count.to_bytes(2, "big")
    else:
        head = b"\xdd" + count.to_bytes(4, "big")
    payload = b"".join((head, *runs))
    return _HEADER.pack(_AFTER_LENGTH_BYTES + len(payload), version, zlib.crc32(payload)) + payload


def frames(version: int, runs: Sequence[bytes], bytes_max: int = FRAME_BYTES_MAX) -> list[bytes]:
    """Return the fewest frames that hold these runs. Only a single large run makes a payload above `bytes_max`."""
    result: list[bytes] = []
    start, size = 0, 5
    for at, run in enumerate(runs):
        if (size + len(run) > bytes_max and at > start) or at - start >= RUN_ITEMS_MAX:
            result.append(frame(version, runs[start:at]))
            start, size = at, 5
        size += len(run)
    if start < len(runs):
        result.append(frame(version, runs[start:]))
    return result


def without_large(data: bytes, bytes_max: int) -> bytes:
    """Return `data`, one or more whole frames, without frames whose payload is longer than `bytes_max`."""
    kept, at = [], 0
    while at < len(data):
        end = at + _LENGTH_BYTES + int.from_bytes(data[at : at + _LENGTH_BYTES], "big")
        if end - at - _HEADER.size <= bytes_max:
            kept.append(data[at:end])
        at = end
    return b"".join(kept)


def _refuse_extension(code: int, data: bytes) -> Any:
    raise ValueError(f"extension type {code}")


def _decode(payload: bytearray | memoryview) -> list[Run]:
    try:
        runs = msgpack.unpackb(
            payload,
            raw=False,
            use_list=True,
            strict_map_key=True,
            ext_hook=_refuse_extension,
            max_array_len=min(len(payload), RUN_ITEMS_MAX),
            max_map_len=_MAP_FIELDS_MAX,
            max_str_len=_STR_BYTES_MAX,
            max_bin_len=len(payload),
            max_ext_len=0,
        )
    except (ValueError, TypeError, RecursionError) as error:  # msgpack's own errors are ValueErrors, as is bad UTF-8
        raise FrameError("bad msgpack", str(error) or type(error).__name__) from None
    if type(runs) is not list:
        raise FrameError("bad shape", "the payload is not an array")
    for run in runs:
        if type(run) is not list or not run or type(run[0]) is not int or run[0] <= 0:
            raise FrameError("bad shape", "a run is not an array that starts with its kind")
    return runs


def _unpack(run: Run) -> Run:
    """Return a packed run in its plain form."""
    kind = run[0] - PACKED
    try:
        return [kind, *columns.unpack(kind, run[1:])]
    except (ValueError, TypeError, LookupError, OverflowError, struct.error) as error:  # A map in a group: KeyError.
        raise FrameError("bad shape", f"packed run: {error}") from None


def _check_long(payload: memoryview) -> None:
    """Refuse a long frame that is not a single run of few values: only a job's body makes an honest frame that long."""
    if payload[0] != _ONE_RUN:
        raise FrameError("bad shape", f"{len(payload)} bytes with more than one run")
    if len(payload) > UNCHECKED_BYTES_MAX and not has_few_objects(payload):
        raise FrameError("bad shape", f"{len(payload)} bytes of too many values")


class Decoder:
    """Bytes in, frames out. One per connection; dead after its first FrameError.

    versions     lowest and highest version accepted; the link narrows it when its handshake is over
    bytes_max    longest payload accepted; likewise
    """

    __slots__ = ("_at", "_buffer", "bytes_max", "versions")

    def __init__(
        self, bytes_max: int = FRAME_BYTES_MAX, versions: tuple[int, int] = (PROTOCOL_MIN, PROTOCOL_MAX)
    ) -> None:
        self.bytes_max = bytes_max
        self.versions = versions
        self._buffer = bytearray()
        self._at = 0  # Start of the next frame. Moving the rest forward does not pay for small frames.

    @property
    def buffered_bytes(self) -> int:
        """Return how many bytes were written and not yet returned as frames."""
        return len(self._buffer) - self._at

    def feed(self, data: bytes) -> list[list[Run]]:
        """Add bytes and return every frame that is complete now, each a list of runs; FrameError."""
        self.write(data)
        result = []
        while (runs := self.next_frame()) is not None:
            result.append(runs)
        return result

    def write(self, data: bytes) -> None:
        """Add bytes without decoding; see `next_frame`."""
        if self._at:
            del self._buffer[: self._at]  # A bytearray drops its front without moving the rest.
            self._at = 0
        self._buffer += data

    def next_frame(self) -> list[Run] | None:
        """Return the next complete frame as a list of runs, None if more bytes are needed; FrameError."""
        buffer, at = self._buffer, self._at
        have = len(buffer) - at
        if have < _HEADER.size:
            self._check_early(buffer[at:])
            return None
        length, version, crc = _HEADER.unpack_from(buffer, at)
        self._check(length, version)
        end = at + _LENGTH_BYTES + length
        if len(buffer) < end:
            return None
        if length < _COPY_BYTES:
            payload = buffer[at + _HEADER.size : end]
            if zlib.crc32(payload) != crc:
                raise FrameError("bad crc")
            runs = _decode(payload)
        else:
            with memoryview(buffer) as view, view[at + _HEADER.size : end] as part:
                if zlib.crc32(part) != crc:
                    raise FrameError("bad crc")
                if length > RUNS_BYTES_MAX:
                    _check_long(part)
                runs = _decode(part)
        if version >= COLUMNS_VERSION:
            for at, run in enumerate(runs):
                if run[0] - PACKED in columns.KINDS:
                    runs[at] = _unpack(run)
        self._at = end
        if end == len(buffer) or end > _COMPACT_BYTES:
            del buffer[:end]
            self._at = 0
        return runs

    def _check(self, length: int, version: int) -> None:
        if not _AFTER_LENGTH_BYTES < length <= _AFTER_LENGTH_BYTES + self.bytes_max:
            raise FrameError("bad length", f"{length} bytes declared, at most {self.bytes_max} expected")
        if not self.versions[0] <= version <= self.versions[1]:
            raise FrameError("bad version", f"version {version}")

    def _check_early(self, head: bytearray) -> None:
        """Check a header that is not complete yet, so that a stranger's gibberish does not make us wait for more."""
        if len(head) >= _LENGTH_BYTES:
            version = head[_LENGTH_BYTES] if len(head) > _LENGTH_BYTES else self.versions[0]
            self._check(int.from_bytes(head[:_LENGTH_BYTES], "big"), version)
