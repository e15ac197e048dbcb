"""The way to each broker: management and STOMP, opened when first needed. Only looking; see `sending` for changing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from queue import Empty, Queue
from threading import Thread
from typing import Final, Generic, TypeVar
from urllib.parse import urlsplit

from dr_ctl.core.clock import Clock
from dr_ctl.core.errors import BrokerError
from dr_ctl.engine.ports import Move
from dr_ctl.jolokia.client import READ_S, Account, Answer, Changer, Read, Reader, Wire
from dr_ctl.jolokia.errors import Unreachable
from dr_ctl.processes.secrets import resolve
from dr_ctl.settings.model import Broker as BrokerSettings
from dr_ctl.settings.model import Installation, Site
from dr_ctl.settings.topologies.artemis import ArtemisBroker
from dr_ctl.stomp_io.client import (
    Address,
    Closed,
    Greeting,
    Login,
    RoundTrip,
    TlsFiles,
    greet,
    parse_address,
    round_trip,
)
from dr_ctl.topologies.artemis import queues
from dr_ctl.topologies.artemis.look import find_broker, uncovered
from dr_ctl.topologies.artemis.view import Broker, Config, Seen, Silent, V_co

T = TypeVar("T")
A = TypeVar("A")

GREET_S: Final = 3.0
# Two looks this far apart are further apart than the two brokers' answers to one look.
APART_S: Final = 0.15
LOOKS: Final = 4


@dataclass(frozen=True, slots=True)
class Gate:
    """Where clients, probes and agents of one broker connect, and as whom."""

    address: Address
    login: Login
    tls: TlsFiles | None


class Access(ABC, Generic[V_co]):
    """One broker of one site. Its secret is resolved at the first need; one that cannot be had is that broker's fault
    alone. Raises `BrokerError` from every method that asks the broker."""

    def __init__(self, installation: Installation, site: str, pair: str) -> None:
        self.site, self.pair = site, pair
        self._installation = installation
        self._settings = installation.broker(site, pair, ArtemisBroker)
        self.config = self._config()
        self._reading: Wire | None = None
        self._password: str | None = None
        self._broker = self._settings.broker
        self._last: V_co | None = None

    def _config(self) -> Config:
        """What the settings of all such brokers say; a topology adds what its own say beside."""
        return Config(self._settings.clients, self._settings.mirror, None)

    @property
    def _site(self) -> Site[BrokerSettings]:
        return self._installation.settings.sites[self.site]

    @property
    def settings(self) -> ArtemisBroker:
        return self._settings

    def wire(self) -> Wire:
        """Open a connection of its own to the broker's management."""
        tls, url = self._site.tls, self._settings.jolokia
        parts = urlsplit(url)
        ca = str(self._installation.path(tls.ca)) if tls.ca is not None else True
        own = (tls.cert, tls.key or tls.cert) if tls.cert is not None else None
        return Wire(
            Account(
                url=url,
                username=self._settings.username,
                password=self._secret(),
                origin=self._site.origin or f"{parts.scheme}://{parts.hostname}",
                verify=ca if tls.verify else False,
                cert=(str(self._installation.path(own[0])), str(self._installation.path(own[1]))) if own else None,
            )
        )

    def reader(self) -> Reader:
        if self._reading is None:
            self._reading = self.wire()
        return Reader(self._reading)

    def gate(self) -> Gate | None:
        """None where the settings name no STOMP address."""
        if self._settings.stomp is None:
            return None
        tls = self._site.tls
        files = TlsFiles(
            ca=str(self._installation.path(tls.ca)) if tls.ca else None,
            cert=str(self._installation.path(tls.cert)) if tls.cert else None,
            key=str(self._installation.path(tls.key)) if tls.key else None,
            verify=tls.verify,
        )
        address = parse_address(self._settings.stomp)
        return Gate(address, Login(self._settings.username, self._secret()), files if address.tls else None)

    @abstractmethod
    def _look(self, broker: str, timeout_s: float) -> V_co:
        """Ask that broker for everything."""

    @abstractmethod
    def open_doors(self, *, timeout_s: float) -> tuple[str, ...]:
        """The client acceptors through which it says that it serves, in one small look."""

    @staticmethod
    @abstractmethod
    def clock(broker: str) -> Read:
        """What is read to know the broker's own time."""

    @staticmethod
    @abstractmethod
    def clock_ms(answer: Answer) -> int:
        """The broker's time out of that, in milliseconds since 1970."""

    def look(self, *, timeout_s: float = READ_S) -> V_co:
        if self._broker is None:
            self._broker = find_broker(self.reader(), timeout_s=timeout_s)
        self._last = self._look(self._broker, timeout_s)
        return self._last

    def names(self) -> V_co:
        """The last look, where only its names matter: which acceptors, link and outflow there are."""
        return self._last if self._last is not None else self.look()

    def uncovered(self) -> list[str]:
        """Business addresses that the lasting fence leaves out."""
        return uncovered(self.reader(), self.names())

    def greet(self) -> Greeting | None:
        """One attempt to connect as a client; None where the settings name no STOMP address."""
        gate = self.gate()
        return greet(gate.address, gate.login, gate.tls, timeout_s=GREET_S) if gate is not None else None

    def round_trip(self, queue: str, *, timeout_s: float) -> RoundTrip | None:
        gate = self.gate()
        if gate is None:
            return None
        return round_trip(gate.address, gate.login, gate.tls, queue=queue, body="dr-ctl probe", timeout_s=timeout_s)

    def close(self) -> None:
        if self._reading is not None:
            self._reading.close()

    def _secret(self) -> str:
        if self._password is None:
            self._password = resolve(self._settings.password, self._installation.file.parent)
        return self._password


