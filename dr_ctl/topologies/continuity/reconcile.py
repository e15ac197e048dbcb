"""`reconcile`: messages that lie only at the returned site are moved out of its queues."""

from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json, some
from dr_ctl.core.notation import duration
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Done, Move, Outcome, Refused, StepContext
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.common.calls import call, document
from dr_ctl.topologies.common.names import quarantine_queue
from dr_ctl.topologies.console.requests import request
from dr_ctl.topologies.continuity import copies
from dr_ctl.topologies.continuity.tools import Applied, ContinuityTools
from dr_ctl.topologies.continuity.view import SiteView


def act(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Move aside messages that lie only at the returned site: a client has done them, and its acknowledgement is gone.
    Wait first: until acknowledgements are applied, messages consumed at the serving site lie only there as well."""
    first = _only_there(tools, move)
    if first and (late := _until_applied(tools, step, move, context)) is not None:
        return late
    now = _only_there(tools, move) if first else {}
    left = {key: now[key] & ids for key, ids in first.items() if key in now and now[key] & ids}
    moved: dict[str, Json] = {}
    for (pair, queue), ids in left.items():
        view = tools.observer.brokers[move.target][pair].read()
        name = quarantine_queue(view.site, queue)
        kept = document(
            view, name, view.requests.of_server(view.document_queue.keep(name)), f"create {name} at {view.site}"
        )
        made = [] if any(each.name == name for each in view.queues) else [kept]
        tools.change([*made, *_moves(view, queue, ids, name)], context)
        after = copies.present(tools.observer.brokers[move.target][pair].reader(), [view.business[queue]])[0]
        if stayed := ids & after:
            return Refused(f"{len(stayed)} message(s) of {queue} could not be moved to {name}")
        moved[name] = len(ids)
    findings: list[Finding] = []
    if moved:
        number = sum(len(ids) for ids in left.values())
        findings.append(
            found("DR-RECONCILE-002.kept_aside", target=move.target, count=number, queues=some(list(moved)))
        )
    recovered = "how many were recovered is not known" if tools.number is None else f"{tools.number} recovered"
    return Done(f"{recovered}; {len(moved)} queue(s) with something left over", {"quarantined": moved}, tuple(findings))


def _until_applied(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Refused | None:
    """Wait until what consumers had acknowledged is applied, and for as long as bridges take at least."""
    began_s, least_s = context.monotonic(), tools.waits.left_over_s
    applied = {pair: Applied() for pair in tools.observer.brokers[move.source]}
    context.wait(tools.waits.taken_in_poll_s)  # an acknowledgement of a moment ago is on its way by then

    def look() -> tuple[list[str], float]:
        took_s = context.monotonic() - began_s
        pairs = tools.look(tools.observer.between(move.source, move.target))
        return [why for both in pairs for why in applied[both[0].pair].why_not(both)], took_s

    waited = until(
        context,
        look,
        holds=lambda now: not now[0] and now[1] >= least_s,
        within_s=max(step.limits["within"], least_s),
        poll_s=tools.waits.taken_in_poll_s,
    )
    under_way, took_s = waited.look
    if waited.held:
        return None
    return Refused(f"not compared after {duration(took_s)}: {some(under_way)}", code=ExitCode.DRAIN_TIMEOUT)


def _only_there(tools: ContinuityTools, move: Move) -> dict[tuple[str, str], frozenset[str]]:
    """The messages of each queue that only the returned site has."""
    found: dict[tuple[str, str], frozenset[str]] = {}
    ways = tools.observer.between(move.source, move.target)
    for (here, there), (serving, returned) in zip(ways, tools.look(ways), strict=True):
        lying = [flow.queue for flow in returned.flows if flow.queue in returned.business]
        names = [name for name in lying if returned.business[name].depth]
        mine = copies.present(there.reader(), [returned.business[name] for name in names])
        # A queue that is gone there has nothing.
        places = [(name, queue) for name in names for queue in serving.lying(name)]
        theirs = dict.fromkeys(names, frozenset[str]())
        for (name, _), ids in zip(places, copies.present(here.reader(), [queue for _, queue in places]), strict=True):
            theirs[name] |= ids
        found |= {
            (serving.pair, name): only for name, ours in zip(names, mine, strict=True) if (only := ours - theirs[name])
        }
    return found


def _moves(view: SiteView, queue: str, ids: frozenset[str], name: str) -> list[Call]:
    bean, filter_by = view.business[queue].bean, copies.chosen
    return [
        call(
            view,
            Goal.MOVE,
            queue,
            request(bean, copies.MOVE_ALL, (filter_by(each), name)),
            f"move {len(each)} of {queue} to {name}",
        )
        for each in copies.in_calls(ids)
    ]
