"""Plans the rehearsal on the real brokers: a queue of dr-ctl's own, a few messages through the whole path. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call, in_part
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.calls import call
from dr_ctl.topologies.common.link import Carries
from dr_ctl.topologies.common.names import REHEARSAL
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.view import Broker

MESSAGES: Final = 10
CREATE: Final = "create"
SEND: Final = "send"
TAKE: Final = "take"
LEFT: Final = "it is there then"


def queue_of(site: str) -> str:
    """The name contains the site where the messages are sent."""
    return f"{REHEARSAL}{site}"


def draft(rules: Rules, step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    """Create the queue where the broker needs that, send, see, take, see, remove; business queues stay untouched."""
    name, stays = queue_of(move.source), ""
    calls, removals = list[Call](), list[Call]()
    for view in seen.views(move.source):
        made = view.requests.canary(name)
        create = [call(view, Goal.WRITE, name, made, f"create {name}")] if made is not None else []
        stays = "; the queue stays for the next rehearsal" if view.link.keeps else ""
        sent = call(view, Goal.WRITE, name, {}, f"send {MESSAGES} messages to {name} as a client")
        taken = call(view, Goal.REMOVE, name, {}, f"take them from {name} as a client")
        calls += [*in_part(CREATE, create), *in_part(SEND, [sent]), *in_part(TAKE, [taken])]
    for view in (*seen.views(move.source), *seen.views(move.target)):
        removals += removals_of(view, name)
    carries = [view.link.carries(name) for view in seen.views(move.source)]
    way = {
        Carries.WHOLE: f"; each seen at {move.target}; its acknowledgement seen there",
        Carries.MESSAGES: f"; each seen at {move.target}",
        Carries.NOTHING: "",
    }[carries[0] if carries else Carries.NOTHING]
    about = f"{MESSAGES} messages through {name} at {move.source}{way}; no client gets into {move.target}{stays}"
    limits = {"within": step.limits.get("within", rules.patience.canary_s)}
    emptied = [replace(each, when="messages lie there") for each in in_part(TAKE, calls) if each.goal is Goal.REMOVE]
    return Draft(move.source, about, (*calls, *removals), inverse=(*emptied, *removals), limits=limits)


def clean(rules: Rules, step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    """Remove what rehearsals have left, at both sites."""
    del rules, step
    calls = [
        removal
        for site in (move.source, move.target)
        for view in seen.views(site)
        for name in left_at(view)
        for removal in removals_of(view, name, when=None)
    ]
    return Draft(move.source, "queues that rehearsals have left are removed at both sites", tuple(calls))


def left_at(view: Broker) -> Sequence[str]:
    """The queues of rehearsals that lie at a broker and may be removed."""
    return [] if view.link.keeps else sorted({name for name in view.named if name.startswith(REHEARSAL)})


def removals_of(view: Broker, name: str, when: str | None = LEFT) -> list[Call]:
    """What removes a rehearsal's queue at a broker; nothing where it has to stay."""
    if view.link.keeps:
        return []
    return [call(view, Goal.STRIKE, name, view.requests.remove_queue(name), f"remove {name}", when)]