class Observer(ABC, Generic[V_co]):
    """Looks at both sites of one installation. Holds nothing that could change a broker."""

    def __init__(self, installation: Installation, clock: Clock) -> None:
        settings = installation.settings
        self.queues = settings.queues
        self.clock = clock
        self.brokers: Mapping[str, Mapping[str, Access[V_co]]] = {
            site: {broker.name: self._access(installation, site, broker.name) for broker in told.brokers}
            for site, told in settings.sites.items()
        }
        self._left_s: dict[str, float] = {}
        self.pool = ThreadPoolExecutor(max_workers=2 * len(self.all()) + 1, thread_name_prefix="look")

    @abstractmethod
    def _access(self, installation: Installation, site: str, pair: str) -> Access[V_co]:
        """The way to one broker."""

    @abstractmethod
    def _differ(self, seen: Seen[V_co], pair: str) -> bool:
        """Say whether the two brokers of a pair, which both answered, differ by more than one look can explain."""

    @abstractmethod
    def unapplied_at(self, site: str, *, timeout_s: float) -> int:
        """How many acknowledgements have arrived at a site and are not applied; raises `BrokerError`."""

    def spend_at_most(self, seconds: float, site: str) -> None:
        """Bound all waiting for a site that may be lost, name lookup included, over all looks of this command."""
        self._left_s[site] = seconds

    def all(self) -> Sequence[Access[V_co]]:
        return [access for brokers in self.brokers.values() for access in brokers.values()]

    def at(self, site: str) -> Sequence[Access[V_co]]:
        """The brokers of one site."""
        return list(self.brokers[site].values())

    def look_at(self, site: str) -> list[V_co]:
        """Look at every broker of one site; raises `BrokerError` where one does not answer."""
        return self.together(lambda access: access.look(), self.at(site))

    def ways(self, move: Move) -> Sequence[tuple[Access[V_co], Access[V_co]]]:
        """Both brokers of each pair that is still to move, the source's first."""
        there = self.brokers[move.target]
        return [(here, there[pair]) for pair, here in self.brokers[move.source].items() if pair not in move.moved]

    def close(self) -> None:
        self.pool.shutdown(wait=True)
        for access in self.all():
            access.close()

    def together(self, ask: Callable[[A], T], of: Iterable[A]) -> list[T]:
        """Ask several brokers at the same time; the first error is raised after all have answered."""
        futures = [self.pool.submit(ask, access) for access in of]
        errors = [future.exception() for future in futures]
        for error in errors:
            if error is not None:
                raise error
        return [future.result() for future in futures]

    def observe(self) -> Seen[V_co]:
        """Look at both sites at once; look again where counts differ by more than one look can explain."""
        seen = self.look_once()
        for _ in range(LOOKS - 1):
            if not self._puzzling(seen):
                break
            self.clock.sleep(APART_S)
            seen = self._with_movement(seen, self.look_once(seen))
        return seen

    def observe_over(self, seconds: float) -> Seen[V_co]:
        """Two looks so far apart: the second, with what moved since the first."""
        before, began = self.look_once(), self.clock.monotonic()
        self.clock.sleep(seconds)
        after = self.look_once(before)
        moved = self._with_movement(before, after)
        return replace(moved, before=before, took_s=self.clock.monotonic() - began)

    def look_once(self, before: Seen[V_co] | None = None) -> Seen[V_co]:
        """Look once; with a look `before`, what moved since tells a living broker from a flag that is left over."""
        views = dict(zip(((a.site, a.pair) for a in self.all()), self.together(self._view, self.all()), strict=True))
        sites = {
            site: {pair: self._alive_if_attached(views[site, pair], views, pair, before) for pair in brokers}
            for site, brokers in self.brokers.items()
        }
        return Seen(sites)

    def _view(self, access: Access[V_co]) -> V_co | Silent:
        left_s = self._left_s.get(access.site)
        if left_s is None:
            return self._asked(access, READ_S)
        text = f"{access.site}/{access.pair}: no answer in the time that a site which may be lost is given"
        given_up = Silent(access.pair, access.site, Unreachable(text, refused=False))
        if left_s <= 0:
            return given_up
        answer: Queue[V_co | Silent] = Queue()
        # Half of it for an answer: a broker that takes the connection and says nothing is sick, and must be told so.
        ask = partial(self._asked, access, min(READ_S, left_s / 2))
        # A daemon: a name lookup that hangs keeps neither this look nor the end of the command waiting.
        Thread(target=lambda: answer.put(ask()), daemon=True, name=f"look at {access.site}").start()
        began = self.clock.monotonic()
        try:
            view = answer.get(timeout=left_s)
        except Empty:
            view = given_up
        if not isinstance(view, Silent):
            return view
        self._left_s[access.site] = left_s - (self.clock.monotonic() - began)
        return view

    def _asked(self, access: Access[V_co], timeout_s: float) -> V_co | Silent:
        try:
            return access.look(timeout_s=timeout_s)
        except BrokerError as error:
            refuse = False
            if isinstance(error, Unreachable) and error.refused:
                refuse = isinstance(access.greet(), Closed)
            return Silent(access.pair, access.site, error, ports_refuse=refuse)

    def _alive_if_attached(
        self,
        view: V_co | Silent,
        views: Mapping[tuple[str, str], V_co | Silent],
        pair: str,
        before: Seen[V_co] | None,
    ) -> V_co | Silent:
        """A broker whose peer ships to it lives, even when its console and its clients' door refuse.

        A connected flag alone is no sign of life, once a second look shows that nothing moves.
        """
        if isinstance(view, Silent) and view.ports_refuse:
            peers = [other for (site, name), other in views.items() if site != view.site and name == pair]
            for peer in peers:
                was = before.view(peer.site, pair) if before is not None else None
                if not isinstance(peer, Silent) and peer.attached and (was is None or peer.peer_moved(was)):
                    return replace(view, ports_refuse=False)
        return view

    def _puzzling(self, seen: Seen[V_co]) -> bool:
        first, second = seen.sites
        for pair in seen.sites[first]:
            here, there = seen.view(first, pair), seen.view(second, pair)
            if here is None or there is None:
                # Its ports refuse, and its peer's link is connected: only a second look tells whether anything moves.
                silent = [seen.sites[site][pair] for site in (first, second) if seen.view(site, pair) is None]
                refuses = any(_refuses(each) for each in silent)
                if refuses and any(view is not None and view.attached for view in (here, there)):
                    return True
                continue
            if self._differ(seen, pair):
                return True
        return False

    def _with_movement(self, before: Seen[V_co], after: Seen[V_co]) -> Seen[V_co]:
        moved: dict[str, Mapping[str, int]] = {}
        first, second = after.sites
        for pair in after.sites[first]:
            was = [before.view(site, pair) for site in (first, second)]
            now = [after.view(site, pair) for site in (first, second)]
            both = [(w, n) for w, n in zip(was, now, strict=True) if w is not None and n is not None]
            moved[pair] = queues.moved([w for w, _ in both], [n for _, n in both])
        return Seen(after.sites, moved)


def _refuses(view: Broker | Silent) -> bool:
    return isinstance(view, Silent) and isinstance(view.error, Unreachable) and view.error.refused


def changer(access: Access[Broker]) -> tuple[Wire, Changer]:
    """A way to change one broker, on a connection of its own: a change never waits behind a look."""
    wire = access.wire()
    return wire, Changer(wire)
