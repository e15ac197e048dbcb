"""The way to a Classic broker, for looks and for changes; its documents are files in STATE, beside the locks there."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from dr_ctl.core.errors import BrokerError, Unreachable
from dr_ctl.core.system import Clock
from dr_ctl.engine.disk import private
from dr_ctl.engine.lease import LOCK, FolderStore, Store
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Done, Outcome, Refused
from dr_ctl.engine.runs import write_text
from dr_ctl.jolokia.client import Answer, Changer, Wire
from dr_ctl.settings.classic import ClassicBroker as Settings
from dr_ctl.settings.model import Installation
from dr_ctl.stomp_io.address import parse_address
from dr_ctl.topologies.classic import look
from dr_ctl.topologies.classic.broker import B_co
from dr_ctl.topologies.classic.operations import DOCUMENT, TEXT
from dr_ctl.topologies.common import access as common
from dr_ctl.topologies.common.access import CHANGE_S
from dr_ctl.topologies.common.names import OWN
from dr_ctl.topologies.common.view import Config
from dr_ctl.topologies.console.access import ConsoleAccess
from dr_ctl.topologies.console.requests import change


class BrokerStore:
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


class Access(ConsoleAccess[B_co]):
    def __init__(self, installation: Installation, site: str, pair: str, documents: Path, clock: Clock) -> None:
        self._settings, self._peer = installation.broker(site, pair, Settings), installation.other(site)
        super().__init__(installation, site, pair, self._settings)
        self._broker = self._settings.broker
        self.document_files = BrokerStore(documents, site, pair, clock)

    def _config(self) -> Config:
        """Read the settings that all such brokers have; a topology adds its own."""
        stomp = self._settings.stomp
        greets_at = parse_address(stomp).port if stomp is not None else None
        return Config(self._settings.clients, None, None, greets_at=greets_at, peer=self._peer)

    def _jolokia(self) -> str:
        if self._settings.jolokia is None:
            raise Unreachable(
                f"{self.site}/{self.pair}: the settings name no `jolokia:`, so nothing can be managed there",
                refused=False,
            )
        return self._settings.jolokia

    @abstractmethod
    def _ask(self, broker: str, timeout_s: float) -> B_co:
        """Ask that broker for everything."""

    def _look(self, timeout_s: float) -> B_co:
        if self._broker is None:
            self._broker = look.find_broker(self.reader(), timeout_s=timeout_s)
        return self._ask(self._broker, timeout_s)

    def store(self) -> Store:
        return self.document_files.store

    def channel(self) -> common.Channel:
        return Channel(self.wire(), self.document_files)

    def open_listeners(self, *, timeout_s: float) -> tuple[str, ...]:
        return look.open_listeners(self.reader(), self.names().broker, self.config.clients, timeout_s=timeout_s)

    def dispatch(self) -> Mapping[str, tuple[int, bool]]:
        return look.dispatch(self.reader(), self.names().broker)

    def uncovered(self) -> list[str]:
        return []

    @staticmethod
    def destination(queue: str) -> str:
        return f"/queue/{queue}"


class Channel:
    """Implements `common.access.Channel`: a document is a file here, all else goes to the broker."""

    def __init__(self, wire: Wire, document_files: BrokerStore) -> None:
        self._wire, self._changer, self._papers = wire, Changer(wire), document_files

    def send(self, calls: Sequence[Call]) -> list[Outcome]:
        """Send the calls in batches between documents, so that their order is kept."""
        outcomes: list[Outcome] = []
        for batch in _batches(calls):
            if DOCUMENT in batch[0].request:
                outcomes.append(self._file(batch[0]))
            else:
                changes = [change(call) for call in batch]
                outcomes += [_outcome(answer) for answer in self._changer.change(changes, timeout_s=CHANGE_S)]
        return outcomes

    def _file(self, call: Call) -> Outcome:
        name = str(call.request[DOCUMENT])
        text = call.request.get(TEXT)
        return self._papers.remove(name) if text is None else self._papers.write(name, str(text))

    def close(self) -> None:
        self._wire.close()


def _batches(calls: Sequence[Call]) -> list[list[Call]]:
    batches: list[list[Call]] = []
    for call in calls:
        if DOCUMENT in call.request or not batches or DOCUMENT in batches[-1][0].request:
            batches.append([])
        batches[-1].append(call)
    return batches


def _outcome(answer: Answer) -> Outcome:
    return Done("answered") if answer.error is None else Refused(str(answer.error))
