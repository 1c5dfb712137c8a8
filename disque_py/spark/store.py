"""A path with Delta tables and its storage settings, for readers and writers.

A path is a local folder or a URI of delta-rs (`s3://…`, `abfss://…`). `storage.*` options are its settings, also for
plain files. The module imports no pyarrow: `disque-query` answers in less time than loading it would take.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from deltalake import DeltaTable

if TYPE_CHECKING:
    import pyarrow.fs as pafs

# The beginning of the calls that delta-rs adds to the text of some errors.
BACKTRACE: Final = re.compile(r"\n\s*0: ")


class TableError(RuntimeError):
    """A table can't be used. The text names its path and says what to do."""


@dataclass(frozen=True, slots=True)
class Store:
    """A path and its storage settings. They are plain values, so Spark can send them to executors.

    A URI of a file (`file:/a`, `file:///a`) becomes the plain path. delta-rs, Arrow and DuckDB read such URIs
    differently. With a URI, the files and the log of one table would be in different folders.
    """

    path: str
    options: dict[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Turn the URI of a file into a path."""
        if self.path.startswith("file:"):
            object.__setattr__(self, "path", unquote(self.path.removeprefix("file:").removeprefix("//")))

    def under(self, name: str) -> Store:
        """Return the folder `name` below this path."""
        return Store(f"{self.path.rstrip('/')}/{name}", self.options)

    @property
    def is_local(self) -> bool:
        """Return whether the path is a folder on this machine, or mounted on it."""
        return "://" not in self.path

    @property
    def local_path(self) -> Path:
        """Return the path of a local folder."""
        return Path(self.path)

    def filesystem(self) -> pafs.FileSystem:
        """Return a file system for plain files. Its paths are relative to this store."""
        import pyarrow.fs as pafs

        if self.is_local:
            self.local_path.mkdir(parents=True, exist_ok=True)
            return pafs.SubTreeFileSystem(str(self.local_path.absolute()), pafs.LocalFileSystem())
        # Files are opened through delta-rs too, so one set of credentials is enough for tables and files.
        from deltalake.fs import DeltaStorageHandler

        return pafs.PyFileSystem(DeltaStorageHandler(self.path, self.options or None))

    def check_writable(self) -> None:
        """Check that a local folder can be written or made. Raises TableError. Object stores are not checked."""
        if not self.is_local:
            return
        folder = self.local_path.absolute()
        try:
            while not folder.exists() and folder != folder.parent:
                folder = folder.parent
            if not folder.is_dir():
                raise TableError(f"{folder} is not a folder, so {self.path} can't be written; name another path")
            # Checking permissions is not enough: root has them on a read-only mount, too. So try to write.
            os.rmdir(tempfile.mkdtemp(prefix=".disque-", dir=folder))
        except OSError as error:
            raise TableError(
                f"{folder} can't be written ({error.strerror}); name another path, or give this user the right to it"
            ) from None

    def exists(self) -> bool:
        """Return whether there is a Delta table here. Raises TableError when this user may not look."""
        if self.is_local:
            try:
                self.local_path.stat()  # delta-rs would say that there is no table.
            except (FileNotFoundError, NotADirectoryError):
                return False
            except OSError as error:
                raise TableError(
                    f"{self.path} can't be read ({error.strerror}); check the path, or give this user the right to it"
                ) from None
        return bool(DeltaTable.is_deltatable(self.path, self.options or None))

    def table(self) -> DeltaTable:
        """Return the table as it is now. Raises TableError when there is none or it can't be read."""
        try:
            return DeltaTable(self.path, storage_options=self.options or None)
        except Exception as error:  # delta-rs has no common type for what its stores raise
            why = BACKTRACE.split(str(error))[0].strip()
            raise TableError(f"{self.path} can't be opened as a Delta table: {why}") from error


def paths_of(store: Store, table: DeltaTable) -> list[str]:
    """Return the table's files as DuckDB opens them. Local files are paths, because a URI has `%20` for a blank."""
    if not store.is_local:
        return list(table.file_uris())
    paths = table.get_add_actions(flatten=True).column("path").to_pylist()
    return [f"{store.local_path.absolute()}/{path}" for path in paths]
