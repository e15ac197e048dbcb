"""The workloads of an installation: looks go out side by side, starts and stops one by one under the run's lock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, assert_never

from dr_ctl.core.errors import BrokerError, LoginRefused, Throttled, Unreachable
from dr_ctl.core.system import growing_s, together
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.engine.holding import Lease
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Outcome, Refused, Unknown
from dr_ctl.jolokia.http import NotConnected
from dr_ctl.processes.hooks import Place
from dr_ctl.processes.secrets import SecretMissing, variables
from dr_ctl.settings.model import Installation
from dr_ctl.settings.parts import CamelRoutes, Commands, HttpService, SystemdUnit, Workload
from dr_ctl.topologies.topology import WorkloadSnapshot
from dr_ctl.topologies.workloads.ways import CamelWay, CommandWay, HttpWay, SystemdWay, Way

LOCKED_S: Final = 30.0  # seconds of the lock that must be left when a call goes out; the run renews the lock meanwhile
_AT_ONCE: Final = 8
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class WorkloadTimeouts:
    """Waits in seconds."""

    read_s: float = 5.0
    """For a workload to say whether it runs."""
    poll_s: float = 0.1
    """Between looks at one that was started or stopped."""


class WorkloadSites:
    """An instance serves one command. `told` are the workloads of the settings, by site and name."""

    def __init__(self, installation: Installation, timeouts: Timeouts) -> None:
        self.told: Mapping[Key, Workload] = {
            (site, each.name): each for site, of in installation.settings.sites.items() for each in of.workloads
        }
        self._timeouts = timeouts
        self._ways = {
            (site, workload.name): _way(workload, installation, site) for (site, _), workload in self.told.items()
        }
        self._left_s: dict[str, float] = {}

    def spend_at_most(self, seconds: float, site: str) -> None:
        """Bound all waiting for the workloads of a site that may be lost."""
        self._left_s[site] = seconds

    def look(self, *, least_s: float = 0.0) -> list[WorkloadSnapshot]:
        """Look at all of them once; with `least_s` for so long at a site whose time is spent, too."""
        return self._looked(list(self.told), least_s)

    def look_at(self, *keys: Key) -> list[WorkloadSnapshot]:
        """Look at some of them, by site and name, whatever was spent before."""
        return self._looked(keys, self._timeouts.last_look_s)

    def others(self, site: str, name: str) -> list[WorkloadSnapshot]:
        """Look at the same workload at the other site now; empty where that site has none."""
        return self.look_at(*(key for key in self.told if key[1] == name and key[0] != site))

    def is_singleton(self, name: str) -> bool:
        return any(workload.singleton for workload in self.told.values() if workload.name == name)

    def close(self) -> None:
        for way in self._ways.values():
            way.close()

    def send(self, call: Call, lease: Lease | None) -> Outcome:
        """Send one call: an answer is done or refused, silence is unknown."""
        if (why := _why_locked(call, lease)) is not None:
            return Refused(why)
        try:
            return self._ways[call.site, call.thing].send(call)
        except (LoginRefused, Throttled, SecretMissing) as error:
            return Refused(str(error))
        except Unreachable as error:
            return Refused(str(error)) if isinstance(error, NotConnected) else Unknown(str(error))
        except BrokerError as error:
            return Unknown(str(error))

    def _looked(self, keys: Sequence[Key], least_s: float) -> list[WorkloadSnapshot]:
        """Look side by side; time spent on silent workloads is taken from their site's time."""
        began, read_s = growing_s(), self._timeouts.of(WorkloadTimeouts).read_s
        times = [max(min(read_s, self._left_s.get(site, read_s)), least_s) for site, _ in keys]
        looks = [partial(self._look, key, timeout_s) for key, timeout_s in zip(keys, times, strict=True)]
        found = together(looks, "workload", most=_AT_ONCE)
        for site in {each.site for each in found if each.silent is not None} & self._left_s.keys():
            self._left_s[site] = max(self._left_s[site] - (growing_s() - began), 0.0)
        return found

    def _look(self, key: Key, timeout_s: float) -> WorkloadSnapshot:
        workload, singleton = self.told[key], self.is_singleton(key[1])
        silent, refuses = "it is not asked again: its site's time is spent", False
        try:
            if timeout_s > 0:
                found = self._ways[key].look(timeout_s)
                return WorkloadSnapshot(
                    key[0], workload.name, workload.kind, singleton, found.parts, found.detail, alone=workload.alone
                )
        except BrokerError as error:
            silent, refuses = str(error), isinstance(error, Unreachable) and error.refused
        return WorkloadSnapshot(
            key[0], workload.name, workload.kind, singleton, silent=silent, alone=workload.alone, refuses=refuses
        )


def _why_locked(call: Call, lease: Lease | None) -> str | None:
    """Say why the lock lets no call go out now. The lock is read at a broker that holds it, at the call's own site if
    possible."""
    if lease is None:
        return None
    held = sorted((slot.key for slot in lease.slots if slot.held is not None), key=lambda key: key[0] != call.site)
    return lease.why_not(*(held or [slot.key for slot in lease.slots])[0], LOCKED_S)


def _way(workload: Workload, installation: Installation, site: str) -> Way:
    place = Place(installation.file.parent, variables(installation.settings))
    tls = installation.settings.sites[site].tls
    match workload:
        case CamelRoutes():
            return CamelWay(workload, installation, site)
        case SystemdUnit():
            return SystemdWay(workload, place, site)
        case Commands():
            return CommandWay(workload, place, site)
        case HttpService():
            ca: bool | str = str(installation.path(tls.ca)) if tls.ca is not None else True
            return HttpWay(workload, ca if tls.verify else False)
        case _:
            assert_never(workload)
