"""Reads, starts and stops the workloads of an installation, with a client for each kind."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final, assert_never

from dr_ctl.core.errors import BrokerError, LoginRefused, Throttled, Unreachable
from dr_ctl.core.model import Json
from dr_ctl.core.system import boottime_s, in_background, in_parallel
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.core.tls import TlsFiles
from dr_ctl.engine.holding import Lease
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Done, Failed, Outcome, Unknown
from dr_ctl.jolokia import values
from dr_ctl.jolokia.client import Read, Reader, Wire, make_changes
from dr_ctl.jolokia.http import ElementError, Http, NotConnected
from dr_ctl.jolokia.values import Fields
from dr_ctl.processes.hooks import CommandContext
from dr_ctl.processes.secrets import SecretMissing, variables
from dr_ctl.settings.model import Installation
from dr_ctl.settings.parts import CamelRoutes, Commands, HttpService, SystemdUnit, Workload
from dr_ctl.topologies.common.session import account, change
from dr_ctl.topologies.common.topology import Companion, S
from dr_ctl.topologies.topology import PartState, WorkloadSnapshot
from dr_ctl.topologies.workloads.recipe import systemctl

# The wait is this much longer than the call itself, because its late answer shows whether it worked.
ANSWER_S: Final = 10.0
_STOPPED_EXIT: Final = 3  # the exit code of `systemctl is-active`, and of other status commands that follow the LSB
_WORDS_OF_STATE: Final = {PartState.RUNNING: ("active", "reloading"), PartState.STOPPED: ("inactive", "failed")}
"""The words of `systemctl is-active` for each state."""
_LINE_BYTES: Final = 4096


class NotRead(BrokerError):
    remedy = "Does it exist, and may dr-ctl read it? `dr-ctl status` reads it again."


Reading = tuple[Mapping[str, PartState], str]
"""The state of each part of a workload, and a detail for people. An uncertain answer is an error, never a state. Only a
later reading shows that a part was started or stopped."""


class CamelClient:
    """Reads routes of Camel over one connection to Jolokia, and changes them over another: a stop takes long."""

    def __init__(self, settings: CamelRoutes, installation: Installation, site: str) -> None:
        self._settings, self._installation, self._site = settings, installation, site
        self._wires: dict[str, Wire] = {}

    def read(self, timeout_s: float) -> Reading:
        patterns = [
            f"org.apache.camel:context=*,name={values.quote(route)},type=routes" for route in self._settings.routes
        ]
        reads = [Read(pattern, ("State", "ExchangesInflight")) for pattern in patterns]
        answers = Reader(self._wire("read")).read(reads, timeout_s=timeout_s)
        parts, held = dict[str, PartState](), 0
        for route, answer in zip(self._settings.routes, answers, strict=True):
            value = answer.value()
            if not isinstance(value, dict) or not value:
                raise NotRead(f"there is no route {route}")
            for bean, attributes in value.items():
                fields = Fields(bean, attributes)
                in_flight = fields.count("ExchangesInflight")
                ended = PartState.BETWEEN if in_flight else PartState.STOPPED
                states = {"Started": PartState.RUNNING, "Stopped": ended}
                parts[bean] = states.get(fields.text("State"), PartState.BETWEEN)
                held += in_flight
        return parts, f"{held} in flight" if held else ""

    def send(self, call: Call) -> Outcome:
        within_s = self._settings.timeout + ANSWER_S
        [answer] = make_changes(self._wire("change"), [change(call.request)], timeout_s=within_s)
        try:
            finished = answer.value()
        except ElementError as error:
            return Failed(str(error))
        if finished is False:
            return Failed(f"its messages were not finished within {self._settings.timeout:g} s, and it continues")
        return Done("answered")

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()

    def _wire(self, purpose: str) -> Wire:
        if purpose not in self._wires:
            settings = self._settings
            login = settings.username, settings.password
            self._wires[purpose] = Wire(account(self._installation, self._site, settings.jolokia, *login))
        return self._wires[purpose]


class CommandClient:
    def __init__(self, settings: SystemdUnit | Commands, command_context: CommandContext, site: str) -> None:
        self._settings, self._context = settings, command_context
        self._facts: dict[str, Json] = {"workload": settings.name, "site": site}

    def read(self, timeout_s: float) -> Reading:
        settings, said = self._settings, ""
        if isinstance(settings, SystemdUnit):
            subject, words = f"systemctl is-active {settings.unit}", [*systemctl(settings), "is-active", settings.unit]
        else:
            subject, words = f"the state command of {settings.name}", [*settings.state]
        outcome = self._context.run(subject, words, timeout_s, self._facts)
        code = outcome.evidence.get("exit_code")
        state = {0: PartState.RUNNING, _STOPPED_EXIT: PartState.STOPPED}.get(code) if isinstance(code, int) else None
        if isinstance(settings, SystemdUnit):
            said = str(outcome.evidence.get("said", "")).strip()
            between = PartState.BETWEEN if said in ("activating", "deactivating") else None
            state = state if state is not None and said in _WORDS_OF_STATE[state] else between
        if state is None:
            raise NotRead(outcome.text if code != 0 else f"{subject} printed {said!r}")
        return {settings.name: state}, said if said in ("failed", "activating", "deactivating") else ""

    def send(self, call: Call) -> Outcome:
        words: Any = call.request["run"]
        subject = f"the {call.goal.value} command of {call.resource}"
        return self._context.run(subject, words, self._settings.timeout, self._facts)

    def close(self) -> None: ...


class HttpClient:
    """A service with an HTTP interface. A proxy of the environment is not used."""

    def __init__(self, settings: HttpService, tls: TlsFiles) -> None:
        self._settings, self._http = settings, Http({}, tls)

    def read(self, timeout_s: float) -> Reading:
        state, name = self._settings.state, self._settings.name
        status, line = self._request("GET", state.get, timeout_s)
        if status != HTTPStatus.OK:
            raise NotRead(f"{state.get}: HTTP {status}")
        if line == state.running:
            return {name: PartState.RUNNING}, ""
        if line == state.stopped or (state.stopped is None and line and "\n" not in line):
            return {name: PartState.STOPPED}, ""
        raise NotRead(f"{state.get}: the answer shows neither of the two states: {line[:60]!r}")

    def send(self, call: Call) -> Outcome:
        url = str(call.request["post"])
        status, line = self._request("POST", url, self._settings.timeout)
        if status < HTTPStatus.BAD_REQUEST:
            return Done("answered")
        # An error of a gateway does not show whether the service got the request.
        worked = Unknown if status >= HTTPStatus.INTERNAL_SERVER_ERROR else Failed
        return worked(f"{url}: HTTP {status} {line[:60]}".rstrip())

    def close(self) -> None:
        self._http.close()

    def _request(self, method: str, url: str, timeout_s: float) -> tuple[int, str]:
        answer = self._http.ask(method, url, timeout_s=timeout_s, max_bytes=_LINE_BYTES)
        return answer.status, answer.body[:_LINE_BYTES].decode("utf-8", "replace").strip()


LOCKED_S: Final = 30.0  # the lock must be valid for this time when a call is sent; the run renews it
_MAX_PARALLEL: Final = 8
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class WorkloadTimeouts:
    read_s: float = 5.0
    """The time limit for reading a workload."""
    poll_s: float = 0.1
    """The time between readings of a workload that was started or stopped."""


class WorkloadSites(Companion):
    """An instance serves one command. `workloads` are those of the settings, by site and name."""

    def __init__(self, installation: Installation, timeouts: Timeouts) -> None:
        self.workloads: Mapping[Key, Workload] = {
            (site, workload.name): workload
            for site, site_settings in installation.settings.sites.items()
            for workload in site_settings.workloads
        }
        self._timeouts = timeouts
        self._clients = {key: _client(workload, installation, key[0]) for key, workload in self.workloads.items()}
        self._left_s: dict[str, float] = {}

    def spend_at_most(self, seconds: float, site: str) -> None:
        """Limit the total time for reading the workloads of a site that may be lost."""
        self._left_s[site] = seconds

    def read_with(self, read: Callable[[], S]) -> S:
        workloads = in_background(self.read, "workloads")
        try:
            snapshot = read()
        finally:
            workloads.wait()
        return replace(snapshot, workloads=workloads.result())

    def read_at(self, *keys: Key) -> list[WorkloadSnapshot]:
        """Read some of them, by site and name, even if their site's time is used up."""
        return self.read(keys, min_timeout_s=self._timeouts.last_reading_s)

    def others(self, site: str, name: str) -> list[WorkloadSnapshot]:
        """Read the same workload at the other site now, if that site has one."""
        return self.read_at(*(key for key in self.workloads if key[1] == name and key[0] != site))

    def is_singleton(self, name: str) -> bool:
        return any(workload.singleton for workload in self.workloads.values() if workload.name == name)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def send(self, call: Call, lease: Lease | None) -> Outcome:
        if (why := _why_locked(call, lease)) is not None:
            return Failed(why)
        try:
            return self._clients[call.site, call.resource].send(call)
        except (LoginRefused, Throttled, SecretMissing) as error:
            return Failed(str(error))
        except Unreachable as error:
            return Failed(str(error)) if isinstance(error, NotConnected) else Unknown(str(error))
        except BrokerError as error:
            return Unknown(str(error))

    def read(self, keys: Sequence[Key] | None = None, *, min_timeout_s: float = 0.0) -> list[WorkloadSnapshot]:
        """Read all workloads or some of them, in parallel. Silent ones use up their site's time; after that their limit
        is `min_timeout_s`."""
        keys = list(self.workloads) if keys is None else keys
        began, read_s = boottime_s(), self._timeouts.of(WorkloadTimeouts).read_s
        times = [max(min(read_s, self._left_s.get(site, read_s)), min_timeout_s) for site, _ in keys]
        readings = [partial(self._read, key, timeout_s) for key, timeout_s in zip(keys, times, strict=True)]
        answers = in_parallel(readings, "workload", most=_MAX_PARALLEL)
        for site in {workload.site for workload in answers if workload.silent is not None} & self._left_s.keys():
            self._left_s[site] = max(self._left_s[site] - (boottime_s() - began), 0.0)
        return answers

    def _read(self, key: Key, timeout_s: float) -> WorkloadSnapshot:
        workload, singleton = self.workloads[key], self.is_singleton(key[1])
        make_snapshot = partial(WorkloadSnapshot, key[0], workload.name, workload.kind, singleton, alone=workload.alone)
        silent, refuses = "it is not read again: its site's time is used up", False
        try:
            if timeout_s > 0:
                return make_snapshot(*self._clients[key].read(timeout_s))
        except BrokerError as error:
            silent, refuses = str(error), isinstance(error, Unreachable) and error.refused
        return make_snapshot(silent=silent, refuses=refuses)


def _why_locked(call: Call, lease: Lease | None) -> str | None:
    """Return the reason why the lock permits no call now, read at a broker with the lock, of this site if possible."""
    if lease is None:
        return None
    locks = sorted((slot.key for slot in lease.locks if slot.held is not None), key=lambda key: key[0] != call.site)
    return lease.why_not(*(locks or [slot.key for slot in lease.locks])[0], LOCKED_S)


def _client(workload: Workload, installation: Installation, site: str) -> CamelClient | CommandClient | HttpClient:
    command_context = CommandContext(installation.file.parent, variables(installation.settings))
    match workload:
        case CamelRoutes():
            return CamelClient(workload, installation, site)
        case SystemdUnit() | Commands():
            return CommandClient(workload, command_context, site)
        case HttpService():
            return HttpClient(workload, replace(installation.tls(site), cert=None, key=None))
        case _:
            assert_never(workload)
