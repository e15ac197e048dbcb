"""The result of a look at both sites of a pair with the replication plugin; a replica may have no console."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dr_ctl.core.model import Finding, Role
from dr_ctl.topologies.common import seen
from dr_ctl.topologies.replica.calls import KEPT
from dr_ctl.topologies.replica.findings import CONSOLE_CLOSED, RETURNED_LIE_ASIDE
from dr_ctl.topologies.replica.view import BrokerView

CONSOLE = 'Set controlWebConsoleAccess="false" of <replicaPlugin> at both sites: a replica keeps its console then.'


@dataclass(frozen=True, slots=True)
class Shut(seen.Silent):
    """A broker that refuses at its console and at its clients' doors, and takes connections at the plugin's: a replica
    closes all others, a source that starts has not opened them yet. `fetches` says that the peer is a source with a
    replica that fetches."""

    fetches: bool = False

    @property
    def role(self) -> Role:
        return Role.STANDBY if self.fetches else Role.UNKNOWN


class ReplicaSeen(seen.Seen[BrokerView]):
    def findings(self) -> Sequence[Finding]:
        return [*seen.Seen.findings(self), *self._kept(), *(each for _, each in shut(self))]

    def _kept(self) -> Iterator[Finding]:
        """Find messages that a return set aside until their site serves again."""
        for view in self._all():
            for queue in view.queues:
                if queue.name.startswith(KEPT) and queue.depth:
                    text = f"{view.site}/{view.pair}: {queue.depth} message(s) in {queue.name}, which only it has"
                    remedy = f"The next move to {view.site} puts them back into their queue, and they are delivered."
                    yield RETURNED_LIE_ASIDE(text, remedy)


def shut(look: seen.Seen[BrokerView]) -> Iterator[tuple[str, Finding]]:
    """By site, the brokers without a console."""
    for site, brokers in look.sites.items():
        for each in brokers.values():
            if isinstance(each, Shut):
                text = (
                    f"{site}/{each.pair}: all but its connector for replication is closed, its console too: as a "
                    "replica without a console it can neither be compared nor made the source"
                )
                yield site, CONSOLE_CLOSED(text, CONSOLE)
