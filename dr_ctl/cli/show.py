"""`status` for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from dr_ctl.application.installation import looking
from dr_ctl.application.result import Result
from dr_ctl.core.model import ExitCode, Role, brief, total
from dr_ctl.core.notation import NOT_KNOWN, duration, if_known, page, table
from dr_ctl.core.system import stamp, system
from dr_ctl.engine.roles import sites_serving
from dr_ctl.topologies.topology import BrokerSnapshot

if TYPE_CHECKING:
    from dr_ctl.application.status import Status
    from dr_ctl.cli.session import Session


def status(session: Session, site: str | None = None) -> Result:
    with looking(session) as (opened, readings):
        from dr_ctl.application import status as telling  # noqa: PLC0415 - loaded while the readings are made

        state = telling.status(session, opened, readings.result())
    now = system().now()
    shown = [site] if site is not None else [*state.snapshot.roles]
    text = "\n".join(filter(None, (_text(state, now, shown), state.estimate)))
    return replace(state.result, text=text, wide=_wide(state, now, shown), names=sites_serving(state.snapshot))


def headed(session: Session, site: str | None) -> Result:
    """Show the status with the worst in its first line, as the exit code does not tell it."""
    result = status(session, site)
    if result.code is not ExitCode.OK or (result.names and not result.summary.startswith("split brain")):
        return result
    return replace(result, text=f"!! {result.summary.partition(';')[0]}\n{result.text}")


_HEADING: Final = ("site", "role", "broker", "clients", "in/s", "out/s", "last message", "messages", "to ship", "link")


def _wide(state: Status, now: datetime, sites: Sequence[str]) -> str:
    links = {(link.site, link.pair): link for link in state.links}
    rows = []
    for broker in [broker for broker in state.snapshot.brokers if broker.site in sites]:
        link = links.get((broker.site, broker.pair))
        come, go = broker.traffic or (None, None)
        depths = [*broker.depths.values()]
        rows.append(
            (
                *(broker.site, broker.role.value, broker.pair, _cell(broker.clients), _cell(come), _cell(go)),
                _ago(state, broker.site, now) or NOT_KNOWN,
                NOT_KNOWN if broker.silent is not None or None in depths else str(sum(filter(None, depths))),
                _cell(broker.to_ship),
                NOT_KNOWN if link is None or link.attached is None else "attached" if link.attached else "not attached",
            )
        )
    return table(_HEADING, rows, numbers=(3, 4, 5, 7, 8))


def _cell(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def _ago(state: Status, site: str, now: datetime) -> str | None:
    at_work = state.result.data.sites[site]
    if (at := at_work.last_message) is None:
        return None
    # Since a reading that saw one, the loss bound may have taken seconds.
    has_traffic = at_work.in_per_s or at_work.consumed_per_s
    return "just now" if has_traffic else f"{duration(round(max(0.0, (now - at).total_seconds())))} ago"


def _text(state: Status, now: datetime, sites: Sequence[str]) -> str:
    links = {(link.site, link.pair): link.lines for link in state.links}
    lines = []
    for site in sites:
        role = state.snapshot.roles[site]
        lines.append(f"{site:<16} {role.value}{': ' + brief(state.serves[site]) if site in state.serves else ''}")
        for broker in state.snapshot.brokers:
            if broker.site != site:
                continue
            if broker.silent is not None:
                lines.append(f"  {broker.pair}: {broker.silent}")
                lines += _nodes(state, broker)
                continue
            if not broker.listeners:
                lines += [f"  {broker.pair}: {line}" for line in links.get((site, broker.pair), ())]
                continue
            is_open, serves = any(broker.listeners.values()), role is Role.SERVING
            doors = ", ".join(f"{name} {'open' if opened else 'closed'}" for name, opened in broker.listeners.items())
            doors += f", {'but' if is_open else 'and'} the clients' roles kept out" if broker.kept_out else ""
            read, count = [depth for depth in broker.depths.values() if depth is not None], len(broker.depths)
            unread = f", {count - len(read)} of them not counted" if len(read) < count else ""
            free = 1 - broker.disk_used if broker.disk_used is not None and serves else None
            room = f"; {free:.0%} of its disk free" if free is not None else ""
            lines.append(f"  {broker.pair}: {doors}; {sum(read)} message(s) in {count} queue(s){unread}{room}")
            if serves and is_open:
                lines.append(f"    {_at_work(broker, _ago(state, site, now))}")
            lines += _nodes(state, broker)
            lines += [f"    {line}" for line in links.get((site, broker.pair), ())]
            if (lacking := _lacking(state, broker)) is not None:
                lines.append(f"    {lacking}")
            if (down := state.down.get((site, broker.pair))) is not None:
                lines.append(f"    {down.text}")
        lines += [f"  workload {workload.line(role)}" for workload in state.snapshot.workloads if workload.site == site]
    return page(lines)


def _nodes(state: Status, broker: BrokerSnapshot) -> list[str]:
    last = state.takeovers.get((broker.site, broker.pair))
    lines = [f"    {stamp(last.first)}: {last.text}"] if last is not None else []
    return [*(f"    node {node}" for node in broker.nodes), *lines]


def _at_work(broker: BrokerSnapshot, ago: str | None) -> str:
    """Write the clients and their work: between the two readings of this command, and by the monitor's samples."""
    come, go = (NOT_KNOWN, NOT_KNOWN) if broker.traffic is None else (f"{rate:.1f}/s" for rate in broker.traffic)
    last = f"; last message seen {ago}" if ago is not None else ""
    return f"{if_known(broker.clients)} client connection(s); {come} in, {go} consumed between two readings{last}"


def _lacking(state: Status, broker: BrokerSnapshot) -> str | None:
    """Count the messages that the peer lacks at least, by the depths: the peer may have others that were consumed here.
    An outflow counts events, acknowledgements included, but an operator asks for messages."""
    link = next((link for link in state.links if (link.site, link.pair) == (broker.site, broker.pair)), None)
    others = (other for other in state.snapshot.brokers if other.site != broker.site)
    peer = next((other for other in others if other.pair == broker.pair), None)
    if link is None or not link.outflow or link.without_acks or peer is None or peer.silent is not None:
        return None
    depths = [(depth, peer.depths.get(name, 0)) for name, depth in broker.depths.items()]
    messages = total(None if None in both else max(0, (both[0] or 0) - (both[1] or 0)) for both in depths)
    return f"at least {messages} unshipped message(s) exist only at {broker.site}" if messages else None
