"""backups.py: gathering backups, and restoring one for a node. Both are done completely or not at all."""

from __future__ import annotations

import os
import tarfile
from zlib import crc32

import pytest

from cluster_bus.nodes_file import parse
from cluster_bus.nodes_store import NodesFileStore
from disque_py.cli.address import Target
from disque_py.cli.cluster import backups
from disque_py.cli.cluster.backups import (
    BackupError,
    gather,
    make,
    opened,
    refuse_foreign,
    refuse_occupied,
    refuse_unreadable,
    restore,
)
from disque_py.client import Address, ReplyError
from made_journals import ME, OTHER, WALL_MS, facts
from persistence.backup import DESCRIPTION_NAME, NODES_NAME, SETTINGS_NAME, Beside, Description, encode_description
from persistence.check import Tally, read
from persistence.files import Files
from persistence.new_journal import FreshJournal
from persistence.recovery import RESTORED_NAME, DamagedJournalError

SETTINGS = b"disque queue settings"


def quiet(done: int, total: int) -> None:
    """Ignore the progress."""


@pytest.fixture
def make_backup(tmp_path):
    """Makes a backup as a node does, in tmp_path/made."""

    def make_backup(node=ME, jobs=2, settings=b""):
        directory = tmp_path / "made" / node.hex()[:4]
        directory.parent.mkdir(exist_ok=True)
        folder = Files(str(directory))
        fresh = FreshJournal(folder, node, WALL_MS, segment_bytes=1000)
        for number in range(jobs):
            fresh.add(facts(number))
        fresh.finish()
        position = read(folder, Tally()).position
        names = folder.names()
        sizes = {name: folder.size(name) for name in names}
        folder.close()
        (directory / "lock").unlink()
        (directory / RESTORED_NAME).touch()
        (directory / NODES_NAME).write_text(f"{node.hex()} 127.0.0.1:7711 myself 0 0 connected\n")
        if settings:
            (directory / SETTINGS_NAME).write_bytes(settings)
        beside = {SETTINGS_NAME: Beside(len(settings), crc32(settings))} if settings else {}
        description = Description(node, WALL_MS, sizes, position, beside)
        (directory / DESCRIPTION_NAME).write_bytes(encode_description(description))
        return directory

    return make_backup


def restored(backup, tmp_path, *, node="", is_new=False, moves_aside=False):
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    with opened(backup, node) as (source, description):
        return restore(
            source,
            description,
            home / "disque.aof.d",
            home / "nodes.conf",
            quiet,
            is_new=is_new,
            moves_aside=moves_aside,
        )


def test_a_node_describes_its_backup(scripted, bulk_reply):
    hello = b"*2\r\n:1\r\n" + bulk_reply("a" * 40)
    pairs = [bulk_reply("path"), bulk_reply("/b"), bulk_reply("files"), b":2\r\n", bulk_reply("bytes"), b":30\r\n"]
    node = scripted({"HELLO": hello, "JOURNAL BACKUP": b"*6\r\n" + b"".join(pairs)})
    assert make(Target(Address("127.0.0.1", node.port)), "one") == ("/b", 2, 30)
    node = scripted({"HELLO": hello, "JOURNAL BACKUP": b"-ERR no\r\n"})
    with pytest.raises(ReplyError, match="ERR no"):
        make(Target(Address("127.0.0.1", node.port)), "one")


@pytest.mark.parametrize("name", ["all", "all.tar", "all.tar.gz", "all.tgz"])
def test_a_gathered_backup_can_be_restored(make_backup, tmp_path, name):
    """The backup has several nodes. The beginning of an id chooses one."""
    paths = [str(make_backup(ME, 2)), str(make_backup(OTHER, 3))]
    told = []
    gather(paths, tmp_path / name, lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1] > 0
    with pytest.raises(BackupError, match="choose one with --node"):
        restored(tmp_path / name, tmp_path)
    found = restored(tmp_path / name, tmp_path, node=OTHER.hex()[:6])
    assert (found.jobs, found.made_at_ms, found.node) == (3, WALL_MS, OTHER)
    assert sorted(os.listdir(tmp_path / "home" / "disque.aof.d")) == ["0000000001.seg", "lock", RESTORED_NAME]
    assert parse((tmp_path / "home" / "nodes.conf").read_text())[0].id == OTHER


def test_gathering_that_fails_leaves_nothing(make_backup, tmp_path):
    backup = make_backup()
    (backup / DESCRIPTION_NAME).write_text("{}")
    for name in ("all", "all.tar.gz"):
        with pytest.raises(ValueError, match="damaged"):
            gather([str(backup)], tmp_path / name, quiet)
    assert os.listdir(tmp_path) == ["made"]


