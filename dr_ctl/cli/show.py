"""`status` for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dr_ctl.application.installation import looking
from dr_ctl.application.result import Result
from dr_ctl.core.model import Role, some
from dr_ctl.core.notation import if_known, page
from dr_ctl.topologies.topology import BrokerSnapshot

if TYPE_CHECKING:
    from dr_ctl.application.status import Status
    from dr_ctl.cli.session import Session


def status(session: Session) -> Result:
    with looking(session) as looked:
        from dr_ctl.application import status as telling  # noqa: PLC0415 - loaded while the looks are made

        state = telling.status(session, looked)
    return state.result.with_text("\n".join(filter(None, (_text(state), state.estimate))))


def _text(state: Status) -> str:
    links = {(link.site, link.pair): link.lines for link in state.links}
    lines = []
    for site, role in state.snapshot.roles.items():
        lines.append(f"{site:<16} {role.value}{': ' + some(state.serves[site]) if site in state.serves else ''}")
        for each in state.snapshot.brokers:
            if each.site != site:
                continue
            if each.silent is not None:
                lines.append(f"  {each.pair}: {each.silent}")
                lines += _nodes(each)
                continue
            if not each.listeners:
                lines += [f"  {each.pair}: {line}" for line in links.get((site, each.pair), ())]
                continue
            listeners = ", ".join(
                f"{name} {'open' if is_open else 'closed'}" for name, is_open in each.listeners.items()
            )
            listeners += (
                f", {'but' if any(each.listeners.values()) else 'and'} the clients' roles kept out"
                if each.kept_out
                else ""
            )
            read = [depth for depth in each.depths.values() if depth is not None]
            unread = f", {len(each.depths) - len(read)} of them not counted" if len(read) < len(each.depths) else ""
            room = f"; {1 - each.disk_used:.0%} of its disk free" if each.disk_used is not None else ""
            room = room if role is Role.SERVING else ""
            lines.append(
                f"  {each.pair}: {listeners}; {sum(read)} message(s) in {len(each.depths)} queue(s){unread}{room}"
            )
            if role is Role.SERVING and any(each.listeners.values()):
                lines.append(f"    {_at_work(each)}")
            lines += _nodes(each)
            lines += [f"    {line}" for line in links.get((site, each.pair), ())]
            if (lacking := _lacking(state, each)) is not None:
                lines.append(f"    {lacking}")
            if (down := state.down.get((site, each.pair))) is not None:
                lines.append(f"    {down.text}")
        lines += [f"  workload {each.line}" for each in state.snapshot.workloads if each.site == site]
    return page(lines)


def _nodes(broker: BrokerSnapshot) -> list[str]:
    return [f"    node {each}" for each in broker.nodes]


def _at_work(broker: BrokerSnapshot) -> str:
    """Whether clients are there, and work."""
    come, go = ("not known", "not known") if broker.traffic is None else (f"{each:.1f}/s" for each in broker.traffic)
    return f"{if_known(broker.clients)} client connection(s); {come} in, {go} consumed"


def _lacking(state: Status, broker: BrokerSnapshot) -> str | None:
    """How many messages the peer lacks at least, by the depths: it may hold others that were consumed here. An outflow
    counts events, acknowledgements included, but an operator asks for messages."""
    link = next((each for each in state.links if (each.site, each.pair) == (broker.site, broker.pair)), None)
    peer = next(
        (each for each in state.snapshot.brokers if each.pair == broker.pair and each.site != broker.site), None
    )
    if link is None or not link.outflow or link.messages_alone or peer is None or peer.silent is not None:
        return None
    messages = 0
    for name, depth in broker.depths.items():
        there = peer.depths.get(name, 0)
        if depth is None or there is None:
            return None
        messages += max(0, depth - there)
    return f"at least {messages} unshipped message(s) exist only at {broker.site}" if messages else None
