"""Cuts: the cut directions, the number of cuts, and their kinds."""

from __future__ import annotations

from disque_py.simulator.world.cuts import Cuts


def test_a_direction_is_open_when_every_cut_of_it_is_mended():
    cuts = Cuts()
    cuts.add("a", "b", silently=False)
    cuts.add("a", "b", silently=False)
    assert not cuts.remove("a", "b", silently=False)
    assert cuts.are_loud("b", "a")
    assert cuts.remove("a", "b", silently=False)
    assert not cuts.are_loud("a", "b")


def test_mending_what_is_not_cut_changes_nothing():
    cuts = Cuts()
    assert not cuts.remove("a", "b", silently=True)
    assert not cuts.are_silent("a", "b")


def test_a_silent_cut_is_not_a_loud_one():
    cuts = Cuts()
    cuts.add("a", "b", silently=True)
    assert (cuts.are_silent("b", "a"), cuts.are_loud("a", "b"), cuts.are_silent("a", "c")) == (True, False, False)


def test_clear_says_which_directions_were_silent():
    cuts = Cuts()
    cuts.add("a", "b", silently=True)
    cuts.add("b", "c", silently=False)
    assert cuts.clear() == [("a", "b")]
    assert not cuts.are_loud("b", "c")
    assert not cuts.are_silent("a", "b")