def test_an_existing_file_is_not_overwritten(tmp_path):
    (tmp_path / "empty").mkdir()
    refuse_occupied(tmp_path / "empty")
    refuse_occupied(tmp_path / "new.tar")
    (tmp_path / "old.tar").touch()
    for path in (tmp_path, tmp_path / "old.tar"):
        with pytest.raises(BackupError, match="exists already"):
            refuse_occupied(path)
    (tmp_path / "other.new").mkdir()
    with pytest.raises(BackupError, match=r"other.new exists. If an interrupted backup left it"):
        refuse_occupied(tmp_path / "other")


def test_backups_of_another_machine_are_not_gathered_from_here(make_backup):
    refuse_unreadable([str(make_backup())])
    with pytest.raises(BackupError, match="fetch it on that machine"):
        refuse_unreadable(["/nowhere"])


def test_a_path_that_means_another_nodes_backup_here_is_not_gathered(make_backup):
    """Nodes of many machines have equal paths, so this path may have the backup of this machine's node."""
    path = str(make_backup(ME))
    refuse_foreign([(ME.hex(), path)])
    with pytest.raises(BackupError, match=f"does not belong to node {OTHER.hex()[:8]}"):
        refuse_foreign([(ME.hex(), path), (OTHER.hex(), path)])


def test_a_node_that_took_a_new_id_is_known_by_its_nodes_file(make_backup):
    """CLUSTER RESET HARD gives a node a new id, but keeps its journal."""
    path = make_backup(ME)
    (path / NODES_NAME).write_text(f"{OTHER.hex()} 127.0.0.1:7711 myself 0 0 connected\n")
    refuse_foreign([(OTHER.hex(), str(path))])


@pytest.mark.parametrize("name", ["all", "all.tar", "all.tar.gz"])
def test_a_gathered_backup_is_on_disk(make_backup, tmp_path, monkeypatch, name):
    """The next step removes the nodes' own copies."""
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.fstat(fd).st_ino), fsync(fd)))
    gather([str(make_backup())], tmp_path / name, quiet)
    to = tmp_path / name
    assert {path.stat().st_ino for path in (to, *to.rglob("*"), tmp_path)} <= set(synced)


def test_the_nodes_own_copies_are_removed(make_backup):
    backup = make_backup()
    backups.remove_made([str(backup)])
    assert not backup.exists()


def test_with_a_new_id_the_nodes_file_is_left_alone(make_backup, tmp_path):
    restored(make_backup(), tmp_path, is_new=True)
    assert not (tmp_path / "home" / "nodes.conf").exists()


def test_the_nodes_file_of_the_same_node_is_kept(make_backup, tmp_path):
    """It knows more about the other nodes than the backup does."""
    (tmp_path / "home").mkdir()
    text = f"{ME.hex()} 127.0.0.1:9999 myself 0 0 connected\n"
    (tmp_path / "home" / "nodes.conf").write_text(text)
    restored(make_backup(), tmp_path)
    assert (tmp_path / "home" / "nodes.conf").read_text() == text


@pytest.mark.parametrize("text", [f"{OTHER.hex()} 127.0.0.1:1 myself 0 0 connected\n", "nonsense\n"])
def test_the_nodes_file_of_another_node_is_refused_or_moved_aside(make_backup, tmp_path, text):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "nodes.conf").write_text(text)
    backup = make_backup()
    with pytest.raises(BackupError, match="--force"):
        restored(backup, tmp_path)
    found = restored(backup, tmp_path, moves_aside=True)
    assert found.moved == [str(tmp_path / "home" / "nodes.conf.old-1")]
    assert parse((tmp_path / "home" / "nodes.conf").read_text())[0].id == ME


def test_a_journal_that_is_there_is_refused_or_moved_aside(make_backup, tmp_path):
    backup = make_backup()
    restored(backup, tmp_path)
    with pytest.raises(OSError, match="has a journal already"):
        restored(backup, tmp_path)
    assert restored(backup, tmp_path, moves_aside=True).moved == [str(tmp_path / "home" / "disque.aof.d.old-1")]


def test_a_node_that_runs_is_left_alone(make_backup, tmp_path):
    (tmp_path / "home").mkdir()
    store = NodesFileStore(str(tmp_path / "home" / "nodes.conf"))
    store.lock()
    with pytest.raises(BackupError, match="stop it first"):
        restored(make_backup(), tmp_path)
    store.close()


