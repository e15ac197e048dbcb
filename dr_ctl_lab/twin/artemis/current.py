"""Attributes and operations that Artemis 2.56 adds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from dr_ctl_lab.twin.artemis import beans as common
from dr_ctl_lab.twin.artemis import listings, locks, names
from dr_ctl_lab.twin.artemis.beans import TEXT
from dr_ctl_lab.twin.artemis.broker import ArtemisBroker
from dr_ctl_lab.twin.artemis.group import group_of
from dr_ctl_lab.twin.artemis.limits import AddressSettings
from dr_ctl_lab.twin.artemis.listings import Row
from dr_ctl_lab.twin.bean import ILLEGAL, Bean, Operations
from dr_ctl_lab.twin.messages import Queue
from dr_ctl_lab.twin.parts import Acceptor, BrokerError

if TYPE_CHECKING:
    from dr_ctl_lab.twin.host import Host

VERSION: Final = "2.56.0"
SECURITY: Final = "hawtio:type=security,area=jmx,name=ArtemisJMXSecurity"
_PAGED: Final = f"{TEXT},int,int"


def common_beans(broker: ArtemisBroker) -> Iterator[Bean]:
    """The beans of every topology."""
    yield from common.common_beans(broker, _parameters)
    yield Bean(SECURITY, dict, lambda: {f"canInvoke({TEXT},{TEXT},[L{TEXT};)": lambda *_: True})


def _parameters(acceptor: Acceptor) -> dict[str, str]:
    parameters = {"scheme": "tcp", "host": "127.0.0.1", "port": str(acceptor.port), "protocols": acceptor.protocols}
    return parameters if acceptor.opens_at_boot else {**parameters, "autoStart": "false"}


def address(broker: ArtemisBroker, name: str) -> dict[str, Any]:
    return {
        **common.address(broker, name),
        "Internal": False,
        "AddressLimitPercent": broker.limit_percent(name),
        "BlockedViaManagement": name in broker.limits.blocked,
    }


def address_operations(broker: ArtemisBroker, name: str) -> Operations:
    def block() -> bool:
        broker.limits.blocked.add(name)
        return True

    return {
        **common.address_operations(broker, name),
        "block()": block,
        "unblock()": lambda: broker.limits.blocked.discard(name),
    }


def queue(queue: Queue) -> dict[str, Any]:
    return {
        **common.queue_attributes(queue),
        "PersistedPause": queue.lasting,
        "InternalQueue": queue.internal,
        "AutoDelete": bool(queue.options.get("auto-delete", False)),
        "Enabled": queue.enabled,
    }


def server(broker: ArtemisBroker) -> dict[str, Any]:
    return {
        **common.server(broker),
        "Active": True,
        "SecurityEnabled": True,
        "CurrentTimeMillis": broker.now_ms(),
        "DiskStoreUsage": broker.limits.disk_used,
        "HAPolicy": broker.group.policy,
        "ReplicaSync": broker.group.synced,
    }


def server_operations(broker: ArtemisBroker) -> Operations:
    def create(text: str, ignore: bool = False) -> str:
        options = configuration(text)
        if ignore and options["name"] in broker.queues:
            return json.dumps(options)
        queue = broker.create_queue(options)
        return json.dumps({"id": queue.number, **_settled(queue)})

    def update(text: str) -> str:
        wanted = configuration(text)
        queue = broker.queue(str(wanted["name"]))
        # Options left out get their defaults.
        queue.user, queue.filter = wanted.get("user"), wanted.get("filter")
        queue.options |= wanted
        return json.dumps({"id": queue.number, **_settled(queue)})

    def remove_address_settings(match: str) -> None:
        broker.limits.settings.pop(match, None)

    def add_address_settings(match: str, text: str) -> str:
        wanted = json.loads(text)
        broker.limits.settings[match] = AddressSettings(wanted["maxSizeBytes"], wanted["addressFullMessagePolicy"])
        return text

    return {
        **common.server_operations(broker),
        f"addAddressSettings({TEXT},{TEXT})": add_address_settings,
        f"removeAddressSettings({TEXT})": remove_address_settings,
        f"createQueue({TEXT})": create,
        f"createQueue({TEXT},boolean)": create,
        f"updateQueue({TEXT})": update,
        "listLockCoordinatorsAsJSON()": lambda: locks.listing(broker),
        f"startLockCoordinator({TEXT})": locks.operation_by_name(broker, locks.Coordinator.start),
        f"stopLockCoordinator({TEXT})": locks.operation_by_name(broker, locks.Coordinator.stop),
        f"addSecuritySettings({','.join([TEXT] * 13)})": broker.security.add,
        "reloadConfigurationFile()": broker.security.reload,
    }


def passive(broker: ArtemisBroker, host: Host) -> Iterator[Bean]:
    """The beans of a passive node: the server's under the node's own name, with empty counts and the rights of its
    file."""
    now_ms, rights = broker.now_ms(), broker.security.without_stored()
    attributes = {
        **dict.fromkeys(("AddressMemoryUsage", "QueueCount", "ConnectionCount"), 0),
        "PendingMirrorAcks": host.pending_acks,
        "DiskStoreUsage": 0.0,
        "QueueNames": [],
        "AddressNames": [],
        "Active": False,
        "Backup": True,
        "Name": host.name,
        "HAPolicy": group_of(host).policy,
        "UptimeMillis": now_ms - host.instance_ms,
    }
    operations: Operations = {
        "listNetworkTopology()": server_operations(broker)["listNetworkTopology()"],
        f"getRolesAsJSON({TEXT})": rights.as_json,
        f"listUser({TEXT})": rights.users,
        **paged_listings(list, list),
        "listPreparedTransactionDetailsAsJSON()": lambda: "",
        "listLockCoordinatorsAsJSON()": lambda: "[]",
    }
    yield Bean(names.server(host.name), lambda: {**server(broker), **attributes}, lambda: operations)
    yield from common.cluster(broker, host.name)
    process = {"StartTime": host.process_ms, "Uptime": now_ms - host.process_ms}
    yield Bean(common.RUNTIME, lambda: process, dict)


def paged_listings(connections: Callable[[], list[Row]], consumers: Callable[[], list[Row]]) -> Operations:
    """The paged listings of connections and consumers."""
    return {
        f"listConnections({_PAGED})": lambda _, page, size: listings.listed(connections(), page, size),
        f"listConsumers({_PAGED})": lambda _, page, size: listings.listed(consumers(), page, size),
    }


def configuration(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        kind = "org.apache.activemq.artemis.commons.shaded.json.stream.JsonParsingException"
        raise BrokerError(kind, str(error)) from error
    if not isinstance(document, dict) or "name" not in document:
        raise BrokerError(ILLEGAL, f"AMQ229229: Failed to parse JSON queue configuration: {text}", 400)
    return document


def _settled(queue: Queue) -> dict[str, Any]:
    return {
        "name": queue.name,
        "address": queue.address,
        "routing-type": queue.routing.upper(),
        "durable": queue.durable,
        **({"user": queue.user} if queue.user is not None else {}),
        "internal": queue.internal,
        "temporary": queue.temporary,
        "auto-created": queue.auto_created,
    }
