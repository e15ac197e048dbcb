"""Which site an operation leaves, by the roles that were seen, or why that cannot be told. Pure.

"Cannot tell" is never "no": a site that does not answer is neither closed nor gone.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dr_ctl.core.errors import BrokerError, Passive, TimedOut
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Role, Severity, some
from dr_ctl.core.notation import if_known
from dr_ctl.engine.ask import Ask
from dr_ctl.engine.debts import lost_alone
from dr_ctl.engine.history import History
from dr_ctl.engine.operations import (
    ALONE,
    DRAIN,
    FAILBACK,
    FAILOVER,
    FENCE,
    KEEP_ASIDE,
    MOVING,
    PUT_BACK,
    QUIESCE,
    REHEARSE,
    REHEARSE_CLEAN,
    RESTART,
    RETURNS,
    TRIM,
    UNFENCE,
)
from dr_ctl.engine.parts import as_moved, is_split, split
from dr_ctl.engine.ports import NO_HINTS, Hints, Observation

NODES: Final = "nodes"
"""The part of a plan's basis that says which brokers it is about: site, unit, and what no two brokers share. A topology
whose brokers have no such thing leaves it out."""
PAIRS: Final = "pairs"
"""The part that says which pairs the settings named, by site, those of silent brokers too."""
CLOSED = (Role.STANDBY, Role.DOWN)
_ANSWERING = (Role.SERVING, Role.STANDBY)


def not_there(snapshot: Observation, ask: Ask) -> Finding | None:
    """The finding for units that were asked for and exist at no site."""
    missing = sorted({*(ask.units or ())} - {unit.name for unit in snapshot.units})
    if not missing and ask.units != ():
        return None
    named = ", ".join(missing) or ask.queues or "none was named"
    return found("DR-UNIT-001", names=named)


def other(snapshot: Observation, site: str) -> str:
    return next(name for name in snapshot.roles if name != site)


def whole_at(snapshot: Observation, site: str) -> bool:
    """Say whether a site serves every unit, and alone."""
    return all(unit.serving == site for unit in snapshot.units)


def open_again(snapshot: Observation, past: History) -> bool:
    """Say whether the site that a run has left lets clients in beside the one that it opened."""
    roles = {snapshot.roles.get(past.source), snapshot.roles.get(past.ask.target)}
    return past.activation and past.ask.operation in MOVING and roles == {Role.SERVING}


def was_open_again(source: str, ask: Ask) -> Finding:
    """Say that clients may have worked at both sites."""
    return found("DR-ROLE-018", source=source, target=ask.target)


def source_of(
    snapshot: Observation,
    ask: Ask,
    past: History | None,
    *,
    cut_off: bool = False,
    again: bool = False,
    parts: bool = False,
) -> str | Finding:
    """Say which site is left: the one that the service leaves, that was lost, or that serves beside a returned one.

    `cut_off`: a hook will show that a site which does not answer keeps no client, or end the run. `again`: the site
    that the run has left is open again. `parts`: units move by themselves.
    """
    if past is not None and again:
        return unexpected(snapshot, ask) or past.source
    if past is not None and _gone_over(snapshot, past):
        return unexpected(snapshot, ask) or past.source
    if ask.operation in ALONE:
        return _alone(snapshot, ask, cut_off=cut_off, under_way=past is not None)
    if ask.operation == FAILOVER:
        return _lost(snapshot, ask, cut_off=cut_off)
    if ask.operation in RETURNS:
        return _serving_beside(snapshot, ask, past, parts=parts)
    if past is None:
        return _source(snapshot, ask, parts=parts)
    return unexpected(snapshot, ask) or _resumed_source(snapshot, past, parts=parts)


def _gone_over(snapshot: Observation, past: History) -> bool:
    """Say whether a run has done its move. The steps left open no site, so the site that the run left may be down."""
    moves = past.activation and past.ask.operation in MOVING
    return moves and whole_at(snapshot, past.ask.target) and snapshot.roles[past.source] is Role.DOWN


def silent(name: str, role: Role, error: BrokerError, severity: Severity | None = None) -> Finding:
    """Say that a broker did not answer, and how it failed."""
    id_ = "DR-SITE-002" if isinstance(error, Passive) else "DR-SITE-001"
    state = "" if isinstance(error, Passive | TimedOut) else f" is {role.value}"
    return found(id_, f"{name}{state}: {error}", error.remedy, severity=severity)


def stand_of(snapshot: Observation, site: str) -> str:
    """How a site stands. One that was late is not said to be sick: a busy machine is late, too."""
    role = snapshot.roles[site]
    late = role is Role.SICK and snapshot.hints.get(site, NO_HINTS).late
    return f"{site} {'did not answer in time' if late else f'is {role.value}'}"


def stand(snapshot: Observation) -> str:
    return ", ".join(stand_of(snapshot, site) for site in snapshot.roles)


def both_open(snapshot: Observation) -> Finding:
    """Say that clients work at both sites."""
    remedy = "`dr-ctl fence SITE` keeps them out of the one that should not serve; compare what they did at both."
    return found("DR-ROLE-001", f"split brain: both sites let clients in: {stand(snapshot)}", remedy)


def unexpected(snapshot: Observation, ask: Ask) -> Finding | None:
    """Say that the site that was expected to serve does not, or not alone."""
    serving = [name for name, role in snapshot.roles.items() if role is Role.SERVING]
    if ask.expect_serving is None or serving == [ask.expect_serving]:
        return None
    return _surprise(snapshot, ask, "run again with the site that serves")


def _surprise(snapshot: Observation, ask: Ask, then: str) -> Finding:
    return found("DR-ROLE-002", site=if_known(ask.expect_serving), roles=stand(snapshot), then=then)


def _alone(snapshot: Observation, ask: Ask, *, cut_off: bool, under_way: bool) -> str | Finding:
    """The roles that a single step asks for."""
    source, summary = other(snapshot, ask.target), stand(snapshot)
    answers = snapshot.roles[source] in _ANSWERING
    if (surprise := unexpected(snapshot, ask)) is not None:
        return surprise
    if ask.operation in (QUIESCE, RESTART) and not answers:
        what = (
            f"{source} cannot be quiesced" if ask.operation == QUIESCE else f"the link of {source} cannot be restarted"
        )
        return found("DR-ROLE-009", f"{what}: {summary}", f"Bring {source}'s management back.")
    if ask.operation == FENCE and not answers and not cut_off:
        return found("DR-FENCE-003", site=source, summary=summary)
    if ask.operation == TRIM and not (answers and snapshot.roles[ask.target] is Role.SERVING):
        text = f"what of {source} is processed is told by what {ask.target} serves: {summary}"
        return found("DR-ROLE-009", text, "Both sites must answer, and the other one serve: `dr-ctl status` says more.")
    if ask.operation in (KEEP_ASIDE, PUT_BACK, REHEARSE, REHEARSE_CLEAN):
        settles = ask.operation in (KEEP_ASIDE, PUT_BACK)
        return (_settled(snapshot, ask) if settles else _rehearsed(snapshot, ask)) or source
    if ask.operation in (QUIESCE, FENCE, RESTART, TRIM):
        return source
    return _of_both(snapshot, ask, "`dr-ctl status` says what ends the open run; then: " if under_way else "") or source


def _rehearsed(snapshot: Observation, ask: Ask) -> Finding | None:
    """Refuse to rehearse where one site does not serve, or the other does not wait."""
    source, summary = other(snapshot, ask.target), stand(snapshot)
    here, there = snapshot.roles[source], snapshot.roles[ask.target]
    if ask.operation == REHEARSE and (here, there) != (Role.SERVING, Role.STANDBY):
        text = f"a rehearsal goes from a site that serves to one that waits: {summary}"
        return found("DR-ROLE-009", text, "`dr-ctl status` says what each site is.")
    if not {here, there} & {*_ANSWERING}:
        return found("DR-ROLE-009", f"nothing can be cleaned: {summary}", "Bring the sites back first.")
    return None


def _settled(snapshot: Observation, ask: Ask) -> Finding | None:
    """Refuse to decide of copies at a site that does not wait, or to put back where nobody answers."""
    source, summary = other(snapshot, ask.target), stand(snapshot)
    here, there = snapshot.roles[source], snapshot.roles[ask.target]
    if ask.operation == KEEP_ASIDE and (here, there) != (Role.STANDBY, Role.SERVING):
        text = f"copies are kept aside at a site that waits, while the other one serves: {summary}"
        return found("DR-ROLE-009", text, "`dr-ctl status` says which site waits.")
    if here not in _ANSWERING:
        return found("DR-ROLE-009", f"nothing can be put back at {source}: {summary}", f"Bring {source} back first.")
    return None


def _of_both(snapshot: Observation, ask: Ask, first: str) -> Finding | None:
    """Refuse to let clients in, or to prepare that, while the other site is open or silent. `first`: what is to be done
    before anything moves."""
    source, target, summary = other(snapshot, ask.target), ask.target, stand(snapshot)
    here, there = snapshot.roles[source], snapshot.roles[target]
    opened, shut = (source, target) if ask.operation == UNFENCE else (target, source)
    if ask.operation == DRAIN and here is Role.SERVING:
        remedy = f"`dr-ctl swapover --to {target}` does all of it; by steps, the fence of {source} comes first."
        return found("DR-ROLE-010", f"{source} is not fenced: {summary}", f"{first}{remedy}")
    if ask.operation == UNFENCE and there is Role.SERVING and here is Role.STANDBY:
        return None  # no listener is opened, but pauses that runs left there may be lifted
    if snapshot.roles[shut] is Role.SERVING:
        text = f"{opened} must not be opened while {shut} is: {summary}"
        return found("DR-ROLE-011", text, f"{first}{moves_it(snapshot, opened)}")
    if ask.operation == UNFENCE and any({opened, shut} <= {*unit.closed_at} for unit in snapshot.units):
        return None  # units that answer at both sites are enough; the result names the others
    if here not in _ANSWERING or there not in _ANSWERING:
        remedy = f"Bring the silent site back; if it is lost: `dr-ctl failover --to {opened}`."
        return found("DR-ROLE-006", f"that needs an answer from both sites: {summary}", remedy)
    if ask.operation == DRAIN and there is Role.SERVING:
        return found("DR-ROLE-012", target=target, roles=summary)
    return None


def moves_it(snapshot: Observation, site: str) -> str:
    """Name the command that moves the service to `site` while the other site serves; a lost site is taken in first."""
    if lost_alone(snapshot.debts) == site:
        return (
            f"`dr-ctl failback --to {site}` takes it in and moves the service; `dr-ctl reinstate {site}` takes it in."
        )
    return f"`dr-ctl swapover --to {site}` moves the service."


def _source(snapshot: Observation, ask: Ask, *, parts: bool) -> str | Finding:
    """Say which site the service leaves, or why that cannot be told."""
    source = other(snapshot, ask.target)
    roles = snapshot.roles
    serving = [name for name, role in roles.items() if role is Role.SERVING]
    summary = stand(snapshot)
    if is_split(snapshot):
        remedy = f"`dr-ctl fence {source}` keeps clients out of {source}; then the same command brings all to "
        return (unexpected(snapshot, ask) or source) if parts else split(snapshot, f"{remedy}{ask.target}.")
    if len(serving) > 1:
        return both_open(snapshot)
    if (surprise := unexpected(snapshot, ask)) is not None:
        return surprise
    if serving == [ask.target]:
        if roles[source] is Role.STANDBY:
            return source
        return found("DR-ROLE-003", target=ask.target, source=source, roles=summary)
    if serving == [source]:
        if roles[ask.target] is Role.STANDBY:
            return source
        return found(
            "DR-ROLE-004",
            f"{ask.target} cannot take over: {summary}",
            f"A planned move needs both sites up and answering. Mend {ask.target} first.",
        )
    remedy = "A swapover starts from a serving site; `dr-ctl status` says what is open, and what to do."
    if roles[ask.target] is Role.STANDBY and roles[source] not in _ANSWERING:
        remedy = f"If {source} is lost: `dr-ctl failover --to {ask.target} --dry-run` says what that costs."
    return found("DR-ROLE-005", f"no site was seen to serve: {summary}", remedy)


def alive(snapshot: Observation, ask: Ask, *, under_way: bool = False, cut_off: bool = False) -> Finding | None:
    """Say that the site to leave lives: a failover beside it would open a second one. `under_way`: the failover is
    open, and nothing moves before it has ended. `cut_off`: a hook is to end what shows that a silent one lives."""
    left = other(snapshot, ask.target)
    role = snapshot.roles[left]
    if snapshot.roles[ask.target] is Role.SERVING and role is not Role.SERVING:
        return None
    if role is Role.SERVING:
        text, remedy = f"{left} serves", f"Move it without loss: `dr-ctl swapover --to {ask.target}`."
        if silent := [unit.name for unit in snapshot.units if left not in (*unit.open_at, *unit.closed_at)]:
            remedy = (
                f"A swapover moves all without loss, once {', '.join(silent)} of {left} answers again. Without it: "
                f"`dr-ctl fence {left}` closes the rest, then the same failover."
            )
    elif role is Role.SICK and snapshot.hints.get(left, NO_HINTS).late:
        text = f"{stand_of(snapshot, left)}, and takes connections: it may still serve"
        remedy = (
            "Ask again: a busy broker answers later. If it stays silent, end its process for certain, or cut its host "
            f"off; then `dr-ctl failover --to {ask.target}` again."
        )
    elif role is Role.SICK:
        text = f"{left} is sick: its process lives and may still serve"
        remedy = f"End that process for certain, or cut its host off; then `dr-ctl failover --to {ask.target}` again."
    elif role is Role.UNKNOWN and not cut_off and (hints := snapshot.hints.get(left, NO_HINTS)).signs:
        return lives_by(left, hints)
    else:
        return None
    if under_way:
        remedy = f"`dr-ctl status` says what ends the open failover; then: {remedy}"
    return found("DR-ALIVE-001", text, remedy)


def lives_by(left: str, hints: Hints) -> Finding:
    """Say what shows that a silent site lives: then no word of a person takes it for lost."""
    text = f"{left} does not answer, and lives: {'; '.join((*hints.signs, *hints.nodes))}"
    remedy = (
        f"Ask again in a minute: so long the link of a host that is gone may be listed. If {left} serves by another "
        "node, name that one under `jolokia:` and `stomp:`; `dr-ctl status` says then who serves."
    )
    return found("DR-ALIVE-001", text, hints.remedy or remedy)


def may_take_over(snapshot: Observation, ask: Ask) -> Sequence[Finding]:
    """Say that another node of a site which is taken for lost may serve, or take over, after all."""
    left = other(snapshot, ask.target)
    nodes = snapshot.hints.get(left, NO_HINTS).nodes
    if not nodes or whole_at(snapshot, ask.target):
        return ()
    text = f"{left} may serve, or be about to: {'; '.join(nodes)}"
    remedy = (
        "See what each of them does: one that serves, name under `jolokia:` and `stomp:`. Only once each is ended, or "
        f"its host cut off: add --presume-down {left} --reason TEXT."
    )
    word = ask.presume_down == left and ask.reason is not None
    return (found("DR-NODE-001", text, remedy, severity=Severity.WARNING if word else Severity.ERROR),)


def not_lost(snapshot: Observation, ask: Ask, *, under_way: bool, cut_off: bool) -> tuple[Finding, ...]:
    """Say why the site to leave is not taken for lost: it lives, or another node of it may. See `alive`."""
    if (lives := alive(snapshot, ask, under_way=under_way, cut_off=cut_off)) is not None:
        return (lives, *presumed(snapshot, ask))
    return tuple(each for each in may_take_over(snapshot, ask) if each.severity is Severity.ERROR)


def presumed(snapshot: Observation, ask: Ask) -> Sequence[Finding]:
    """Say that a word on a site which gives signs of life is not believed."""
    left = other(snapshot, ask.target)
    if ask.presume_down != left:
        return ()
    return (found("DR-ALIVE-003", site=left),)


def _serving_beside(snapshot: Observation, ask: Ask, past: History | None, *, parts: bool) -> str | Finding:
    """Say which site serves while the target is taken in again. A site that came back open is taken for the returning
    site only where a run wrote down its loss. Where both are closed, the resumed run had moved half way."""
    beside, roles = other(snapshot, ask.target), snapshot.roles
    summary = stand(snapshot)
    if past is None and ask.expect_serving is not None and roles[ask.expect_serving] is not Role.SERVING:
        return _surprise(snapshot, ask, "run again with the site that serves")
    was_lost = any(debt.about == ask.target for debt in snapshot.debts)
    open_ = roles[ask.target] is Role.SERVING
    if roles[beside] is Role.SERVING and (roles[ask.target] is Role.STANDBY or (open_ and was_lost)):
        return beside
    half_way = past is not None and roles[ask.target] is Role.STANDBY
    if ask.operation == FAILBACK and (open_ or half_way) and roles[beside] is Role.STANDBY:
        return beside
    if roles[beside] is Role.SERVING and open_:
        return as_moved(snapshot, ask.target) if parts and is_split(snapshot) else both_open(snapshot)
    return found("DR-ROLE-008", target=ask.target, roles=summary, beside=beside)


def _lost(snapshot: Observation, ask: Ask, *, cut_off: bool) -> str | Finding:
    """Say which site was lost, or what is missing to take it for lost. The target must be there for itself."""
    lost, roles = other(snapshot, ask.target), snapshot.roles
    summary = stand(snapshot)
    if ask.expect_serving is not None and roles[ask.expect_serving] is not Role.SERVING:
        return _surprise(snapshot, ask, "a failover is for a site that does not serve any more")
    if roles[ask.target] not in (Role.SERVING, Role.STANDBY):
        return found(
            "DR-ROLE-004", f"{ask.target} cannot take over: {summary}", f"A failover needs {ask.target}. Mend it first."
        )
    if roles[lost] in CLOSED or whole_at(snapshot, ask.target):
        return lost
    if (ask.presume_down == lost and ask.reason) or (cut_off and roles[lost] is Role.UNKNOWN):
        return lost
    shown = some(snapshot.hints.get(lost, NO_HINTS).taken) or "nothing shows that it is down"
    return found("DR-ALIVE-002", site=lost, shown=shown, summary=summary)


def renamed_sites(snapshot: Observation) -> Finding | None:
    """The finding for debts of sites that the settings do not have."""
    strange = sorted({site for debt in snapshot.debts for site in (debt.about, debt.kept_at)} - {*snapshot.roles})
    if not strange:
        return None
    return found(
        "DR-STATE-002", names=" and ".join(strange), sites=" and ".join(snapshot.roles), old_names=", ".join(strange)
    )


def other_sites(snapshot: Observation, past: History) -> Finding | None:
    """The finding for a run of other sites than the observed ones."""
    if set(snapshot.roles) == {past.source, past.ask.target}:
        return None
    summary = stand(snapshot)
    return found("DR-ROLE-007", source=past.source, target=past.ask.target, roles=summary)


def other_brokers(basis: Mapping[str, Any], past: History) -> Finding | None:
    """The finding for a run of other brokers than the observed ones, whatever the sites are called. Brokers without an
    identity are not compared."""
    if (renamed := _renamed(basis, past)) is not None:
        return renamed
    now, then = basis.get(NODES, {}), past.basis.get(NODES, {})
    for site, units in then.items():
        for unit, node in units.items():
            today = now.get(site, {}).get(unit)
            if today is not None and today != node:
                text = f"the run is not of this installation: {site}/{unit} is another broker now ({today}, not {node})"
                remedy = "Go on with it with the settings that it began with; where that broker was made anew, "
                return found("DR-ROLE-017", text, f"{remedy}`dr-ctl abort --forget RUN --reason TEXT` gives it up.")
    return None


def _renamed(basis: Mapping[str, Any], past: History) -> Finding | None:
    """The finding for a run of a pair that the settings do not name any more; by the broker's own identity it says
    what they call it now."""
    now, nodes = basis.get(PAIRS, {}), basis.get(NODES, {})
    for site, units in past.basis.get(PAIRS, {}).items():
        for unit in sorted({*units} - {*now.get(site, units)}):
            node = past.basis.get(NODES, {}).get(site, {}).get(unit)
            today = next(
                (name for name, each in nodes.get(site, {}).items() if node is not None and each == node), None
            )
            is_now = "" if today is None else f"; that broker is called {today} now"
            text = f"the run is of {site}/{unit}, and the settings have no such pair{is_now}"
            remedy = f"Give the pair its old name {unit} until the run has ended: `dr-ctl resume` or `dr-ctl abort`."
            return found("DR-ROLE-017", text, remedy)
    return None


def _resumed_source(snapshot: Observation, past: History, *, parts: bool) -> str | Finding:
    """Say that the run's own source is still the one, or why going on is not safe."""
    roles = snapshot.roles
    summary = stand(snapshot)
    if any(role not in (Role.SERVING, Role.STANDBY) for role in roles.values()):
        return found(
            "DR-ROLE-006",
            f"going on needs an answer from both sites: {summary}",
            "Bring the silent site's management back, then `dr-ctl resume` or `dr-ctl abort`.",
        )
    if all(role is Role.SERVING for role in roles.values()) and not (parts and is_split(snapshot)):
        return both_open(snapshot)
    return past.source
