"""The comparison of two versions: the ratios of their figures, and versions that can't be run."""

from __future__ import annotations

from compare import CANNOT_RUN, main, ratios


def test_the_ratio_is_the_median_over_the_rounds():
    """Each round has its own ratio, because a slow machine affects both versions of a round."""
    (found,) = ratios(
        [
            ({"ADDJOB": 10.0}, {"ADDJOB": 11.0}),
            ({"ADDJOB": 20.0}, {"ADDJOB": 20.0}),
            ({"ADDJOB": 40.0}, {"ADDJOB": 42.0}),
        ]
    )
    assert (found.median, found.lowest, found.highest) == (1.05, 1.0, 1.1)
    assert (found.before, found.now) == (20.0, 20.0)


def test_a_row_that_one_version_does_not_have_is_left_out():
    assert [each.row for each in ratios([({"a": 1.0, "b": 1.0}, {"a": 2.0, "c": 1.0})])] == ["a"]


def test_a_version_compared_with_itself_passes(capfd):
    """The test is one small round. Figures of so few jobs may differ by a factor of two."""
    assert main(["-", "-", "--rounds", "1", "--quick", "--jobs", "200", "--most", "5"]) == 0
    assert "ADDJOB, one node" in capfd.readouterr().out


def test_a_revision_that_git_does_not_have_is_reported(capsys):
    assert main(["no-such-revision"]) == CANNOT_RUN
    assert "git has no revision no-such-revision" in capsys.readouterr().err
