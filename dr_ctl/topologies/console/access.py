"""The way to a broker that Jolokia manages, opened when first needed: for readings, and, on its own, for changes."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from dr_ctl.core.errors import BrokerError, Passive, Unreachable
from dr_ctl.core.system import Clock, together
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Done, Outcome, Refused
from dr_ctl.jolokia.client import Account, Changer, Reader, Wire
from dr_ctl.processes.secrets import resolve
from dr_ctl.settings.brokers import Grouped, ManagedBroker, Node
from dr_ctl.settings.model import Installation
from dr_ctl.settings.parts import Secret
from dr_ctl.stomp_io.address import Connected, Greeting, Login, parse_address
from dr_ctl.topologies.common import access as common
from dr_ctl.topologies.common.access import CHANGE_S, EVERYTHING, READ_S, Access, Part, gate
from dr_ctl.topologies.common.nodes import NobodyActive
from dr_ctl.topologies.common.snapshot import V_co
from dr_ctl.topologies.console.group import Family, Group, GroupWire, Process, Unserved
from dr_ctl.topologies.console.requests import change
from dr_ctl.topologies.topology import NodeReading, NodeState


def account(
    installation: Installation, site: str, url: str, username: str, secret: Secret, password: str | None = None
) -> Account:
    """The login for a console of that site, with the site's TLS. `password`: the secret, if resolved already."""
    settings = installation.settings.sites[site]
    tls, parts = settings.tls, urlsplit(url)
    ca = str(installation.path(tls.ca)) if tls.ca is not None else True
    own = (tls.cert, tls.key or tls.cert) if tls.cert is not None else None
    return Account(
        url=url,
        username=username,
        password=password if password is not None else resolve(secret, installation.file.parent),
        origin=settings.origin or f"{parts.scheme}://{parts.hostname or ''}",
        verify=ca if tls.verify else False,
        source=secret.source,
        cert=(str(installation.path(own[0])), str(installation.path(own[1]))) if own else None,
    )


