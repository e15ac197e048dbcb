"""A Camel application with Jolokia, as workloads of a site have it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl_lab.lab.camel import LOG, Camel, connected
from dr_ctl_lab.lab.kinds import BRIDGES
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.ports import release_ports, reserve_ports
from tests.lab.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.deep]

ROUTES = """
- route:
    id: feed
    from:
      uri: timer:feed
      parameters: {period: 50}
      steps:
        - to: "seda:work?waitForTaskToComplete=Never"
- route:
    id: work
    from:
      uri: seda:work
      steps:
        - log: "{{greeting}} ${exchangeId}"
"""


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    [found] = reserve_ports(1, tmp_path)
    yield found
    release_ports(tmp_path)


def test_routes_run_and_are_seen_over_jolokia_until_it_ends(tmp_path: Path, port: int) -> None:
    with Camel.up(tmp_path / "app", ROUTES, port=port, name="billing", told={"greeting": "done"}) as app:
        assert app.states() == {"feed": "Started", "work": "Started"}
        eventually(lambda: "done " in (app.folder / LOG).read_text())

    assert not app.process.alive()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_route_works_on_the_messages_of_a_broker(tmp_path: Path, port: int) -> None:
    route = """
- route:
    id: billing
    from:
      uri: amqp:queue:A
      steps:
        - log: "billed ${header.order_id}"
"""
    with Lab.up(tmp_path / "lab", topology=BRIDGES, queues=("A",)) as lab:
        london = lab.site("london")
        told = connected(london.stomp, london.app)
        with Camel.up(tmp_path / "app", route, port=port, name="billing", told=told) as app:
            with lab.load(100, consumers=0) as load:
                load.wait_for(20)
                sent = load.stop(drain_s=0).counts.sent

            eventually(lambda: (app.folder / LOG).read_text().count("billed ") == sent)
            eventually(lambda: lab.admin("london").depth("A") == 0)


def test_routes_that_cannot_start_are_told_with_the_log_and_nothing_is_left(tmp_path: Path, port: int) -> None:
    with pytest.raises(EnvironmentFault, match="no-such-part"):
        Camel.up(tmp_path / "app", ROUTES.replace("timer:feed", "no-such-part:feed"), port=port, name="billing")

    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
