"""Each kind of workload: what it says of itself is believed where it is certain, and which a move is about."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from dr_ctl.core.timeouts import Timeouts
from dr_ctl.engine.operations import SWAPOVER
from dr_ctl.engine.plan import Goal, Spec
from dr_ctl.engine.ports import Done, Failed, Outcome, UnitSnapshot, Unknown
from dr_ctl.jolokia import values
from dr_ctl.settings.loader import load
from dr_ctl.settings.parts import SystemdUnit
from dr_ctl.topologies.topology import PartState, WorkloadSnapshot
from dr_ctl.topologies.workloads.recipe import RecipeWithWorkloads, is_moved, switch
from dr_ctl.topologies.workloads.sites import WorkloadSites, WorkloadTimeouts
from tests.cli.conftest import Shell
from tests.jolokia.console import Console, Handler, closed_port, console, send, silence, value
from tests.topologies.workloads.work import Work

OVERLOADED = "Operation stop on MBean is overloaded. Signatures found: (long),(java.lang.Long,java.lang.Boolean),()."


@dataclass
class Route:
    """`hangs`: what it holds is never finished."""

    state: str = "Started"
    in_flight: int = 0
    hangs: bool = False

    def stop(self, cut: bool) -> bool:
        if self.hangs and not cut:
            return False
        self.state, self.in_flight = "Stopped", 0
        return True


@dataclass
class Camel:
    """`asked` are the calls that changed something."""

    routes: dict[str, Route]
    mute: bool = False
    asked: list[tuple[str, str, list[Any]]] = field(default_factory=list)

    def reply(self, handler: Handler) -> None:
        if self.mute:
            silence(handler)
            return
        requests = handler.server.asked[-1]
        send(200, json.dumps([self._answer(request) for request in requests]))(handler)

    def _answer(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        parts = values.parts(request["mbean"])
        route = self.routes.get(parts["name"])
        if route is None:
            error = f"javax.management.InstanceNotFoundException : {request['mbean']}"
            return {"status": 404, "error_type": "javax.management.InstanceNotFoundException", "error": error}
        if request["type"] == "read":
            options = {"State": route.state, "ExchangesInflight": route.in_flight}
            return value({name_of(parts["name"]): options})
        return self._called(parts["name"], route, request["operation"], request["arguments"])

    def _called(self, name: str, route: Route, operation: str, arguments: list[Any]) -> Mapping[str, Any]:
        self.asked.append((name, operation, arguments))
        if operation == "start()":
            route.state = "Started"
            return value(None)
        if operation == "stop(java.lang.Long,java.lang.Boolean)":
            return value(route.stop(cut=not arguments[1]))
        return {"status": 400, "error_type": "java.lang.IllegalArgumentException", "error": OVERLOADED}


def name_of(route: str) -> str:
    return f"org.apache.camel:context=work,name={values.quote(route)},type=routes"


@contextmanager
def camel(**routes: Route) -> Iterator[tuple[Camel, Console]]:
    """A context that answers at the console's address."""
    played = Camel(dict(routes))
    with console(played.reply) as server:
        yield played, server


def sites(folder: Path, *workloads: dict[str, Any], read_s: float = 2.0) -> WorkloadSites:
    """The workloads of London; Paris has none."""
    shell = Shell(folder, cast("Any", None))
    path = shell.settings(password={"plain": "p"})
    with shell.edited() as result:
        result["sites"]["london"]["workloads"] = list(workloads)
    return WorkloadSites(load(path), Timeouts(of_topologies=(WorkloadTimeouts(read_s=read_s),)))


def sent(of: WorkloadSites, name: str, goal: Goal, part: str | None = None) -> Outcome:
    return of.send(switch("london", of.workloads["london", name], part or name, goal), None)


def looked(of: WorkloadSites) -> WorkloadSnapshot:
    [snapshot] = of.read()
    return snapshot


CAMEL = {"name": "billing", "kind": "camel-route", "routes": ["billing", "audit"], "timeout": "1s"}


