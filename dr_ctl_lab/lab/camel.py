"""A Camel application with Jolokia: routes that process a site's messages.

Maven fetches Camel and the agent once, some 22 MB. A folder holds the application's properties and routes in YAML.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from dr_ctl.core.errors import BrokerError, EnvironmentFault
from dr_ctl.jolokia.client import Account, Wire
from dr_ctl_lab.lab import daemons
from dr_ctl_lab.lab.cache import cache_dir
from dr_ctl_lab.lab.distribution import gather_jars
from dr_ctl_lab.lab.started import POLL_S, log_tail

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dr_ctl.core.model import Json
    from dr_ctl.stomp_io.address import Address, Login

CAMEL, AGENT, LOGGING = "4.8.1", "2.1.1", "2.0.16"
PARTS = ("main", "management", "yaml-dsl", "amqp", "seda", "direct", "timer", "file", "log")
ARTIFACTS = (
    *(("org.apache.camel", f"camel-{part}", CAMEL, "") for part in PARTS),
    ("org.jolokia", "jolokia-agent-jvm", AGENT, "javaagent"),
    ("org.slf4j", "slf4j-simple", LOGGING, ""),
)
UP_S = 60.0
LOG = "camel.log"
# How long a shutdown, and `stop()` of a route, wait for exchanges.
SHUTDOWN_S = 10


def obtain() -> Path:
    """Return the folder with the jars. EnvironmentFault as for a broker's distribution."""
    return gather_jars(cache_dir() / f"camel-{CAMEL}-jolokia-{AGENT}", ARTIFACTS) / "lib"


@dataclass(frozen=True, slots=True)
class Camel:
    """A running application; `name` is that of its Camel context."""

    name: str
    folder: Path
    port: int
    process: daemons.Process

    @classmethod
    def up(cls, folder: Path, routes: str, *, port: int, name: str, settings: Mapping[str, str] | None = None) -> Self:
        """Start an application with these routes (YAML) in a new folder; return when all routes are started. `settings`
        are further properties. EnvironmentFault, with the end of the log, where routes do not start."""
        jars = obtain()
        folder.mkdir(mode=0o700, parents=True)
        (folder / "routes.yaml").write_text(routes, encoding="utf-8")
        properties = folder / "application.properties"
        properties.touch(mode=0o600)  # it may have a broker's password
        properties.write_text(_properties(name, settings or {}), encoding="utf-8")
        # Several threads, so that the agent answers while a `stop` waits for exchanges.
        agent = f"host=127.0.0.1,port={port},discoveryEnabled=false,executor=fixed,threadNr=5"
        argv = [
            "java", "-Xmx256M", *daemons.LIGHT,
            f"-javaagent:{jars}/jolokia-agent-jvm-{AGENT}-javaagent.jar={agent}",
            "-cp", f".:{jars}/*", "org.apache.camel.main.Main",
        ]  # fmt: skip
        app = cls(name, folder, port, daemons.launch(argv, cwd=folder, log=folder / LOG))
        try:
            app._wait_started(time.monotonic() + UP_S)
        except BaseException:
            app.down()
            raise
        return app

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    @property
    def jolokia(self) -> str:
        """The address; without the last slash this agent answers 404."""
        return f"http://127.0.0.1:{self.port}/jolokia/"

    def states(self) -> dict[str, str]:
        """The state of each route. BrokerError where the agent does not answer, or has no route yet."""
        pattern = f"org.apache.camel:context={self.name},type=routes,name=*"
        request: dict[str, Json] = {"type": "read", "mbean": pattern, "attribute": ["RouteId", "State"]}
        with closing(Wire(Account(self.jolokia, "", "", "http://127.0.0.1"))) as wire:
            value = wire.post([request], timeout_s=2.0)[0].value()
        return {row["RouteId"]: row["State"] for row in value.values()}

    def down(self) -> None:
        """End the application; it may finish its exchanges within its own time limit."""
        daemons.end(self.process, within_s=SHUTDOWN_S + 5)

    def _wait_started(self, until: float) -> None:
        reason = "not yet"
        while self.process.alive() and time.monotonic() < until:
            try:
                states = self.states()
                if set(states.values()) == {"Started"}:
                    return
                reason = str(states)
            except BrokerError as error:  # the agent answers before the routes are there
                reason = str(error)
            time.sleep(POLL_S)
        raise EnvironmentFault(f"{self.name}: its routes did not start: {reason}\n{log_tail([self.folder / LOG])}")


def broker_properties(address: Address, login: Login) -> dict[str, str]:
    """Properties that connect `amqp:` in routes to the broker at this address; its STOMP port accepts AMQP too."""
    factory = {
        "": "#class:org.apache.qpid.jms.JmsConnectionFactory",
        ".remoteURI": f"amqp://{address.host}:{address.port}",
        ".username": login.user,
        ".password": login.password,
    }
    beans = {f"camel.beans.broker{key}": value for key, value in factory.items()}
    return {**beans, "camel.component.amqp.connectionFactory": "#bean:broker"}


def _properties(name: str, options: Mapping[str, str]) -> str:
    properties = {
        "camel.main.name": name,
        "camel.main.routesIncludePattern": "file:routes.yaml",
        "camel.main.shutdownTimeout": str(SHUTDOWN_S),
    }
    return "".join(f"{key}={value}\n" for key, value in {**properties, **options}.items())
