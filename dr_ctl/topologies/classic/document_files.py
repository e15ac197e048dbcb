"""The documents of one broker, which it cannot create atomically: files in STATE, beside the locks that stand there."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from dr_ctl.core.clock import Clock
from dr_ctl.core.errors import BrokerError
from dr_ctl.engine.folders import private
from dr_ctl.engine.lease import LOCK
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.runs import write_text
from dr_ctl.engine.stores import FolderStore
from dr_ctl.topologies.common.names import OWN


class Papers:
    """`folder` is for all documents of the installation. The documents hold for this machine only."""

    def __init__(self, folder: Path, site: str, pair: str, clock: Clock) -> None:
        self._site, self._clock = site, clock
        self._folder = folder / site / pair
        self.store = FolderStore(folder, site, pair, clock)

    @property
    def now_ms(self) -> int:
        """By this machine's clock: no other clock judges these documents."""
        return int(self._clock.now().timestamp() * 1000)

    def texts(self) -> Mapping[str, str]:
        """Every document by its name, locks among them. Raises `BrokerError`."""
        found = {f"{OWN}{LOCK}.{self._site}.{number}": text for number, text in self.store.read(LOCK)[1]}
        try:
            for path in self._folder.glob(f"{OWN}*"):
                with suppress(FileNotFoundError):  # removed since by another run
                    found[path.name] = path.read_text("utf-8", "replace")
        except OSError as error:
            raise BrokerError(f"the documents in {self._folder} cannot be read: {error}") from error
        return found

    def write(self, name: str, text: str) -> Outcome:
        """Whole or not at all; an older document is replaced."""
        try:
            private(self._folder)
            write_text(self._folder / name, text)
        except OSError as error:
            return Refused(f"{name} cannot be written in {self._folder}: {error}")
        return Done("written")

    def remove(self, name: str) -> Outcome:
        try:
            (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            return Refused(f"{name} cannot be removed from {self._folder}: {error}")
        return Done("removed")