class TestCamel:
    @pytest.fixture
    def played(self) -> Iterator[tuple[Camel, Console]]:
        with camel(billing=Route(), audit=Route(in_flight=3)) as app:
            yield app

    @pytest.fixture
    def told(self, played: tuple[Camel, Console]) -> dict[str, Any]:
        return {**CAMEL, "jolokia": played[1].url}

    def test_each_route_is_a_part_and_a_stop_lets_what_is_in_flight_finish(
        self, tmp_path: Path, played: tuple[Camel, Console], told: dict[str, Any]
    ) -> None:
        of = sites(tmp_path, told)
        snapshot = looked(of)
        assert (snapshot.state, snapshot.detail, snapshot.runs) == ("running", "3 in flight", True)
        assert list(snapshot.parts) == [name_of("billing"), name_of("audit")]

        outcomes = [sent(of, "billing", Goal.STOP, part) for part in snapshot.parts]

        assert [type(outcome) for outcome in outcomes] == [Done, Done]
        stop = "stop(java.lang.Long,java.lang.Boolean)"
        assert played[0].asked == [(route, stop, [1, True]) for route in ("billing", "audit")]
        assert (looked(of).state, looked(of).runs) == ("stopped", False)
        assert isinstance(sent(of, "billing", Goal.START, name_of("billing")), Done)
        assert (looked(of).state, looked(of).runs) == ("running in part", True)

    def test_one_that_hangs_is_refused_and_goes_on(
        self, tmp_path: Path, played: tuple[Camel, Console], told: dict[str, Any]
    ) -> None:
        played[0].routes["audit"].hangs = True
        of = sites(tmp_path, told)
        outcome = sent(of, "billing", Goal.STOP, name_of("audit"))
        assert isinstance(outcome, Failed)
        assert "were not finished within 1 s" in outcome.text
        assert looked(of).state == "running"

    @pytest.mark.parametrize(
        ("state", "in_flight", "is_so"),
        [("Stopped", 1, "neither"), ("Suspended", 0, "neither"), ("Stopped", 0, "stopped"), ("Started", 0, "running")],
    )
    def test_stopped_is_what_holds_nothing(
        self, tmp_path: Path, played: tuple[Camel, Console], told: Any, state: str, in_flight: int, is_so: str
    ) -> None:
        played[0].routes["billing"] = Route(state, in_flight)
        snapshot = looked(sites(tmp_path, {**told, "routes": ["billing"]}))
        assert (snapshot.state, snapshot.runs) == (is_so, is_so != "stopped")

    def test_what_is_not_there_or_does_not_answer_is_not_read(
        self, tmp_path: Path, played: tuple[Camel, Console], told: dict[str, Any]
    ) -> None:
        snapshot = looked(sites(tmp_path, {**told, "routes": ["billing", "gone"]}))
        assert (snapshot.state, snapshot.runs) == ("not read", None)
        assert "InstanceNotFoundException" in str(snapshot.silent)
        played[0].mute = True
        of = sites(tmp_path, told, read_s=0.2)
        of.spend_at_most(0.3, "london")
        assert looked(of).runs is None
        looked(of)
        assert "its site's time is used up" in str(looked(of).silent)
        # Nobody there is refused for certain.
        of = sites(tmp_path, {**told, "jolokia": closed_port()})
        assert looked(of).runs is None
        assert isinstance(sent(of, "billing", Goal.STOP, name_of("billing")), Failed)

    def test_a_login_is_told_where_the_settings_name_one(
        self, tmp_path: Path, played: tuple[Camel, Console], told: dict[str, Any]
    ) -> None:
        for login in ({}, {"username": "ops", "password": {"plain": "secret"}}):
            looked(sites(tmp_path, {**told, "routes": ["billing"], **login}))
        assert ["Authorization" in header for header in played[1].headers] == [False, True]


