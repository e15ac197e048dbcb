"""Where a history lies: a folder, or a URL that PyArrow has a file system for. Files are named from there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.rpo.history.files import hidden_until_whole


class Identity(NamedTuple):
    """What tells one state of a file from another."""

    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Store:
    """A file system of PyArrow, and the folder in it."""

    where: str
    files: fs.FileSystem
    root: str

    @classmethod
    def of(cls, where: str | Path) -> Store:
        """Raises EnvironmentFault where PyArrow has no such file system."""
        return _store(str(where))

    @property
    def folder(self) -> Path | None:
        """The folder where the history lies on this machine, else None."""
        return Path(self.root) if isinstance(self.files, fs.LocalFileSystem) else None

    def url(self, name: str) -> str:
        return f"{self.root}/{name}"

    def listed(self, under: str = "") -> dict[str, Identity]:
        """All files below a folder, by name; none where there is no such folder."""
        told = self.files.get_file_info(
            fs.FileSelector(self.url(under).rstrip("/"), recursive=True, allow_not_found=True)
        )
        begin = len(self.root) + 1
        return {
            each.path[begin:]: Identity(each.size, each.mtime_ns or 0)
            for each in sorted(told, key=lambda each: str(each.path))
            if each.type is fs.FileType.File
        }

    def opened(self, name: str) -> pa.NativeFile:
        """A file to read. Raises FileNotFoundError where there is none."""
        return self.files.open_input_file(self.url(name))

    def write(self, name: str, put: Callable[[Any], object]) -> None:
        """Write a file so that it is there whole or not at all. Raises OSError."""
        if self.folder is not None:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with hidden_until_whole(path) as file:
                put(file)
            return
        with self.files.open_output_stream(self.url(name)) as file:  # an object is there once it is closed
            put(file)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self.files.delete_file(self.url(name))


@lru_cache(maxsize=8)
def _store(where: str) -> Store:
    if "://" not in where and not where.startswith("file:"):
        return Store(where, fs.LocalFileSystem(), str(Path(where).absolute()))
    try:
        files, root = fs.FileSystem.from_uri(where)
    except (pa.ArrowException, ValueError, OSError, NotImplementedError) as error:
        text = f"the history at {where.partition('?')[0]} cannot be opened: {str(error).splitlines()[0]}"
        raise EnvironmentFault(text, remedy="Name a folder, or a URL as file:, s3://, gs:// or hdfs://.") from error
    return Store(where, files, root.rstrip("/"))
