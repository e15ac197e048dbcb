"""Settings of brokers with the replication plugin."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from dr_ctl.settings.topologies.classic_replica import ReplicaBroker

TOLD = {"name": "orders-1", "jolokia": "http://a:8161/api/jolokia/", "username": "dr-ctl", "password": {"plain": "x"}}


@pytest.mark.parametrize("address", ["tcp://a:61619", "ssl://a:61619"])
def test_the_plugins_own_door_is_an_openwire_address(address: str) -> None:
    assert ReplicaBroker.model_validate({**TOLD, "clients": ["stomp"], "replication": address}).replication == address


@pytest.mark.parametrize("address", ["a:61619", "http://a:61619", "tcp://a", "tcp://a:none"])
def test_anything_else_is_refused(address: str) -> None:
    with pytest.raises(ValidationError, match="is not an OpenWire address"):
        ReplicaBroker.model_validate({**TOLD, "clients": ["stomp"], "replication": address})


def test_no_client_uses_it() -> None:
    with pytest.raises(ValidationError, match="the plugin's own"):
        ReplicaBroker.model_validate({**TOLD, "clients": ["stomp", "replication"]})
