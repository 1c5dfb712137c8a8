"""PRIORITY, META and KEY: the words of ADDJOB that only some jobs have. Spec: queues.md, sections 1 to 3 and 9.

The handler itself is in jobs.py; what is read here ends as the job's traits (core/traits.py).
"""

from __future__ import annotations

from typing import Final

from disque_py.commands.options import read_integer
from disque_py.core.broker import Broker
from disque_py.core.errors import CommandError
from disque_py.core.traits import META_BYTES_MAX, Traits

WORDS: Final = frozenset((b"priority", b"meta", b"key"))
KEY_BYTES_MAX: Final = 1024

PRIORITY_ERROR: Final = "ERR PRIORITY must be a 64-bit integer"
META_ERROR: Final = "ERR syntax error: META needs a name and a value"
KEY_ERROR: Final = f"ERR KEY must have 1 to {KEY_BYTES_MAX} bytes"


class Adding:
    """What an ADDJOB has said of its traits so far; CommandError for what can't be.

    key   empty: none
    """

    __slots__ = ("_meta", "_pairs_max", "_priority", "key")

    def __init__(self, broker: Broker) -> None:
        self._pairs_max = broker.settings.job_meta_max_pairs
        self._priority: int | None = None
        self._meta: dict[bytes, bytes] = {}
        self.key = b""

    def read(self, option: bytes, argv: list[bytes], at: int) -> int:
        """Read the option at `at`; where the next one is. There is a word after it."""
        word = argv[at + 1]
        if option == b"priority":
            self._priority = read_integer(word or b"-", PRIORITY_ERROR)
        elif option == b"key":
            if not 0 < len(word) <= KEY_BYTES_MAX:
                raise CommandError(KEY_ERROR)
            self.key = word
        else:
            self._read_pair(argv, at)
            return at + 3
        return at + 2

    def _read_pair(self, argv: list[bytes], at: int) -> None:
        if at + 2 >= len(argv):
            raise CommandError(META_ERROR)
        name = argv[at + 1]
        meta = self._meta
        if not name:
            raise CommandError("ERR META needs a name that is not empty")
        if name in meta:
            raise CommandError("ERR META has the same name twice")
        if len(meta) >= self._pairs_max:
            raise CommandError(f"ERR META: at most {self._pairs_max} pairs per job (job-meta-max-pairs)")
        meta[name] = argv[at + 2]
        if sum(map(len, meta)) + sum(map(len, meta.values())) > META_BYTES_MAX:
            raise CommandError(f"ERR META: at most {META_BYTES_MAX} bytes per job")

    def traits(self) -> Traits | None:
        """The job's traits; None if it has none."""
        if self._priority is None and not self._meta and not self.key:
            return None
        pairs = tuple(word for pair in self._meta.items() for word in pair)
        return Traits(self._priority, pairs, is_keyed=bool(self.key))