class ConsoleAccess(Access[V_co]):
    family: ClassVar[Family]
    settings: ManagedBroker

    def __init__(self, installation: Installation, site: str, pair: str, documents: Path, clock: Clock) -> None:
        settings: ManagedBroker = installation.broker(site, pair, self.settings_of)
        nodes = settings.nodes if isinstance(settings, Grouped) else ()
        self.group = Group(
            f"{site}/{pair}",
            [self._process(*each) for each in zip_longest(settings.processes, nodes)],
            self.family,
            settings.takeover if isinstance(settings, Grouped) else 0.0,
            Unserved(documents / site / pair / "no-node-active.json", clock),
        )
        super().__init__(installation, site, pair, documents, clock)
        self._broker = self.settings.broker
        self._reading: GroupWire | None = None

    def _process(self, addresses: tuple[str, str | None, str | None], node: Node | None) -> Process:
        name, url, stomp = addresses
        return Process(
            name, url or "", stomp, lambda: self._opened(url, node), lambda within_s: self._tried(stomp, node, within_s)
        )

    @staticmethod
    @abstractmethod
    def find_broker(reader: Reader, *, timeout_s: float) -> str:
        """The broker's own name. Raises `BrokerError`."""

    @abstractmethod
    def _ask(self, broker: str, timeout_s: float) -> V_co:
        """Ask that broker for everything."""

    def _everything(self, timeout_s: float) -> V_co:
        if self.group.broker is not None:
            self._broker = self.group.broker
        elif self._broker is None:
            self._broker = self.find_broker(self.reader(), timeout_s=timeout_s)
        return self._ask(self._broker, timeout_s)

    @property
    def stomp(self) -> str | None:
        return (self.group.last or self.group.processes[0]).stomp

    @property
    def has_console(self) -> bool:
        return all(each.url for each in self.group.processes)

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset(parse_address(each.stomp).host for each in self.group.processes if each.stomp is not None)

    @property
    def nodes(self) -> tuple[NodeReading, ...]:
        return self.group.readings

    @property
    def left_s(self) -> float:
        return self.group.left_s

    @property
    def turn(self) -> str:
        return self.group.activation

    @property
    def takeover_s(self) -> float:
        return self.group.takeover_s

    def is_vacant(self, *, anew: bool = False) -> bool:
        try:
            self.group.found(anew=anew)
        except NobodyActive as error:
            return error.taking_over
        return False

    def refuses(self, error: BrokerError, *, within_s: float) -> bool:
        if self.group.alone:
            return super().refuses(error, within_s=within_s)
        return all(each.state is NodeState.REFUSES for each in self.nodes)

    def read(self, parts: Part = EVERYTHING, *, timeout_s: float = READ_S) -> V_co:
        """Ask all nodes, each who it is, and the active one for these parts as well. Where several are active, it is
        the one that lets clients in."""
        group, view, failed = self.group, None, None
        if group.alone:
            return super().read(parts, timeout_s=timeout_s)
        before = group.last
        group.begin()
        if before is not None:
            try:
                view = super().read(parts, timeout_s=timeout_s)
            except BrokerError as error:
                failed = error
        active = group.end(before if view is not None else None)
        if failed is not None and active == [before] and not isinstance(failed, Passive | Unreachable):
            raise failed
        if view is None or len(active) > 1:
            views = [self._at(each, parts, timeout_s) for each in active]
            view = next((each for each in views if each.open), views[0])
        return replace(view, nodes=group.readings)

    def _at(self, process: Process, parts: Part, timeout_s: float) -> V_co:
        """What that node tells. Nothing is known there by an earlier reading of another one."""
        self.group.last, self.newest = process, None
        self.config = self._config()
        return super().read(parts | EVERYTHING, timeout_s=timeout_s)

    def greet(self, *, timeout_s: float) -> Greeting | None:
        """Connect once as a client, to every node that is not out of reach: a listener that lets anybody in is open."""
        away = {each.name for each in self.nodes if each.state is NodeState.UNKNOWN}
        others = [each for each in self.group.processes if each is not self.group.last and each.name not in away]
        if self.group.alone or not others:
            return super().greet(timeout_s=timeout_s)
        greetings = together([partial(each.greeted, timeout_s) for each in others], "greet", most=len(others))
        return next((each for each in greetings if isinstance(each, Connected)), super().greet(timeout_s=timeout_s))

    def _tried(self, stomp: str | None, node: Node | None, within_s: float) -> Greeting | None:
        from dr_ctl.stomp_io.client import greet  # noqa: PLC0415 - stomp.py is loaded by who asks a port, not by a look

        if stomp is None:
            return None
        there = gate(self._installation, self.site, stomp, Login(*self._login(node)))
        return greet(there.address, there.login, there.tls, timeout_s=within_s)

    def _login(self, node: Node | None) -> tuple[str, str]:
        """Raises `SecretMissing`."""
        secret = node.password if node is not None else None
        password = resolve(secret, self._installation.file.parent) if secret is not None else self._secret()
        return (node.username if node is not None else None) or self.settings.username, password

    def _opened(self, url: str | None, node: Node | None) -> Wire:
        if url is None:
            text = f"{self.site}/{self.pair}: the settings name no `jolokia:`, so nothing can be managed there"
            raise Unreachable(text, refused=False)
        username, password = self._login(node)
        secret = (node.password if node is not None else None) or self.settings.password
        return Wire(account(self._installation, self.site, url, username, secret, password))

    def wire(self, *, every: bool = False) -> GroupWire:
        """Open a connection of its own to the management of the node that is active, or of `every` one that is."""
        return GroupWire(self.group, every=every)

    def reader(self) -> Reader:
        if self._reading is None:
            self._reading = self.wire()
        return Reader(self._reading)

    def channel(self) -> common.Channel:
        return Channel(self.wire(every=True))

    def close(self) -> None:
        if self._reading is not None:
            self._reading.close()
        self.group.close()


class Channel:
    """Implements `common.access.Channel` over one connection."""

    def __init__(self, wire: GroupWire) -> None:
        self._wire, self._changer = wire, Changer(wire)

    def send(self, calls: Sequence[Call]) -> list[Outcome]:
        answers = self._changer.change([change(call) for call in calls], timeout_s=CHANGE_S)
        return [Done("answered") if each.error is None else Refused(str(each.error)) for each in answers]

    def close(self) -> None:
        self._wire.close()
