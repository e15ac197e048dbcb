"""A Camel context behind Jolokia, as far as workloads ask it: its answers are those that a real one gives."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dr_ctl.jolokia import beans
from tests.jolokia.console import Console, Handler, console, send, silence, value

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
        send(200, json.dumps([self._answer(each) for each in requests]))(handler)

    def _answer(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        parts = beans.parts(request["mbean"])
        route = self.routes.get(parts["name"])
        if route is None:
            error = f"javax.management.InstanceNotFoundException : {request['mbean']}"
            return {"status": 404, "error_type": "javax.management.InstanceNotFoundException", "error": error}
        if request["type"] == "read":
            told = {"State": route.state, "ExchangesInflight": route.in_flight}
            return value({name_of(parts["name"]): told})
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
    return f"org.apache.camel:context=work,name={beans.quote(route)},type=routes"


@contextmanager
def camel(**routes: Route) -> Iterator[tuple[Camel, Console]]:
    """A context that answers at the console's address."""
    played = Camel(dict(routes))
    with console(played.reply) as server:
        yield played, server
