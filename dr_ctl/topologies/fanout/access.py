"""The way to each broker of a fan-out installation, for looks, for changes, and for the messages that are copied."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from dr_ctl.core.clock import Clock
from dr_ctl.engine.outcome import Done, Outcome
from dr_ctl.engine.plan import Call
from dr_ctl.jolokia.client import Wire
from dr_ctl.processes.secrets import resolve
from dr_ctl.settings.model import Installation
from dr_ctl.settings.topologies.classic_fanout import ClassicFanout, FanoutBroker
from dr_ctl.stomp_io.address import Login
from dr_ctl.topologies.classic import access
from dr_ctl.topologies.classic.access import Papers
from dr_ctl.topologies.common.access import Gate, gate
from dr_ctl.topologies.common.calls import items
from dr_ctl.topologies.common.idstore import Store
from dr_ctl.topologies.fanout.copying import COPY, IDS, CannotCopy, CopiedMessage, put, read
from dr_ctl.topologies.fanout.look import look
from dr_ctl.topologies.fanout.view import BrokerView, FanoutConfig


def ids_of(installation: Installation) -> Store | None:
    """The store of ids that the consumers of both sites share, if they have one."""
    ids = installation.of(ClassicFanout).ids
    return Store(installation.path(ids.sqlite), ids.table, ids.queue, ids.id) if ids else None


class Access(access.Access[BrokerView]):
    """`carries` holds messages read at the peer that are to be put down here, by queue and id."""

    def __init__(self, installation: Installation, site: str, pair: str, documents: Path, clock: Clock) -> None:
        settings, pairs = installation.broker(site, pair, FanoutBroker), installation.of(ClassicFanout)
        self._sync = settings.sync
        connector = settings.sync.connector if settings.sync is not None else None
        self.ids = ids_of(installation)
        self.own = FanoutConfig(settings.producers, connector, pairs.id_header, self.ids is not None)
        self.carries: dict[tuple[str, str], CopiedMessage] = {}
        super().__init__(installation, site, pair, documents, clock)

    def _ask(self, broker: str, timeout_s: float) -> BrokerView:
        return look(
            self.reader(),
            self.document_files,
            pair=self.pair,
            site=self.site,
            config=self.config,
            own=replace(self.own, unread=self.ids.unread() if self.ids is not None else None),
            broker=broker,
            timeout_s=timeout_s,
        )

    def _own_gate(self) -> Gate:
        """dr-ctl's own way in for messages. Raises `BrokerError`."""
        sync = self._sync
        if sync is None:
            raise CannotCopy(
                f"{self.site}/{self.pair}: the settings name no `sync:`, so no message can be copied",
                remedy="Name there a STOMP connector that no client uses.",
            )
        login = Login(sync.username, resolve(sync.password, self._installation.file.parent))
        return gate(self._installation, self.site, sync.stomp, login)

    def messages(self, queue: str, wanted: Collection[str]) -> Mapping[str, CopiedMessage]:
        """Read these messages as they lie here. Raises `BrokerError`."""
        return read(self._own_gate(), queue, self.own.id_header, wanted)

    def put(self, queue: str, ids: Sequence[str]) -> int:
        """Put down those of these that it carries, and say how many. Raises `BrokerError`."""
        mine = [self.carries[queue, each] for each in ids if (queue, each) in self.carries]
        if mine:
            put(self._own_gate(), queue, mine)
        return len(mine)

    def channel(self) -> Channel:
        return Channel(self.wire(), self.document_files, self)


class Channel(access.Channel):
    """Puts messages down too."""

    def __init__(self, wire: Wire, document_files: Papers, here: Access) -> None:
        super().__init__(wire, document_files)
        self._here = here

    def send(self, calls: Sequence[Call]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for copies, several in groupby(calls, lambda call: COPY in call.request):
            batch = [*several]
            outcomes += [self._copied(call) for call in batch] if copies else super().send(batch)
        return outcomes

    def _copied(self, call: Call) -> Outcome:
        ids = [str(each) for each in items(call.request, IDS)]
        return Done(f"{self._here.put(str(call.request[COPY]), ids)} put down")


Way = tuple[Access, Access]
