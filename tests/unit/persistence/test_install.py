"""persistence/install.py: installs a whole journal or changes nothing."""

from __future__ import annotations

import os

import pytest

from made_journals import ME, WALL_MS
from persistence.files import Files, JournalInUseError
from persistence.install import Install, OccupiedError, free_name, has_journal, is_in_use
from persistence.new_journal import FreshJournal


def place(directory, **options) -> Install:
    with Install(str(directory), **options) as install:
        FreshJournal(install.folder, ME, WALL_MS).finish()
        install.commit()
    return install


def test_a_journal_comes_into_being_at_once(tmp_path):
    target = tmp_path / "disque.aof.d"
    with Install(str(target)) as install:
        FreshJournal(install.folder, ME, WALL_MS).finish()
        assert not target.exists()
        install.commit()
    assert has_journal(str(target))
    assert os.listdir(tmp_path) == ["disque.aof.d"]


def test_without_commit_nothing_is_left(tmp_path):
    with Install(str(tmp_path / "j")) as install:
        install.folder.create("0000000001.seg", b"")
    assert os.listdir(tmp_path) == []


def test_an_existing_journal_is_refused_or_moved_aside(tmp_path):
    target = tmp_path / "j"
    place(target)
    with pytest.raises(OccupiedError, match="--force"), Install(str(target)):
        pass
    assert place(target, moves_aside=True).moved_to == str(tmp_path / "j.old-1")
    assert place(target, moves_aside=True).moved_to == str(tmp_path / "j.old-2")
    assert sorted(os.listdir(tmp_path)) == ["j", "j.old-1", "j.old-2"]


def test_a_journal_in_use_is_left_alone(tmp_path):
    target = tmp_path / "j"
    place(target)
    assert not is_in_use(str(target))
    files = Files(str(target))
    assert is_in_use(str(target))
    with pytest.raises(JournalInUseError), Install(str(target), moves_aside=True):
        pass
    files.close()
    assert not is_in_use(str(target))


def test_a_directory_of_something_else_is_left_alone(tmp_path):
    """The operator has named the wrong directory."""
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a").touch()
    for moves_aside in (False, True):
        with (
            pytest.raises(OSError, match="not the directory of a journal"),
            Install(str(tmp_path / "letters"), moves_aside=moves_aside),
        ):
            pass
    assert (tmp_path / "letters" / "a").exists()


def test_a_journal_can_be_installed_into_an_empty_directory_or_beside_remains_of_a_node(tmp_path):
    target = tmp_path / "j"
    files = Files(str(target))
    files.allocate("reserve", 10)
    files.close()
    place(target)
    assert sorted(os.listdir(target)) == ["0000000001.seg", "lock"]


def test_remains_of_an_import_that_was_killed_are_cleared_away(tmp_path):
    (tmp_path / "j.new").mkdir()
    (tmp_path / "j.new" / "0000000007.seg").touch()
    place(tmp_path / "j")
    assert sorted(os.listdir(tmp_path / "j")) == ["0000000001.seg", "lock"]


def test_two_imports_into_one_place_do_not_disturb_each_other(tmp_path):
    with Install(str(tmp_path / "j")), pytest.raises(JournalInUseError), Install(str(tmp_path / "j")):
        pass


def test_a_directory_that_is_not_there_has_no_journal(tmp_path):
    assert not has_journal(str(tmp_path / "none"))
    assert not is_in_use(str(tmp_path / "none"))
    assert free_name(str(tmp_path / "none")).endswith("none.old-1")
