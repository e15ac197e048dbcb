"""The ways to a workload: looking whether it runs, and starting or stopping it, a kind each."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import Json
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Done, Outcome, Refused, Unknown
from dr_ctl.jolokia import values
from dr_ctl.jolokia.client import Account, Change, Changer, Read, Reader, Wire
from dr_ctl.jolokia.http import ElementError, Http
from dr_ctl.jolokia.values import Fields
from dr_ctl.processes.hooks import Place
from dr_ctl.processes.secrets import resolve
from dr_ctl.settings.model import Installation
from dr_ctl.settings.parts import CamelRoutes, Commands, HttpService, SystemdUnit
from dr_ctl.topologies.topology import PartState
from dr_ctl.topologies.workloads.calls import systemctl

# Wait longer than the whole time of the call: the late answer says whether it worked.
ANSWER_S: Final = 10.0
_STOPPED_EXIT: Final = 3  # of `systemctl is-active`, and of every status command that keeps to the LSB
_LINE_BYTES: Final = 4096


class NotRead(BrokerError):
    remedy = "Is it there, and may dr-ctl ask it? `dr-ctl status` asks again."


@dataclass(frozen=True, slots=True)
class Told:
    """The result of one look at the parts of a workload."""

    parts: Mapping[str, PartState]
    detail: str = ""


class Way(Protocol):
    """One workload. Raises `BrokerError`."""

    def look(self, timeout_s: float) -> Told:
        """Ask once. An answer that is not certain is an error, never a state."""

    def send(self, call: Call) -> Outcome:
        """Start or stop a part; an answer is done or refused. A later look shows the effect."""

    def close(self) -> None: ...


class CamelWay:
    """Routes of Camel behind Jolokia: looked at on one connection and changed on another, for a stop takes its time."""

    def __init__(self, settings: CamelRoutes, installation: Installation, site: str) -> None:
        self._settings, self._installation, self._site = settings, installation, site
        self._wires: dict[str, Wire] = {}

    def look(self, timeout_s: float) -> Told:
        patterns = [
            f"org.apache.camel:context=*,name={values.quote(each)},type=routes" for each in self._settings.routes
        ]
        reads = [Read(pattern, ("State", "ExchangesInflight")) for pattern in patterns]
        parts, held = dict[str, PartState](), 0
        for route, answer in zip(
            self._settings.routes, Reader(self._wire("look")).look(reads, timeout_s=timeout_s), strict=True
        ):
            found = _found(route, answer.value())
            for bean, fields in found.items():
                in_flight = fields.count("ExchangesInflight")
                parts[bean] = _route_state(fields.text("State"), in_flight)
                held += in_flight
        return Told(parts, f"{held} in flight" if held else "")

    def send(self, call: Call) -> Outcome:
        arguments: Any = call.request["arguments"]
        change = Change(str(call.request["bean"]), str(call.request["operation"]), tuple(arguments))
        [answer] = Changer(self._wire("change")).change([change], timeout_s=self._settings.timeout + ANSWER_S)
        try:
            finished = answer.value()
        except ElementError as error:
            return Refused(str(error))
        if finished is False:
            return Refused(f"what it holds was not finished within {self._settings.timeout:g} s, and it goes on")
        return Done("answered")

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()

    def _wire(self, what: str) -> Wire:
        if what not in self._wires:
            self._wires[what] = Wire(self._account())
        return self._wires[what]

    def _account(self) -> Account:
        settings, site, path = self._settings, self._installation.settings.sites[self._site], self._installation.path
        parts, tls = urlsplit(settings.jolokia), site.tls
        return Account(
            url=settings.jolokia,
            username=settings.username or "",
            password=resolve(settings.password, self._installation.file.parent)
            if settings.password is not None
            else "",
            origin=site.origin or f"{parts.scheme}://{parts.hostname or ''}",
            verify=(str(path(tls.ca)) if tls.ca is not None else True) if tls.verify else False,
            cert=(str(path(tls.cert)), str(path(tls.key or tls.cert))) if tls.cert is not None else None,
            source=settings.password.source if settings.password is not None else "the settings file",
        )


def _found(route: str, value: Any) -> Mapping[str, Fields]:
    """The fields that were read of a route, by the name of its bean."""
    if not isinstance(value, dict) or not value:
        raise NotRead(f"no route {route} is there")
    return {str(bean): Fields(str(bean), read) for bean, read in value.items()}


def _route_state(state: str, in_flight: int) -> PartState:
    if state == "Started":
        return PartState.RUNNING
    return PartState.STOPPED if state == "Stopped" and in_flight == 0 else PartState.BETWEEN


class SystemdWay:
    def __init__(self, settings: SystemdUnit, place: Place, site: str) -> None:
        self._settings, self._place, self._site = settings, place, site

    def look(self, timeout_s: float) -> Told:
        words = [*systemctl(self._settings), "is-active", self._settings.unit]
        what = f"systemctl is-active {self._settings.unit}"
        outcome = self._place.run(what, words, timeout_s, _facts(self._settings.name, self._site))
        said = str(outcome.evidence.get("said", "")).strip()
        code = outcome.evidence.get("exit_code")
        if code == 0 and said in ("active", "reloading"):
            return Told({self._settings.name: PartState.RUNNING})
        if code == _STOPPED_EXIT and said in ("inactive", "failed"):
            return Told({self._settings.name: PartState.STOPPED}, said if said == "failed" else "")
        if said in ("activating", "deactivating"):
            return Told({self._settings.name: PartState.BETWEEN}, said)
        raise NotRead(outcome.text if code != 0 else f"{what} said {said!r}")

    def send(self, call: Call) -> Outcome:
        return _run(self._place, call, self._settings.timeout, _facts(self._settings.name, self._site))

    def close(self) -> None: ...


class CommandWay:
    def __init__(self, settings: Commands, place: Place, site: str) -> None:
        self._settings, self._place, self._site = settings, place, site

    def look(self, timeout_s: float) -> Told:
        what = f"the state command of {self._settings.name}"
        outcome = self._place.run(what, self._settings.state, timeout_s, _facts(self._settings.name, self._site))
        match outcome.evidence.get("exit_code"):
            case 0:
                return Told({self._settings.name: PartState.RUNNING})
            case code if code == _STOPPED_EXIT:
                return Told({self._settings.name: PartState.STOPPED})
        raise NotRead(outcome.text)

    def send(self, call: Call) -> Outcome:
        return _run(self._place, call, self._settings.timeout, _facts(self._settings.name, self._site))

    def close(self) -> None: ...


def _facts(name: str, site: str) -> dict[str, Json]:
    return {"workload": name, "site": site}


def _run(place: Place, call: Call, timeout_s: float, facts: Mapping[str, Json]) -> Outcome:
    words: Any = call.request["run"]
    return place.run(f"the {call.goal.value} command of {call.thing}", words, timeout_s, facts)


class HttpWay:
    """A service with an HTTP interface. A proxy of the environment is not used."""

    def __init__(self, settings: HttpService, verify: bool | str) -> None:
        self._settings, self._http = settings, Http({}, verify)

    def look(self, timeout_s: float) -> Told:
        state, name = self._settings.state, self._settings.name
        status, line = self._asked("GET", state.get, timeout_s)
        if status != HTTPStatus.OK:
            raise NotRead(f"{state.get}: HTTP {status}")
        if line == state.running:
            return Told({name: PartState.RUNNING})
        if line == state.stopped or (state.stopped is None and line and "\n" not in line):
            return Told({name: PartState.STOPPED})
        raise NotRead(f"{state.get}: says neither that it runs nor that it does not: {line[:60]!r}")

    def send(self, call: Call) -> Outcome:
        url = str(call.request["post"])
        status, line = self._asked("POST", url, self._settings.timeout)
        if status < HTTPStatus.BAD_REQUEST:
            return Done("answered")
        # A gateway that gives up says nothing of what it passed on.
        worked = Unknown if status >= HTTPStatus.INTERNAL_SERVER_ERROR else Refused
        return worked(f"{url}: HTTP {status} {line[:60]}".rstrip())

    def close(self) -> None:
        self._http.close()

    def _asked(self, method: str, url: str, timeout_s: float) -> tuple[int, str]:
        answer = self._http.ask(method, url, timeout_s=timeout_s, most=_LINE_BYTES)
        return answer.status, answer.body[:_LINE_BYTES].decode("utf-8", "replace").strip()
