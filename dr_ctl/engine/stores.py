"""Documents kept in files, for brokers that cannot create one atomically. Such a lock holds for one machine only.

A document is a file `KIND.NUMBER` in the folder of its broker; files of other names are not looked at. Creating a
document is atomic on this machine: of several runs that try, one succeeds.
"""

import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dr_ctl.core.clock import Clock
from dr_ctl.core.errors import BrokerError
from dr_ctl.engine.folders import private
from dr_ctl.engine.runs import write_text


class FolderStore:
    """Implements `Store`."""

    def __init__(self, folder: Path, site: str, pair: str, clock: Clock) -> None:
        """`folder` is for all documents of an installation, such as STATE/documents."""
        self.site, self.pair = site, pair
        self._folder, self._clock = folder / site / pair, clock

    def read(self, kind: str) -> tuple[int, Sequence[tuple[int, str]]]:
        """By this machine's clock: no other one judges by it."""
        now_ms = int(self._clock.now().timestamp() * 1000)
        documents: list[tuple[int, str]] = []
        try:
            for path in self._folder.glob(f"{kind}.*"):
                number = path.name.removeprefix(f"{kind}.")
                with suppress(FileNotFoundError):  # removed since by another run
                    # A damaged document still counts: its number is not free.
                    documents += [(int(number), path.read_text("utf-8", "replace"))] if number.isdecimal() else []
        except OSError as error:
            raise BrokerError(f"the documents in {self._folder} cannot be read: {error}") from error
        return now_ms, sorted(documents)

    def lately(self, kind: str) -> None:
        """No look at a broker tells of them."""

    def create(self, kind: str, number: int, text: str) -> bool:
        """Create a whole document or none: the file gets its name once its content is on disk."""
        path = self._path(kind, number)
        whole = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            private(self._folder)
            write_text(whole, text)
            os.link(whole, path)
        except FileExistsError:
            return False
        except OSError as error:
            raise BrokerError(f"{path} cannot be written: {error}") from error
        finally:
            whole.unlink(missing_ok=True)
        return True

    def update(self, kind: str, number: int, text: str) -> None:
        path = self._path(kind, number)
        if not path.exists():
            raise BrokerError(f"{path} is gone")
        try:
            write_text(path, text)
        except OSError as error:
            raise BrokerError(f"{path} cannot be written: {error}") from error

    def delete(self, kind: str, number: int) -> None:
        try:
            self._path(kind, number).unlink()
        except OSError as error:
            raise BrokerError(f"{self._path(kind, number)} cannot be removed: {error}") from error

    def why_forbidden(self) -> str | None:
        return "its brokers create nothing atomically, so documents are kept on this machine"

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _path(self, kind: str, number: int) -> Path:
        return self._folder / f"{kind}.{number}"