@pytest.mark.parametrize("name", ["all", "all.tar.gz"])
def test_settings_are_restored_and_private(make_backup, tmp_path, name):
    """They may have users with hashes of their passwords among them."""
    gather([str(make_backup(settings=SETTINGS))], tmp_path / name, quiet)
    assert restored(tmp_path / name, tmp_path).has_settings
    path = tmp_path / "home" / "nodes.conf.queues"
    assert path.read_bytes() == SETTINGS
    assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / name).stat().st_mode & 0o077 == 0 or (tmp_path / name).is_dir()


def test_newer_settings_of_the_same_node_are_kept(make_backup, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "nodes.conf").write_text(f"{ME.hex()} 127.0.0.1:9999 myself 0 0 connected\n")
    (home / "nodes.conf.queues").write_bytes(b"newer")
    assert not restored(make_backup(settings=SETTINGS), tmp_path).has_settings
    assert (home / "nodes.conf.queues").read_bytes() == b"newer"


def test_with_a_new_id_no_settings_are_restored(make_backup, tmp_path):
    """The node may be in another cluster, which has settings and users of its own."""
    restored(make_backup(settings=SETTINGS), tmp_path, is_new=True)
    assert not (tmp_path / "home" / "nodes.conf.queues").exists()


def test_settings_and_votes_of_another_node_are_moved_aside(make_backup, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "nodes.conf").write_text(f"{OTHER.hex()} 127.0.0.1:1 myself 0 0 connected\n")
    (home / "nodes.conf.queues").write_bytes(b"settings")
    (home / "nodes.conf.votes").write_bytes(b"votes")
    found = restored(make_backup(settings=SETTINGS), tmp_path, moves_aside=True)
    assert found.moved == [
        str(home / f"{name}.old-1") for name in ("nodes.conf", "nodes.conf.queues", "nodes.conf.votes")
    ]
    assert (home / "nodes.conf.queues").read_bytes() == SETTINGS
    assert not (home / "nodes.conf.votes").exists()


@pytest.mark.parametrize("settings", [SETTINGS[:-1], SETTINGS + b"\0", SETTINGS.upper()])
def test_damaged_settings_change_nothing(make_backup, tmp_path, settings):
    backup = make_backup(settings=SETTINGS)
    (backup / SETTINGS_NAME).write_bytes(settings)
    with pytest.raises(DamagedJournalError, match="Copy it again"):
        restored(backup, tmp_path)
    assert os.listdir(tmp_path / "home") == ["nodes.conf.lock"]


@pytest.mark.parametrize("change", ["shorter", "flipped", "missing", "no nodes", "other nodes"])
def test_a_backup_that_is_not_whole_changes_nothing(make_backup, tmp_path, change):
    backup = make_backup()
    segment = backup / "0000000001.seg"
    data = bytearray(segment.read_bytes())
    if change == "shorter":
        segment.write_bytes(data[:-1])
    elif change == "flipped":
        data[-1] ^= 1
        segment.write_bytes(data)
    elif change == "missing":
        segment.unlink()
    elif change == "no nodes":
        (backup / NODES_NAME).write_text("nonsense")
    else:
        (backup / NODES_NAME).write_text(f"{OTHER.hex()} 127.0.0.1:7711 myself 0 0 connected\n")
    with pytest.raises((BackupError, DamagedJournalError, OSError)):
        restored(backup, tmp_path)
    assert os.listdir(tmp_path / "home") == ["nodes.conf.lock"]


def test_a_directory_without_a_backup_is_refused(tmp_path):
    (tmp_path / "letter").write_text("hello")
    (tmp_path / "empty").mkdir()
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass
    for name, reason in (("letter", "neither"), ("empty", "has no backup"), ("empty.tar", "has no backup")):
        with pytest.raises(BackupError, match=reason):
            restored(tmp_path / name, tmp_path)


def test_a_tar_file_that_was_cut_is_refused(make_backup, tmp_path):
    gather([str(make_backup(jobs=2000))], tmp_path / "all.tgz", quiet)
    data = (tmp_path / "all.tgz").read_bytes()
    (tmp_path / "all.tgz").write_bytes(data[: len(data) // 2])
    with pytest.raises((BackupError, OSError)):
        restored(tmp_path / "all.tgz", tmp_path)
    assert not (tmp_path / "home" / "disque.aof.d").exists()


def test_a_description_names_files_of_a_journal_only(make_backup, tmp_path):
    """A name like ../../x would point outside the backup."""
    backup = make_backup()
    (backup / DESCRIPTION_NAME).write_bytes(encode_description(Description(ME, WALL_MS, {"../x": 1}, 0)))
    with pytest.raises(BackupError, match="not a file of a journal"):
        restored(backup, tmp_path)


def test_names_sort_by_time():
    assert len(backups.default_name()) == len("20240131-235959")
