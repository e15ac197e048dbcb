"""A Camel application with Jolokia, as workloads of a site have it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl_lab.lab.camel import LOG, Camel, connected
from dr_ctl_lab.lab.kinds import BRIDGES
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.ports import release_ports, reserve_ports
from tests.broker.driving import refuses, until

pytestmark = [pytest.mark.broker, pytest.mark.deep]

ROUTE = """
- route:
    id: billing
    from:
      uri: amqp:queue:A
      steps:
        - log: "{{greeting}} ${header.order_id}"
"""


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    [found] = reserve_ports(1, tmp_path)
    yield found
    release_ports(tmp_path)


def test_a_route_works_on_the_messages_of_a_broker_and_is_seen_over_jolokia_until_it_ends(
    tmp_path: Path, port: int
) -> None:
    with Lab.up(tmp_path / "lab", topology=BRIDGES, queues=("A",)) as lab:
        london = lab.site("london")
        told = {**connected(london.stomp, london.app), "greeting": "billed"}
        with Camel.up(tmp_path / "app", ROUTE, port=port, name="billing", told=told) as app:
            assert app.states() == {"billing": "Started"}
            with lab.load(100, consumers=0) as load:
                load.wait_for(20)
                sent = load.stop(drain_s=0).counts.sent

            until(lambda: (app.folder / LOG).read_text().count("billed ") == sent)
            until(lambda: lab.admin("london").depth("A") == 0)

    assert not app.process.alive()
    assert refuses(port)


def test_routes_that_cannot_start_are_told_with_the_log_and_nothing_is_left(tmp_path: Path, port: int) -> None:
    with pytest.raises(EnvironmentFault, match="no-such-part"):
        Camel.up(tmp_path / "app", ROUTE.replace("amqp:", "no-such-part:"), port=port, name="billing")

    assert refuses(port)
