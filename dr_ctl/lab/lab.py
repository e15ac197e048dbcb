"""A lab: two sites with a real broker each on this machine, a proxy on each link, everything under one directory.

The processes outlive the command that started them; `lab.json` knows them. A lab that fails to come up leaves nothing
behind. `Lab` is a context manager for those who want it gone at the end of a block.
"""

from __future__ import annotations

import re
import secrets
import shutil
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Self

from dr_ctl.core.errors import BrokerError, EnvironmentFault, UsageError
from dr_ctl.lab import brokers, distribution, kinds, processes, settings_file, wire
from dr_ctl.lab import state as lab_state
from dr_ctl.lab.cache import release_ports, reserve_ports
from dr_ctl.lab.state import LabState, LinkState, SiteState
from dr_ctl.lab.traffic import Load, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from dr_ctl.core.model import Json
    from dr_ctl.lab.admin import Admin

UP_S = 90.0
DOWN_S = 15.0
SITE_NAME = re.compile(r"[a-z][a-z0-9-]*")
PORTS_PER_SITE, PORTS_PER_LINK = 4, 2


@dataclass(frozen=True, slots=True)
class SiteStatus:
    """How a site is. `clients_open` is None where the broker does not say."""

    name: str
    running: bool
    frozen: bool
    answers: bool
    clients_open: bool | None


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """How a link is: what its proxy does, and whether the broker at its source ships over it."""

    source: str
    target: str
    mode: str | None
    delay_ms: float | None
    connected: bool | None


@dataclass(frozen=True, slots=True)
class LabStatus:
    """The whole lab as seen now."""

    name: str
    sites: tuple[SiteStatus, ...]
    links: tuple[LinkStatus, ...]

    def as_json(self) -> dict[str, Json]:
        return asdict(self)