UNIT = {"name": "mailer", "kind": "systemd", "unit": "mailer.service", "timeout": "2s"}


class TestSystemd:
    """With a program of that name first on the PATH, which keeps its unit's state in a file."""

    @pytest.fixture(autouse=True)
    def systemctl(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir()
        program = folder / "systemctl"
        program.write_text(
            f'#!/bin/sh\necho "$*" >> {folder}/log\ncase "$1" in\n'
            f"start) echo 'active 0' > {folder}/unit ;;\nstop) echo 'inactive 3' > {folder}/unit ;;\n"
            f'*) read -r said code < {folder}/unit; echo "$said"; exit "$code" ;;\nesac\n',
            encoding="utf-8",
        )
        program.chmod(0o700)
        monkeypatch.setenv("PATH", str(folder))
        return folder

    def test_it_is_started_and_stopped_by_its_words(self, tmp_path: Path, systemctl: Path) -> None:
        of = sites(tmp_path, UNIT)

        outcomes = [type(sent(of, "mailer", goal)) for goal in (Goal.START, Goal.STOP)]

        assert outcomes == [Done, Done]
        assert looked(of).state == "stopped"
        assert (systemctl / "log").read_text(encoding="utf-8").splitlines() == [
            "start mailer.service",
            "stop mailer.service",
            "is-active mailer.service",
        ]

    @pytest.mark.parametrize(
        ("said", "state"),
        [
            ("active 0", "running"),
            ("inactive 3", "stopped"),
            ("failed 3", "stopped"),
            ("deactivating 3", "neither"),
            ("inactive 4", "not read"),  # there is no such unit
            ("unknown 3", "not read"),
            ("odd 0", "not read"),
        ],
    )
    def test_only_what_is_known_counts(self, tmp_path: Path, systemctl: Path, said: str, state: str) -> None:
        (systemctl / "unit").write_text(f"{said}\n", encoding="utf-8")
        assert looked(sites(tmp_path, UNIT)).state == state

    def test_another_machine_is_named_to_it(self, tmp_path: Path) -> None:
        of = sites(tmp_path, {**UNIT, "host": "ops@mail-1"})
        [stop] = [switch("london", of.workloads["london", "mailer"], "mailer", Goal.STOP)]
        assert stop.request["run"] == ["systemctl", "--host", "ops@mail-1", "stop", "mailer.service"]

    def test_where_there_is_none_it_is_not_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert "could not be started" in str(looked(sites(tmp_path, UNIT)).silent)


class TestCommands:
    @pytest.fixture
    def work(self, tmp_path: Path) -> Work:
        return Work(tmp_path, "london", "importer", running=True)

    def test_they_are_told_what_they_are_for(self, tmp_path: Path, work: Work) -> None:
        of = sites(tmp_path, work.told())
        outcome = sent(of, "importer", Goal.STOP)
        assert isinstance(outcome, Done)
        assert (looked(of).runs, work.log.read_text(encoding="utf-8")) == (False, "stop importer at london\n")

    def test_passwords_are_not_in_their_environment(
        self, tmp_path: Path, work: Work, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ROUTES_PASSWORD", "secret")
        (work.folder / "stop").write_text(f'#!/bin/sh\necho "[$ROUTES_PASSWORD]" > {work.log}\n', encoding="utf-8")
        routes = {"name": "billing", "kind": "camel-route", "jolokia": closed_port(), "routes": ["billing"]}
        routes |= {"username": "ops", "password": {"env": "ROUTES_PASSWORD"}}
        sent(sites(tmp_path, work.told(), routes), "importer", Goal.STOP)
        assert work.log.read_text(encoding="utf-8") == "[]\n"


class TestHttp:
    @pytest.mark.parametrize(
        ("status", "body", "stopped", "state"),
        [
            (200, "RUNNING\n", None, "running"),
            (200, "PAUSED", None, "stopped"),
            (200, "PAUSED", "PAUSED", "stopped"),
            (200, "STARTING", "PAUSED", "not read"),
            (200, "NOT RUNNING", "PAUSED", "not read"),
            (200, "<html>\n<p>sign in</p>", None, "not read"),
            (200, "", None, "not read"),
            (503, "PAUSED", None, "not read"),
            (302, "PAUSED", None, "not read"),
        ],
    )
    def test_it_is_what_one_line_says(
        self, tmp_path: Path, status: int, body: str, stopped: str | None, state: str
    ) -> None:
        with _answering(status, body) as url:
            more = {"stopped": stopped} if stopped else {}
            http = _http(url, state={"get": f"{url}/state", "running": "RUNNING", **more})
            assert looked(sites(tmp_path, http)).state == state

    @pytest.mark.parametrize(("status", "kind"), [(204, Done), (200, Done), (409, Failed), (502, Unknown)])
    def test_what_is_answered_to_a_post(self, tmp_path: Path, status: int, kind: type) -> None:
        with _answering(status, "") as url:
            outcome = sent(sites(tmp_path, _http(url)), "api", Goal.STOP)
            assert isinstance(outcome, kind), outcome

    def test_nobody_there_is_refused_and_not_read(self, tmp_path: Path) -> None:
        of = sites(tmp_path, _http(closed_port()))
        assert looked(of).runs is None
        assert isinstance(sent(of, "api", Goal.STOP), Failed)


def _http(url: str, **more: Any) -> dict[str, Any]:
    options = {"name": "api", "kind": "http", "timeout": "2s", "state": {"get": f"{url}/state", "running": "RUNNING"}}
    return {**options, "start": {"post": f"{url}/resume"}, "stop": {"post": f"{url}/pause"}, **more}


class _Plain(Handler):
    """A state is asked with GET, and a call has no body."""

    def do_GET(self) -> None:  # noqa: N802 - the base class calls it so
        self.server.reply(self)

    def do_POST(self) -> None:  # noqa: N802 - as above
        self.server.reply(self)


@contextmanager
def _answering(status: int, body: str) -> Iterator[str]:
    """Answers everything with the same."""
    with console(send(status, body)) as server:
        server.RequestHandlerClass = _Plain
        yield f"http://127.0.0.1:{server.server_port}"


UNITS = [UnitSnapshot("orders.in", "london"), UnitSnapshot("bills", "london")]


@pytest.mark.parametrize(
    ("queues", "units", "moves"),
    [
        ((), None, True),
        ((), ("orders.in",), False),
        ((), ("orders.in", "bills"), True),
        (("orders.#",), ("orders.in",), True),
        (("orders.#",), ("bills",), False),
        (("orders.#",), None, True),
    ],
)
def test_a_part_of_a_site_moves_what_works_on_it(
    queues: tuple[str, ...], units: tuple[str, ...] | None, moves: bool
) -> None:
    unit = SystemdUnit(name="mailer", kind="systemd", unit="mailer.service", queues=queues)
    assert is_moved(unit, Spec(SWAPOVER, "paris", units=units), UNITS) is moves


def test_no_call_is_certain_of_what_may_stop_or_start_by_itself() -> None:
    unit = SystemdUnit(name="mailer", kind="systemd", unit="mailer.service")
    recipe = RecipeWithWorkloads(Mock(), {("london", "mailer"): unit})
    parts = {"runs": PartState.RUNNING, "ends": PartState.BETWEEN, "rests": PartState.STOPPED}
    mailer = WorkloadSnapshot("london", "mailer", "systemd", singleton=False, parts=parts)
    snapshot = cast("Any", SimpleNamespace(workloads=(mailer,), units=UNITS))
    spec = Spec(SWAPOVER, "paris")
    planned = [*recipe._stops(snapshot, spec, "london"), *recipe._starts(snapshot, spec, "london")]
    assert [call.request["workload"] for call in planned if call.when is None] == ["runs", "rests"]
    assert {call.when for call in planned} == {None, "it does not stop by itself", "it does not start by itself"}
