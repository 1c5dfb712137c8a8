"""values.py: times, pairs and settings on the command line."""

from __future__ import annotations

from datetime import timedelta

import click
import pytest

from disque_py.cli.admin.values import pairs_of, read_span, settings_of_words, span_text

CONTEXT, OPTION = click.Context(click.Command("x")), click.Option(["--delay"])


@pytest.mark.parametrize(
    ("text", "span"),
    [("90", timedelta(seconds=90)), ("500ms", timedelta(milliseconds=500)), ("2h", timedelta(hours=2)), (None, None)],
)
def test_a_time_has_a_unit_or_is_in_seconds(text, span):
    assert read_span(CONTEXT, OPTION, text) == span


@pytest.mark.parametrize("text", ["90s", "1500ms", "2h", "7d"])
def test_a_time_is_shown_as_it_is_written(text):
    span = read_span(CONTEXT, OPTION, text)
    assert span is not None
    assert span_text(span) == text


@pytest.mark.parametrize("text", ["", "5x", "-1s", "1.5h"])
def test_any_other_text_is_not_a_time(text):
    with pytest.raises(click.BadParameter, match="is not a time: write 500ms"):
        read_span(CONTEXT, OPTION, text)


def test_pairs_have_a_name_and_a_value():
    assert pairs_of(["a=b", "c=d=e", "f="], "--meta") == {"a": "b", "c": "d=e", "f": ""}
    for wrong in ("a", "=b"):
        with pytest.raises(click.UsageError, match="--meta takes NAME=VALUE"):
            pairs_of([wrong], "--meta")


def test_settings_come_with_or_without_an_equals_sign():
    assert settings_of_words(["a=1", "b", "2", "c="]) == ["a", "1", "b", "2", "c", ""]
    with pytest.raises(click.UsageError, match="'b' needs a value"):
        settings_of_words(["a=1", "b"])
