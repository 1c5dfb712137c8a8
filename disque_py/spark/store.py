"""A path with Delta tables, and how to get there: what readers need as well as writers.

A path is a local folder or what delta-rs takes as a URI (`s3://…`, `abfss://…`); `storage.*` options are its settings,
used for plain files too. Imports no pyarrow: `disque-query` answers before that would be loaded.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable

if TYPE_CHECKING:
    import pyarrow.fs as pafs


class TableError(RuntimeError):
    """A table can't be used; the text names its path and says what to do."""


@dataclass(frozen=True, slots=True)
class Store:
    """A path and how to get there; plain values, so that it travels to executors."""

    path: str
    options: dict[str, str] = field(default_factory=dict)

    def under(self, name: str) -> Store:
        """A folder below."""
        return Store(f"{self.path.rstrip('/')}/{name}", self.options)

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this machine (or one mounted there)."""
        return "://" not in self.path or self.path.startswith("file://")

    @property
    def local_path(self) -> Path:
        """Of a local one."""
        return Path(self.path.removeprefix("file://"))

    def filesystem(self) -> pafs.FileSystem:
        """For plain files; paths are relative to this store."""
        import pyarrow.fs as pafs

        if self.is_local:
            self.local_path.mkdir(parents=True, exist_ok=True)
            return pafs.SubTreeFileSystem(str(self.local_path.absolute()), pafs.LocalFileSystem())
        # delta-rs's own way, so that one set of credentials opens tables and files.
        from deltalake.fs import DeltaStorageHandler

        return pafs.PyFileSystem(DeltaStorageHandler(self.path, self.options or None))

    def check_writable(self) -> None:
        """Whether a folder can be written, or made. Raises TableError; of an object store only its own answers tell."""
        if not self.is_local:
            return
        folder = self.local_path.absolute()
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        if not folder.is_dir():
            raise TableError(f"{folder} is no folder, so {self.path} can't be written; name another path")
        try:
            # Rights are not all: what is mounted read-only lets root pass, too.
            os.rmdir(tempfile.mkdtemp(prefix=".disque-", dir=folder))
        except OSError as error:
            raise TableError(
                f"{folder} can't be written ({error.strerror}); name another path, or give this user the right to it"
            ) from None

    def exists(self) -> bool:
        """Whether there is a Delta table here."""
        return bool(DeltaTable.is_deltatable(self.path, self.options or None))

    def table(self) -> DeltaTable:
        """The table as it is now. Raises TableError when there is none or it can't be read."""
        try:
            return DeltaTable(self.path, storage_options=self.options or None)
        except Exception as error:  # delta-rs has no common type for what its stores raise
            raise TableError(f"{self.path} can't be opened as a Delta table: {error}") from error


def paths_of(store: Store, table: DeltaTable) -> list[str]:
    """The table's files as DuckDB opens them: of a folder no URIs, in which a blank would be `%20`."""
    if not store.is_local:
        return list(table.file_uris())
    paths = table.get_add_actions(flatten=True).column("path").to_pylist()
    return [f"{store.local_path.absolute()}/{path}" for path in paths]
