"""Where a history lies: a folder, or a URL that PyArrow has a file system for. Files are named from there."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.rpo.history.files import hidden_until_whole

OBJECTS: Final = ("s3", "gcs")
"""File systems without folders."""


@dataclass(frozen=True, slots=True)
class Store:
    """A file system of PyArrow, and the folder in it."""

    where: str
    files: fs.FileSystem
    root: str

    @classmethod
    def of(cls, where: str | Path, *, hurried: bool = False) -> Store:
        """Raises EnvironmentFault where PyArrow has no such file system. `hurried`: asked once and not again, by whom
        an answer that comes late helps no more."""
        return _store(str(where), hurried)

    @property
    def folder(self) -> Path | None:
        """The folder where the history lies on this machine, else None."""
        return Path(self.root) if isinstance(self.files, fs.LocalFileSystem) else None

    def url(self, name: str) -> str:
        return f"{self.root}/{name}"

    def listed(self, under: str = "", *, recursive: bool = True) -> dict[str, fs.FileInfo]:
        """All files below a folder, by name; none where there is no such folder."""
        infos = self._infos(under, recursive=recursive)
        return {name: info for name, info in infos.items() if info.type is fs.FileType.File}

    def directly(self, under: str = "") -> list[str]:
        """What lies in a folder itself, files and folders, by name."""
        return [*self._infos(under, recursive=False)]

    def _infos(self, under: str, *, recursive: bool) -> dict[str, fs.FileInfo]:
        folder = fs.FileSelector(self.url(under).rstrip("/"), recursive=recursive, allow_not_found=True)
        told = sorted(self.files.get_file_info(folder), key=lambda each: str(each.path))
        return {str(each.path)[len(self.root) + 1 :]: each for each in told}

    def opened(self, name: str) -> pa.NativeFile:
        """A file to read. Raises FileNotFoundError where there is none."""
        return self.files.open_input_file(self.url(name))

    @contextmanager
    def parquet(self, name: str) -> Iterator[pq.ParquetFile]:
        """A Parquet file to read. Raises FileNotFoundError where there is none."""
        with self.opened(name) as file, pq.ParquetFile(file) as told:
            yield told

    def must_answer(self, name: str) -> None:
        """Once a file could not be read: whether the file is at fault, and not a store elsewhere. Raises
        EnvironmentFault, or FileNotFoundError where the file has gone meanwhile."""
        if self.folder is not None:
            return
        try:
            with self.opened(name) as file:
                while file.read(1 << 20):
                    pass
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self.fault(error) from error

    def fault(self, error: Exception) -> EnvironmentFault:
        where = self.where.partition("?")[0]
        return EnvironmentFault(
            f"the history at {where} cannot be read: {str(error).splitlines()[0]}",
            remedy="See that this machine, and each worker, reaches it with credentials that may read it.",
        )

    def write(self, name: str, put: Callable[[BinaryIO], object]) -> None:
        """Write a file so that it is there whole or not at all. Raises OSError."""
        if self.folder is not None:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with hidden_until_whole(path) as file:
                put(file)
            return
        with tempfile.TemporaryFile() as whole:
            put(whole)
            whole.seek(0)
            self._send(name, whole)

    def _send(self, name: str, whole: BinaryIO) -> None:
        """A file that breaks off is closed too, so that its name of before would stand for a part: it moves last."""
        folder, _, base = self.url(name).rpartition("/")
        begun = f"{folder}/.{base}.{uuid.uuid4().hex}.part"
        try:
            if self.files.type_name not in OBJECTS:
                self.files.create_dir(folder, recursive=True)
            with self.files.open_output_stream(begun) as sink:
                shutil.copyfileobj(whole, sink, 1 << 20)
            self.files.move(begun, self.url(name))
        except BaseException:
            with suppress(OSError):
                self.files.delete_file(begun)
            raise

    def remove(self, name: str) -> None:
        """Remove a file, and of folders on this machine those that nothing is left in. Raises OSError."""
        with suppress(FileNotFoundError):
            self.files.delete_file(self.url(name))
        if self.folder is not None:
            path = (self.folder / name).parent
            with suppress(OSError):  # something lies there
                while path != self.folder:
                    path.rmdir()
                    path = path.parent


@lru_cache(maxsize=8)
def _store(where: str, hurried: bool) -> Store:
    if "://" not in where and not where.startswith("file:"):
        return Store(where, fs.LocalFileSystem(), str(Path(where).absolute()))
    try:
        files, root = _s3(where, hurried) if where.startswith("s3:") else fs.FileSystem.from_uri(where)
    except (pa.ArrowException, TypeError, ValueError, OSError, NotImplementedError) as error:
        text = f"the history at {where.partition('?')[0]} cannot be opened: {str(error).splitlines()[0]}"
        raise EnvironmentFault(text, remedy="Name a folder, or a URL as file:, s3://, gs:// or hdfs://.") from error
    return Store(where, files, root.rstrip("/"))


def _s3(where: str, hurried: bool) -> tuple[fs.FileSystem, str]:
    """PyArrow's own reading of the URL sets no limits, and a process that ends waits for every question."""
    url = urlsplit(where)
    told: dict[str, Any] = dict(parse_qsl(url.query))
    connect_s, request_s, attempts = (1, 2, 1) if hurried else (3, 10, 3)
    again = fs.AwsStandardS3RetryStrategy(attempts)
    store = fs.S3FileSystem(**told, connect_timeout=connect_s, request_timeout=request_s, retry_strategy=again)
    return store, f"{url.netloc}{url.path}"
