"""Changes of source files."""

from __future__ import annotations

from pathlib import Path

from disque_py.tasks.source_watch import SourceWatch


def test_changed_python_files_are_reported_once(tmp_path):
    for name in ("a.py", "sub/b.py", "text.txt", ".hidden/c.py", "__pycache__/d.py", "venv/e.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
    watch = SourceWatch([tmp_path])
    assert watch.changed() == []
    for path in tmp_path.rglob("*.*"):
        if path.is_file():
            path.write_text("12")
    assert [Path(path).name for path in watch.changed()] == ["a.py", "b.py"]
    assert watch.changed() == []


def test_new_and_removed_files_are_reported(tmp_path):
    watch = SourceWatch([tmp_path])
    path = tmp_path / "a.py"
    path.touch()
    assert watch.changed() == [str(path)]
    path.unlink()
    assert watch.changed() == [str(path)]
