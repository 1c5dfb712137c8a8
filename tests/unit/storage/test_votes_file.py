"""storage/votes_file.py: the items that count."""

from __future__ import annotations

from disque_py.core.voter_memory import FLOOR, FORGOTTEN, GRANT, MEMORY
from disque_py.storage.framed_file import frame
from disque_py.storage.votes_file import VOTES

GRANTED = (b"k", b"h", 5, 100, 5, 0, 0, 0, 0, True, False)


def test_a_rewritten_file_has_the_last_of_each_kind_and_key():
    """Spec CL3."""
    items = [(MEMORY, b"m" * 16), (GRANT, (*GRANTED[:2], 3, *GRANTED[3:])), (GRANT, GRANTED)]
    kept = VOTES.parse(VOTES.rewritten(items)).items
    assert [item[1][:3] for item in kept if item[0] == GRANT] == [[b"k", b"h", 5]]
    assert [item[1] for item in kept if item[0] == MEMORY] == [b"m" * 16]


def test_a_forgotten_key_leaves_its_floor():
    """Spec CL10."""
    kept = VOTES.parse(VOTES.rewritten([(GRANT, GRANTED), (FORGOTTEN, b"k")])).items
    assert not [item for item in kept if item[0] == GRANT]
    assert (FLOOR, 5) in kept


def test_items_of_newer_versions_stay_in_an_appended_file():
    data = VOTES.head + frame([(99, b"new"), (FLOOR, 7)])
    assert VOTES.parse(data).items == [(99, b"new"), (FLOOR, 7)]
