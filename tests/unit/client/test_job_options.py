"""job_options.py: the options of jobs, defined once."""

from __future__ import annotations

import inspect

import pytest

from disque_py.client import Disque
from disque_py.client.fetch_commands import get_jobs
from disque_py.client.job_options import AddOptions, FetchOptions, add_options


def keywords(function):
    """Return the names and types of the keyword parameters."""
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.annotation for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}


def fields(options):
    """Return the names and types in a typed dictionary."""
    return {name: each.__forward_arg__ for name, each in options.__annotations__.items()}


def test_the_words_of_options_match_the_typed_options():
    """A name that is missing in one place would be refused, or never suggested."""
    assert keywords(add_options) == fields(AddOptions)
    assert fields(FetchOptions).items() <= keywords(get_jobs).items()


def test_options_become_words():
    """Spans have units. With None the node chooses the value."""
    assert add_options(retry=2, ttl=None, async_=True, meta={"a": "b"}) == (
        b"RETRY",
        b"2",
        b"ASYNC",
        b"META",
        b"a",
        b"b",
    )


@pytest.mark.plain
@pytest.mark.parametrize("method", [Disque.add_job, Disque.publish, Disque.schedule, Disque.add_jobs, Disque.get_job])
def test_a_method_shows_each_option_and_refuses_others(method):
    """`help` shows names, types and defaults as for parameters that are written out."""
    shown = inspect.signature(method).parameters
    assert {"delay", "node"} & set(shown)
    assert not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in shown.values())


def test_an_unknown_option_is_a_type_error():
    with pytest.raises(TypeError, match="rety"):
        add_options(rety=1)


@pytest.mark.parametrize(
    ("command", "wrong", "meant"),
    [
        ("add_job", "rety", "retry"),
        ("add_job", "retries", "attempts"),
        ("add_job", "timeout", "timeout_ms"),
        ("add_job", "start", ""),
        ("publish", "dealy", "delay"),
        ("add_jobs", "dealy", "delay"),
        ("schedule", "dealy", "delay"),
    ],
)
def test_an_unknown_option_names_the_command_and_the_similar_option(command, wrong, meant):
    """Not the function behind it."""
    arguments = {"add_jobs": ("q", [b""]), "schedule": ("s", "q", b"")}.get(command, ("q", b""))
    more = {"cron": "* * * * *"} if command == "schedule" else {}
    with pytest.raises(TypeError) as caught:
        getattr(Disque("127.0.0.1:1"), command)(*arguments, **more, **{wrong: 1})
    hint = f"; did you mean {meant!r}?" if meant else ""
    assert str(caught.value).startswith(f"{wrong!r} is not an option of {command}{hint}")
