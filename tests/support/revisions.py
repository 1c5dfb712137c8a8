"""Files of other revisions, for programs that run an older version beside this one."""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class RevisionError(Exception):
    """Git does not have the revision, or this folder is not a checkout."""


def unpack(revision: str, folder: Path, paths: Sequence[str] = ()) -> None:
    """Put the files of a revision into a folder, all of them or those below `paths`. Raises RevisionError.

    Unlike a worktree, the copy leaves no entry in git.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    archive = folder.with_name(folder.name + ".tar")
    words = ["git", "-C", str(ROOT), "archive", "--output", str(archive), revision, "--", *paths]
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RevisionError(f"git has no revision {revision}: {done.stderr.strip()}")
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    archive.unlink()
