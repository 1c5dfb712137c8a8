"""server/settings_effects.py: the effects of CONFIG SET on the process."""

from __future__ import annotations

import logging
import os
import resource

import pytest

from disque_py.config.settings import DirectiveError, Settings
from disque_py.server.settings_effects import apply


@pytest.fixture
def settings():
    return Settings()


def test_dir_changes_the_working_directory_and_becomes_absolute(settings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    settings.dir = "sub"
    apply("dir", settings)
    assert settings.dir == os.getcwd() == str(tmp_path / "sub")


def test_a_missing_directory_is_refused_with_the_error_of_the_system(settings, tmp_path):
    settings.dir = str(tmp_path / "nix")
    with pytest.raises(DirectiveError) as caught:
        apply("dir", settings)
    assert caught.value.text == "ERR Changing directory: No such file or directory"


def test_a_new_loglevel_takes_effect_immediately(settings):
    root = logging.getLogger()
    before = root.level
    settings.loglevel = "debug"
    apply("LogLevel", settings)
    assert root.level == logging.DEBUG
    root.setLevel(before)


def test_too_many_clients_are_refused_with_the_number_that_is_possible(settings):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    settings.maxclients = 2_000_000_000  # More than any kernel's fs.nr_open.
    with pytest.raises(DirectiveError) as caught:
        apply("maxclients", settings)
    text, _, possible = caught.value.text.rpartition(" ")
    assert text.endswith("is not able to handle the specified number of clients, try with")
    settings.maxclients = int(possible)
    apply("maxclients", settings)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(("given", "result"), [(0, 0), (1, 200), (500, 500)])
def test_a_watchdog_is_not_shorter_than_two_periods(settings, given, result):
    settings.watchdog_period = given
    apply("watchdog-period", settings)
    assert settings.watchdog_period == result


def test_most_directives_have_no_effect_on_the_process(settings):
    before = settings.maxmemory, os.getcwd(), logging.getLogger().level, resource.getrlimit(resource.RLIMIT_NOFILE)
    apply("maxmemory", settings)
    after = settings.maxmemory, os.getcwd(), logging.getLogger().level, resource.getrlimit(resource.RLIMIT_NOFILE)
    assert after == before