class Lab:
    """A lab that is up. What a method changes of the processes is written down before it returns."""

    def __init__(self, directory: Path, state: LabState) -> None:
        self.directory = directory
        self.state = state

    @classmethod
    def up(
        cls,
        directory: Path,
        *,
        sites: tuple[str, str] = ("london", "paris"),
        serving: str | None = "london",
        queues: Sequence[str] = ("orders.in", "orders.out"),
        delay_ms: float = 0.0,
        link_auto_start: Mapping[str, bool] | None = None,
        admin_door: bool = False,
        edit: Callable[[str], str] | None = None,
        topology: str = lab_state.MIRROR,
        plugin: Path | None = None,
    ) -> Self:
        """Start a new lab and return when both brokers are active, mirror each other, and `serving` lets clients in.

        `delay_ms` is for each direction of each link. `link_auto_start` maps a site to whether its link starts at
        boot; one that does not is not waited for. `admin_door` gives each broker one more open acceptor. `edit`
        changes each broker.xml before the first start; `plugin` is the jar of the continuity plugin. EnvironmentFault,
        with the end of the broker's log, where it is not up within 90 s; then nothing of it is left.
        """
        for name in sites:
            if not SITE_NAME.fullmatch(name):
                raise UsageError(f"{name!r} is no name for a site: small letters, digits and hyphens")
        if sites[0] == sites[1] or (serving is not None and serving not in sites):
            raise UsageError(
                f"sites {sites[0]} and {sites[1]}, serving {serving}: two different sites, one of them serving"
            )
        directory = directory.resolve()
        if directory.exists() and any(directory.iterdir()):
            raise UsageError(f"{directory} is not empty", remedy="`dr-ctl lab down` ends a lab that is up there.")
        kind = kinds.of(topology, plugin)
        home = distribution.obtain(kind.distribution)
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)
        lab = cls(directory, replace(_new_state(directory, sites, queues, door=admin_door), topology=topology))
        try:
            lab._save()
            lab._start_links(delay_ms)
            auto_start = {name: (link_auto_start or {}).get(name, True) for name in sites}
            lab._create(home, kind, auto_start, edit)
            lab._start_brokers([name for name in sites if auto_start[name]])
            settings_file.write(directory, lab.state)
            if serving is not None:
                lab.open_clients(serving)
        except BaseException:
            lab.down()
            raise
        return lab

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Take up a lab that an earlier command started; UsageError where there is none."""
        directory = directory.resolve()
        return cls(directory, lab_state.load(directory))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    @property
    def settings_path(self) -> Path:
        return self.directory / settings_file.NAME

    @property
    def ledgers(self) -> Path:
        """Where loads leave their ledgers."""
        path = self.directory / "ledgers"
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    @property
    def queues(self) -> tuple[str, ...]:
        return self.state.queues

    def site(self, name: str) -> SiteState:
        """Ports, addresses and logins of a site."""
        return self.state.site(name)

    def instance(self, site: str) -> Path:
        """Where the site's broker lives; its logs are in `log`."""
        return self.directory / self.site(site).name

    def admin(self, site: str, *, timeout_s: float = 5.0) -> Admin:
        """Management of a site's broker, for setting a scene."""
        return kinds.admin(self.state.topology, self.site(site), timeout_s=timeout_s)

    def pid(self, site: str) -> int | None:
        """The broker's process; None where it does not run."""
        process = self.site(site).process
        return process.pid if process is not None and process.alive() else None

    def processes(self) -> list[processes.Process]:
        """Everything that was started and may still run."""
        started = [site.process for site in self.state.sites] + [link.process for link in self.state.links]
        return [one for one in started if one is not None]

    def down(self) -> None:
        """End every process of the lab, brokers first, and remove its directory. Twice is once."""
        running = [site.process for site in self.state.sites if site.process is not None]
        with ThreadPoolExecutor(max_workers=2) as side_by_side:
            list(side_by_side.map(lambda process: processes.end(process, within_s=DOWN_S), running))
        for link in self.state.links:
            if link.process is not None:
                processes.end(link.process, within_s=2)
        release_ports(self.directory)
        if (self.directory / lab_state.FILE).exists():
            shutil.rmtree(self.directory)

    def kill(self, site: str) -> None:
        """End a site's broker with SIGKILL: the site is lost. Returns when its ports refuse."""
        state = self.site(site)
        if state.process is not None:
            processes.kill(state.process)
        self._keep(replace(state, process=None))

    def stop(self, site: str) -> None:
        """End a site's broker in an orderly way."""
        state = self.site(site)
        if state.process is not None:
            processes.end(state.process, within_s=DOWN_S)
        self._keep(replace(state, process=None))

    def start(self, site: str, *, wait: bool = True) -> None:
        """Start a site's broker again, clients kept out; a running one is left alone. Waits until it is active."""
        state = self.site(site)
        if state.process is None or not state.process.alive():
            state = brokers.start(self.instance(site), state)
            self._keep(state)
        if wait:
            brokers.wait_active(self.instance(site), state, self.admin(site, timeout_s=2), time.monotonic() + UP_S)

    def freeze(self, site: str) -> None:
        """Stop a site's broker in its tracks (SIGSTOP): its ports accept, nothing answers."""
        self._signal(site, signal.SIGSTOP)

    def thaw(self, site: str) -> None:
        self._signal(site, signal.SIGCONT)

    def cut(self, site_from: str | None = None, mode: str = "refuse") -> None:
        """Cut the links that leave `site_from`, or both: `refuse`, `hang` or `accept` (see the module `wire`)."""
        if mode not in {one.value for one in wire.Mode if one is not wire.Mode.OPEN}:
            raise UsageError(f"a link is cut by refuse, hang or accept, not by {mode!r}")
        self._tell(site_from, {"mode": mode})

    def heal(self, site_from: str | None = None) -> None:
        """Let the links work again; what a proxy held meanwhile is reset, so that brokers dial anew at once."""
        self._tell(site_from, {"mode": wire.Mode.OPEN.value})

    def delay(self, ms: float, site_from: str | None = None) -> None:
        """Make each direction of the links later by so many milliseconds; the round trip grows by twice that."""
        self._tell(site_from, {"delay_ms": ms})

    def open_clients(self, site: str) -> None:
        """Let clients in at a site, as a person at its console could: the other site is not looked at."""
        self.admin(site).open_clients()

    def close_clients(self, site: str) -> None:
        self.admin(site).close_clients()

    def create_queue(self, name: str) -> None:
        """Make a queue of any name at both sites, and remember it."""
        for site in self.state.sites:
            self.admin(site.name).create_queue(name)
        if name not in self.state.queues:
            self.state = replace(self.state, queues=(*self.state.queues, name))
            self._save()

    def wait_mirrored(self, within_s: float = 30.0) -> None:
        """Wait until both links are connected; EnvironmentFault where they are not in time."""
        self._wait_links([site.name for site in self.state.sites], time.monotonic() + within_s)

    def target(self) -> Target:
        """Where this lab's clients may be served: for a `Load` or a `HoldingConsumer`."""
        sites = tuple((site.name, site.stomp) for site in self.state.sites)
        return Target(sites, self.state.sites[0].app, self._left)

    def load(
        self,
        rate: float,
        *,
        queues: Sequence[str] | None = None,
        producers: int = 2,
        consumers: int = 2,
        work_ms: float = 0.0,
    ) -> Load:
        """Prepare traffic for all queues of the lab, or for those; its ledger goes under `ledgers`."""
        path = self.ledgers / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}.jsonl"
        names = self.queues if queues is None else tuple(queues)
        return Load(
            self.target(),
            names,
            rate,
            producers=producers,
            consumers=consumers,
            work_ms=work_ms,
            ledger_path=path,
        )

    def status(self) -> LabStatus:
        """Say how everything is; what does not answer within two seconds is said not to answer."""
        with ThreadPoolExecutor(max_workers=4) as side_by_side:
            sites = side_by_side.map(lambda site: _site_status(self.state, site), self.state.sites)
            links = side_by_side.map(lambda link: _link_status(self.state, link), self.state.links)
            return LabStatus(self.state.name, tuple(sites), tuple(links))

    def _start_links(self, delay_ms: float) -> None:
        for link in self.state.links:
            argv = [
                sys.executable, "-m", wire.__name__, "--port", str(link.port), "--control", str(link.control),
                "--to", f"127.0.0.1:{self.site(link.target).mirror}", "--delay-ms", str(delay_ms),
            ]  # fmt: skip
            process = processes.launch(argv, cwd=self.directory, log=self.directory / f"wire-{link.name}.log")
            self._keep(replace(link, process=process))

    def _create(
        self, home: Path, kind: kinds.Kind, auto_start: Mapping[str, bool], edit: Callable[[str], str] | None
    ) -> None:
        def create(link: LinkState) -> None:
            make = brokers.Make(
                site=self.site(link.source),
                peer=self.site(link.target),
                link_port=link.port,
                queues=self.queues,
                link_auto_start=auto_start[link.source],
                edit=edit,
            )
            brokers.create(home, self.instance(link.source), make, kind)

        with ThreadPoolExecutor(max_workers=2) as side_by_side:
            list(side_by_side.map(create, self.state.links))

    def _start_brokers(self, linked: list[str]) -> None:
        until = time.monotonic() + UP_S
        for site in self.state.sites:
            self.start(site.name, wait=False)
        for site in self.state.sites:
            brokers.wait_active(self.instance(site.name), site, self.admin(site.name, timeout_s=2), until)
        self._wait_links(linked, until)
        for name in self.queues:
            if not brokers.PLAIN_QUEUE.fullmatch(name):
                self.create_queue(name)

    def _wait_links(self, sources: list[str], until: float) -> None:
        for name in sources:
            peer = self.state.other(name).name
            connected = partial(self.admin(name, timeout_s=2).link_attached, peer)
            brokers.wait_until(f"link to {peer}", connected, self.instance(name), self.site(name), until)

    def _left(self, queues: Sequence[str]) -> int | None:
        """Count what lies in the queues where clients are served; None where no site says that it serves."""
        found: list[int] = []
        for site in self.state.sites:
            admin = self.admin(site.name, timeout_s=2)
            try:
                if admin.clients_open():
                    depths = admin.depths()
                    found.append(sum(depths.get(name, 0) for name in queues))
            except BrokerError:
                continue
        return sum(found) if found else None

    def _signal(self, site: str, signum: signal.Signals) -> None:
        process = self.site(site).process
        if process is None or not processes.send(process, signum):
            raise EnvironmentFault(f"the broker of {site} does not run")

    def _tell(self, site_from: str | None, change: Mapping[str, str | float]) -> None:
        if site_from is not None:
            self.site(site_from)
        for link in self.state.links:
            if site_from in {None, link.source}:
                wire.ask(link.control, change)

    def _keep(self, changed: SiteState | LinkState) -> None:
        if isinstance(changed, SiteState):
            self.state = self.state.with_site(changed)
        else:
            self.state = self.state.with_link(changed)
        self._save()

    def _save(self) -> None:
        self.state.save(self.directory)


