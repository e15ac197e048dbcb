"""What keeps clients from working at a broker whose doors are open: its disk, its memory, its addresses."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from dr_ctl.core.model import some
from dr_ctl.jolokia.client import Ask, Listing, Read, Reader
from dr_ctl.jolokia.errors import BadValue
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.look import found
from dr_ctl.topologies.common.view import Broker
from dr_ctl.topologies.topology import Obstacle

SERVER: Final = ("DiskStoreUsage", "MaxDiskUsage", "AddressMemoryUsage", "GlobalMaxSize")
"""The broker's figures, read with each look; a version that lacks one leaves it out."""
_ADDRESS: Final = ("Paused", "BlockedViaManagement", "AddressLimitPercent", "Paging")
_FULL: Final = 100
_MEASURED_WITHIN_MS: Final = 60_000  # twelve times the default of disk-scan-period, which no broker shows
# What a policy does to messages that are sent to an address at its limit. Any other writes them to disk.
_POLICIES: Final = {
    "BLOCK": "their senders wait",
    "FAIL": "what is sent there is refused",
    "DROP": "what is sent there is dropped",
}


def disk_used(fields: Fields) -> float | None:
    """The share of its disk that is taken. A broker says 0.0 until it has looked for the first time."""
    return fields.optional_share("DiskStoreUsage") or None


def of_server(fields: Fields, up_ms: int) -> tuple[Obstacle, ...]:
    """A disk over its limit, or one that the broker has yet to measure: no client can send, wherever to. After
    `_MEASURED_WITHIN_MS` a broker that tells no usage is taken for one that does not measure."""
    used, most = disk_used(fields), fields.optional_share("MaxDiskUsage")
    if most is None or most < 0 or not fields.has("DiskStoreUsage"):
        return ()
    if used is None and up_ms < _MEASURED_WITHIN_MS:
        text = f"it started {up_ms / 1000:.0f} s ago and has not measured its disk: whether clients can send is unknown"
        return (Obstacle(text, "Run the same command again in a few seconds.", known=False),)
    if used is None or used * 100 <= most:
        return ()
    text = f"its disk is {used:.0%} full, over its max-disk-usage of {most:.0f} %: no client can send"
    return (Obstacle(text, "Make room on that disk, or raise max-disk-usage in its broker.xml."),)


def memory_is_full(fields: Fields) -> bool:
    """Say whether all addresses together are at the limit of the broker's memory."""
    used, most = fields.optional_share("AddressMemoryUsage"), fields.optional_share("GlobalMaxSize")
    return used is not None and most is not None and 0 < most <= used


def of_addresses(reader: Reader, view: Broker, *, timeout_s: float) -> tuple[Obstacle, ...]:
    """Addresses of clients' queues that are paused, blocked, or at a limit that keeps messages out. Raises
    `BrokerError`."""
    own = {queue.address for queue in view.business.values()}
    server, addresses = reader.look(
        [Read(beans.server(view.broker), SERVER), Read(beans.all_addresses(view.broker), _ADDRESS)],
        timeout_s=timeout_s,
    )
    rows = {name: row for bean, row in found(addresses) for name in (beans.parts(bean)["address"],) if name in own}
    is_full = memory_is_full(Fields(beans.server(view.broker), server.value()))
    at_limit = sorted(name for name, row in rows.items() if is_full or _at_limit(row))
    return (
        *_said(rows, "Paused", "are paused: their clients get nothing", "Resume them in the console."),
        *_said(rows, "BlockedViaManagement", "are blocked by management: their senders wait", "unblock() them there."),
        *_kept_out(at_limit, _policies(reader, view, at_limit, timeout_s), everywhere=is_full),
    )


def _at_limit(row: Fields) -> bool:
    """An address that refuses or drops says that it pages; one that blocks does not, and counts more than its limit."""
    percent = row.number("AddressLimitPercent") if row.has("AddressLimitPercent") else 0
    return percent >= _FULL or row.flag("Paging")


def _said(rows: Mapping[str, Fields], flag: str, what: str, remedy: str) -> Iterator[Obstacle]:
    if names := sorted(name for name, row in rows.items() if row.has(flag) and row.flag(flag)):
        yield Obstacle(f"addresses {what}: {some(names)}", remedy, tuple(names))


def _policies(reader: Reader, view: Broker, names: Iterable[str], timeout_s: float) -> Mapping[str, str]:
    asked = [*names]
    if not asked:
        return {}
    server = beans.server(view.broker)
    answers = reader.look([Ask(server, Listing.ADDRESS_SETTINGS, (name,)) for name in asked], timeout_s=timeout_s)
    try:
        return {
            name: str(json.loads(str(answer.value())).get("addressFullMessagePolicy"))
            for name, answer in zip(asked, answers, strict=True)
        }
    except (ValueError, AttributeError) as error:
        raise BadValue(f"{reader.url}: address settings are not as expected: {error}") from error


def _kept_out(names: Iterable[str], policies: Mapping[str, str], *, everywhere: bool) -> Iterator[Obstacle]:
    for policy, effect in _POLICIES.items():
        if full := [name for name in names if policies[name] == policy]:
            limit = "the broker's memory is at its global-max-size" if everywhere else "at their limit"
            text = f"addresses with address-full-policy {policy}, {limit}: {effect}: {some(full)}"
            yield Obstacle(text, "Let what lies there be consumed, or raise that limit in broker.xml.", tuple(full))
