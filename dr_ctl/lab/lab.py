"""A lab: two sites with real brokers on this machine, a proxy on each link, everything under one directory.

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
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Self

from dr_ctl.core.errors import BrokerError, EnvironmentFault, UsageError
from dr_ctl.lab import brokers, distribution, kinds, processes, settings_file, status, wire
from dr_ctl.lab import state as lab_state
from dr_ctl.lab.cache import release_ports, reserve_ports
from dr_ctl.lab.state import PAIR, LabState, LinkState, SiteState
from dr_ctl.lab.traffic import Load, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from dr_ctl.lab.admin import Admin

UP_S = 90.0
DOWN_S = 15.0
SITE_NAME = re.compile(r"[a-z][a-z0-9-]*")
PORTS_PER_SITE, PORTS_PER_LINK = 4, 2
MOST_PAIRS = 4


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
        pairs: int = 1,
    ) -> Self:
        """Start a new lab and return when all brokers are active, mirror each other, and `serving` lets clients in.

        `delay_ms` is for each direction of each link. `link_auto_start` maps a site to whether its link starts at
        boot; one that does not is not waited for. `admin_door` gives each broker one more open acceptor. `edit`
        changes each broker.xml before the first start; `plugin` is the jar of the continuity plugin; `pairs` says how
        many brokers each site has. EnvironmentFault, with the end of the broker's log, where it is not up within 90 s;
        then nothing of it is left.
        """
        for name in sites:
            if not SITE_NAME.fullmatch(name):
                raise UsageError(f"{name!r} is no name for a site: small letters, digits and hyphens")
        if sites[0] == sites[1] or (serving is not None and serving not in sites):
            raise UsageError(
                f"sites {sites[0]} and {sites[1]}, serving {serving}: two different sites, one of them serving"
            )
        if not 1 <= pairs <= MOST_PAIRS:
            raise UsageError(f"{pairs} pairs: a lab has one to {MOST_PAIRS}, each broker takes half a gigabyte")
        directory = directory.resolve()
        if directory.exists() and any(directory.iterdir()):
            raise UsageError(f"{directory} is not empty", remedy="`dr-ctl lab down` ends a lab that is up there.")
        kind = kinds.of(topology, plugin)
        home = distribution.obtain(kind.distribution)
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)
        state = _new_state(directory, sites, queues, door=admin_door, pairs=pairs)
        lab = cls(directory, replace(state, topology=topology))
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

    @property
    def pairs(self) -> tuple[str, ...]:
        return self.state.pairs

    def site(self, name: str, pair: str | None = None) -> SiteState:
        """Ports, addresses and logins of a site's broker: that of its first pair, as everywhere where none is named."""
        return self.state.site(name, pair)

    def instance(self, site: str, pair: str | None = None) -> Path:
        """Where the broker lives; its logs are in `log`."""
        return self._home(self.site(site, pair))

    def admin(self, site: str, pair: str | None = None, *, timeout_s: float = 5.0) -> Admin:
        """Management of a site's broker, for setting a scene."""
        return self._admin(self.site(site, pair), timeout_s=timeout_s)

    def pid(self, site: str, pair: str | None = None) -> int | None:
        """The broker's process; None where it does not run."""
        process = self.site(site, pair).process
        return process.pid if process is not None and process.alive() else None

    def processes(self) -> list[processes.Process]:
        """Everything that was started and may still run."""
        started = [site.process for site in self.state.sites] + [link.process for link in self.state.links]
        return [one for one in started if one is not None]

    def down(self) -> None:
        """End every process of the lab, brokers first, and remove its directory. Twice is once."""
        running = [site.process for site in self.state.sites if site.process is not None]
        with ThreadPoolExecutor(max_workers=2 * MOST_PAIRS) as side_by_side:
            list(side_by_side.map(lambda process: processes.end(process, within_s=DOWN_S), running))
        for link in self.state.links:
            if link.process is not None:
                processes.end(link.process, within_s=2)
        release_ports(self.directory)
        if (self.directory / lab_state.FILE).exists():
            shutil.rmtree(self.directory)

    def kill(self, site: str, pair: str | None = None) -> None:
        """End a site's brokers with SIGKILL: the site is lost. Returns when their ports refuse. With a pair, its one
        alone, here and in what follows."""
        for broker in self.state.brokers(site, pair):
            if broker.process is not None:
                processes.kill(broker.process)
            self._keep(replace(broker, process=None))

    def stop(self, site: str, pair: str | None = None) -> None:
        """End a site's brokers in an orderly way."""
        for broker in self.state.brokers(site, pair):
            if broker.process is not None:
                processes.end(broker.process, within_s=DOWN_S)
            self._keep(replace(broker, process=None))

    def start(self, site: str, pair: str | None = None, *, wait: bool = True) -> None:
        """Start a site's brokers again, clients kept out; a running one is left alone. Waits until they are active."""
        for broker in self.state.brokers(site, pair):
            if broker.process is None or not broker.process.alive():
                self._keep(brokers.start(self._home(broker), broker))
        if wait:
            self._wait_active(self.state.brokers(site, pair), time.monotonic() + UP_S)

    def freeze(self, site: str) -> None:
        """Stop a site's brokers in their tracks (SIGSTOP): their ports accept, nothing answers."""
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
        for broker in self.state.brokers(site):
            self._admin(broker).open_clients()

    def close_clients(self, site: str) -> None:
        for broker in self.state.brokers(site):
            self._admin(broker).close_clients()

    def create_queue(self, name: str) -> None:
        """Make a queue of any name at every broker, and remember it."""
        for broker in self.state.sites:
            self._admin(broker).create_queue(name)
        if name not in self.state.queues:
            self.state = replace(self.state, queues=(*self.state.queues, name))
            self._save()

    def wait_mirrored(self, within_s: float = 30.0) -> None:
        """Wait until all links are connected; EnvironmentFault where they are not in time."""
        self._wait_links(self.state.sites, time.monotonic() + within_s)

    def target(self, pair: str | None = None) -> Target:
        """Where the clients of a pair may be served: for a `Load` or a `HoldingConsumer`."""
        name = pair or self.pairs[0]
        sites = tuple((broker.name, broker.stomp) for broker in self.state.sites if broker.pair == name)
        return Target(sites, self.state.sites[0].app, partial(self._left, name))

    def load(
        self,
        rate: float,
        *,
        queues: Sequence[str] | None = None,
        producers: int = 2,
        consumers: int = 2,
        work_ms: float = 0.0,
        pair: str | None = None,
    ) -> Load:
        """Prepare traffic for all queues of the lab, or for those; its ledger goes under `ledgers`. Without a pair the
        clients are dealt out over all of them, each pair having at least one of a kind that there is."""
        path = self.ledgers / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}.jsonl"
        names = self.queues if queues is None else tuple(queues)
        first, *beside = [self.target(each) for each in (self.pairs if pair is None else (pair,))]
        least = 1 + len(beside)
        return Load(
            first,
            names,
            rate,
            beside=beside,
            producers=max(producers, least) if producers else 0,
            consumers=max(consumers, least) if consumers else 0,
            work_ms=work_ms,
            ledger_path=path,
        )

    def status(self) -> status.LabStatus:
        """Say how everything is; what does not answer within two seconds is said not to answer."""
        return status.read(self.state)

    def _start_links(self, delay_ms: float) -> None:
        for link in self.state.links:
            argv = [
                sys.executable, "-m", wire.__name__, "--port", str(link.port), "--control", str(link.control),
                "--to", f"127.0.0.1:{self.site(link.target, link.pair).mirror}", "--delay-ms", str(delay_ms),
            ]  # fmt: skip
            process = processes.launch(argv, cwd=self.directory, log=self.directory / f"wire-{link.name}.log")
            self._keep(replace(link, process=process))

    def _create(
        self, home: Path, kind: kinds.Kind, auto_start: Mapping[str, bool], edit: Callable[[str], str] | None
    ) -> None:
        def create(link: LinkState) -> None:
            make = brokers.Make(
                site=self.site(link.source, link.pair),
                peer=self.site(link.target, link.pair),
                link_port=link.port,
                queues=self.queues,
                link_auto_start=auto_start[link.source],
                edit=edit,
            )
            brokers.create(home, self._home(make.site), make, kind)

        with ThreadPoolExecutor(max_workers=2) as side_by_side:
            list(side_by_side.map(create, self.state.links))

    def _start_brokers(self, linked: list[str]) -> None:
        until = time.monotonic() + UP_S
        for name in dict.fromkeys(broker.name for broker in self.state.sites):
            self.start(name, wait=False)
        self._wait_active(self.state.sites, until)
        self._wait_links([broker for broker in self.state.sites if broker.name in linked], until)
        for name in self.queues:
            if not brokers.PLAIN_QUEUE.fullmatch(name):
                self.create_queue(name)

    def _wait_active(self, started: Sequence[SiteState], until: float) -> None:
        for broker in started:
            brokers.wait_active(self._home(broker), broker, self._admin(broker, timeout_s=2), until)

    def _wait_links(self, sources: Sequence[SiteState], until: float) -> None:
        for broker in sources:
            peer = self.state.other(broker.name, broker.pair).name
            connected = partial(self._admin(broker, timeout_s=2).link_attached, peer)
            brokers.wait_until(f"link to {peer}", connected, self._home(broker), broker, until)

    def _home(self, broker: SiteState) -> Path:
        return self.directory / broker.broker

    def _admin(self, broker: SiteState, *, timeout_s: float = 5.0) -> Admin:
        return kinds.admin(self.state.topology, broker, timeout_s=timeout_s)

    def _left(self, pair: str, queues: Sequence[str]) -> int | None:
        """Count what lies in a pair's queues where clients are served; None where no site says that it serves."""
        found: list[int] = []
        for broker in self.state.sites:
            if broker.pair != pair:
                continue
            admin = self._admin(broker, timeout_s=2)
            try:
                if admin.clients_open():
                    depths = admin.depths()
                    found.append(sum(depths.get(name, 0) for name in queues))
            except BrokerError:
                continue
        return sum(found) if found else None

    def _signal(self, site: str, signum: signal.Signals) -> None:
        for broker in self.state.brokers(site):
            if broker.process is None or not processes.send(broker.process, signum):
                raise EnvironmentFault(f"the broker {broker.broker} does not run")

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


def _new_state(directory: Path, sites: tuple[str, str], queues: Sequence[str], *, door: bool, pairs: int) -> LabState:
    app_password = secrets.token_urlsafe(18)  # one for both sites: clients move with the service
    ports = iter(reserve_ports(2 * pairs * (PORTS_PER_SITE + PORTS_PER_LINK), directory))
    names = [PAIR, *(f"orders-{number}" for number in range(2, pairs + 1))]
    made = tuple(
        SiteState(
            name=name,
            http=next(ports),
            clients=next(ports),
            mirror=next(ports),
            door=next(ports) if door else None,
            admin_password=secrets.token_urlsafe(18),
            app_password=app_password,
            pair=pair,
        )
        for pair in names
        for name in sites
    )
    links = tuple(
        LinkState(source=source, target=target, port=next(ports), control=next(ports), pair=pair)
        for pair in names
        for source, target in (sites, sites[::-1])
    )
    return LabState(name=directory.name, sites=made, links=links, queues=tuple(queues))