def _new_state(directory: Path, sites: tuple[str, str], queues: Sequence[str], *, door: bool) -> LabState:
    app_password = secrets.token_urlsafe(18)  # one for both sites: clients move with the service
    ports = iter(reserve_ports(2 * (PORTS_PER_SITE + PORTS_PER_LINK), directory))
    made = tuple(
        SiteState(
            name=name,
            http=next(ports),
            clients=next(ports),
            mirror=next(ports),
            door=next(ports) if door else None,
            admin_password=secrets.token_urlsafe(18),
            app_password=app_password,
        )
        for name in sites
    )
    links = tuple(
        LinkState(source=source, target=target, port=next(ports), control=next(ports))
        for source, target in (sites, sites[::-1])
    )
    return LabState(name=directory.name, sites=made, links=links, queues=tuple(queues))


def _site_status(state: LabState, site: SiteState) -> SiteStatus:
    running = site.process is not None and site.process.alive()
    frozen = site.process is not None and site.process.frozen()
    clients_open = None
    if running:
        try:
            clients_open = kinds.admin(state.topology, site, timeout_s=2).clients_open()
        except BrokerError:
            clients_open = None
    return SiteStatus(site.name, running, frozen, clients_open is not None, clients_open)


def _link_status(state: LabState, link: LinkState) -> LinkStatus:
    try:
        told: wire.WireState | None = wire.ask(link.control, timeout_s=2)
    except EnvironmentFault:
        told = None
    try:
        connected: bool | None = kinds.admin(state.topology, state.site(link.source), timeout_s=2).link_attached(
            link.target
        )
    except BrokerError:
        connected = None
    mode, delay_ms = (told.mode, told.delay_ms) if told else (None, None)
    return LinkStatus(link.source, link.target, mode, delay_ms, connected)
