"""core/spilled.py: the value of a job's body while its bytes are in a file."""

from __future__ import annotations

import pytest

from disque_py.core.spilled import SPILLED_BYTES, Spilled, released, size_of
from spilled import BODY_BYTES, SpillingNode


@pytest.mark.parametrize("place", [(1, 0, 256), (77, (1 << 30) - 1, (1 << 30) - 1), (1 << 40, 5, 512 << 20)])
def test_a_place_has_three_parts(place):
    spilled = Spilled.at(*place)
    assert (spilled.file, spilled.offset, spilled.size) == place


def test_the_length_of_a_spilled_body_is_its_size_in_memory():
    assert len(Spilled.at(1, 2, 4096)) == SPILLED_BYTES
    assert Spilled.at(1, 0, 0)


def test_a_spilled_body_cannot_be_sent_by_mistake():
    with pytest.raises(TypeError):
        b"%b" % Spilled.at(1, 2, 3)


def test_the_real_size_is_that_of_the_body():
    assert (size_of(b"four"), size_of(Spilled.at(1, 2, 4096))) == (4, 4096)


def test_a_body_that_is_no_longer_needed_frees_its_place():
    node = SpillingNode()
    node.fill(30)
    broker = node.broker
    count, size = broker.memory.spilled_count, broker.spill.bytes_on_disk
    place = node.job(node.out()[0]).body
    assert released(broker, place) == BODY_BYTES
    assert (broker.memory.spilled_count, broker.spill.bytes_on_disk) == (count - 1, size - BODY_BYTES)
    assert broker.spill.released == [place]
