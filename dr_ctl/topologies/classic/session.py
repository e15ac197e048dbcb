"""Reads and changes a Classic broker. The documents of such a broker are files in STATE, beside the locks there."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.system import system
from dr_ctl.engine.disk import private
from dr_ctl.engine.lease import LOCK, FolderStore, Store
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Done, Failed, Outcome
from dr_ctl.engine.runs import write_text
from dr_ctl.jolokia.client import Answer, Read
from dr_ctl.jolokia.values import Fields
from dr_ctl.processes.secrets import resolve
from dr_ctl.settings.classic import ClassicBroker as Settings
from dr_ctl.settings.classic import SyncedBroker
from dr_ctl.settings.model import Installation
from dr_ctl.stomp_io.address import Login, StompAccount
from dr_ctl.topologies.classic import beans, reading
from dr_ctl.topologies.classic.beans import DOCUMENT, TEXT
from dr_ctl.topologies.classic.broker import B_co
from dr_ctl.topologies.classic.reading import Answered
from dr_ctl.topologies.common import session
from dr_ctl.topologies.common.calls import OWN
from dr_ctl.topologies.common.group import Family, NodeAnswer
from dr_ctl.topologies.common.session import stomp_account
from dr_ctl.topologies.common.view import Config
from dr_ctl.topologies.topology import NodeReading, NodeState


class BrokerStore(FolderStore):
    """The documents of a broker, with its locks, in files that only this machine reads."""

    @property
    def now_ms(self) -> int:
        """Return the time of this machine, the only one that reads these documents."""
        return int(system().now().timestamp() * 1000)

    def texts(self) -> Mapping[str, str]:
        """Read every document by its name, with the locks. Raises `BrokerError`."""
        documents = {f"{OWN}{LOCK}.{self.site}.{number}": text for number, text in self.read(LOCK)[1]}
        try:
            for path in self._folder.glob(f"{OWN}*"):
                with suppress(FileNotFoundError):  # another run has removed it since
                    documents[path.name] = path.read_text("utf-8", "replace")
        except OSError as error:
            raise BrokerError(f"the documents in {self._folder} cannot be read: {error}") from error
        return documents

    def write(self, name: str, text: str) -> Outcome:
        try:
            private(self._folder)
            write_text(self._folder / name, text)
        except OSError as error:
            return Failed(f"{name} cannot be written in {self._folder}: {error}; make room there, or make it writable")
        return Done("written")

    def remove(self, name: str) -> Outcome:
        try:
            (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            return Failed(f"{name} cannot be removed from {self._folder}: {error}")
        return Done("removed")


def _node_answer(answer: Answer) -> NodeAnswer:
    """Read a node's answer. A broker that reports to be a slave is passive; most slaves have no console."""
    [fields] = [row for _, row in answer.beans()] or [Fields("the broker", {})]
    state = NodeState.PASSIVE if fields.flag("Slave") else NodeState.ACTIVE
    return NodeAnswer(fields.text("BrokerName"), NodeReading("", state, version=fields.text("BrokerVersion")))


_NODE: Final = Read(beans.ANY_BROKER, ("BrokerName", "BrokerVersion", "Slave"))


class Session(session.Session[B_co]):
    family = Family(_NODE, _node_answer, lambda broker: f"brokerName={beans.part(broker)}")
    settings: Settings
    find_broker = staticmethod(reading.find_broker)

    def __init__(self, installation: Installation, site: str, pair: str, documents: Path) -> None:
        super().__init__(installation, site, pair, documents)
        self.document_files = BrokerStore(documents, site, pair)

    def _config(self) -> Config:
        sync = self.settings.sync if isinstance(self.settings, SyncedBroker) else None
        return replace(super()._config(), agent=sync.connector if sync is not None else None)

    def values(self, answer: Answered) -> dict[str, Any]:
        """Return the values of a view. Raises `BrokerError`."""
        own = {"pair": self.pair, "site": self.site, "config": self.config, "now_ms": self.document_files.now_ms}
        return {**answer.values, **own, "documents": self.document_files.texts()}

    def agents_listener(self) -> StompAccount | None:
        """Return the account at the active node's listener that a fence leaves open, if the settings name one."""
        settings = self.settings
        if not isinstance(settings, SyncedBroker) or (own := settings.sync) is None:
            return None
        stomp = settings.at(self.group.current.node)
        login = self.login(own.username, resolve(own.password, self._installation.file.parent))
        assert stomp is not None  # the settings name it for every node
        return stomp_account(self._installation, self.site, stomp, login)

    @staticmethod
    def login(user: str, password: str) -> Login:
        """Escape the login, because this broker unescapes the headers of CONNECT, against STOMP."""
        return Login(user.replace("\\", "\\\\"), password.replace("\\", "\\\\"))

    def store(self) -> Store:
        return self.document_files

    def is_own(self, call: Call) -> bool:
        return DOCUMENT in call.request

    def do(self, call: Call) -> Outcome:
        name, text = str(call.request[DOCUMENT]), call.request.get(TEXT)
        return self.document_files.remove(name) if text is None else self.document_files.write(name, str(text))

    def open_listeners(self, *, timeout_s: float) -> tuple[str, ...]:
        asked = Read(beans.connector(self.last_view().broker), ("Started",))
        return reading.opened(self.reader().read([asked], timeout_s=timeout_s)[0], self.config.clients)

    def dispatch(self) -> Mapping[str, tuple[int, bool]]:
        return reading.dispatch(self.reader(), self.last_view().broker)

    @staticmethod
    def destination(queue: str) -> str:
        return f"/queue/{queue}"
