"""The names of the operations, their kinds, the runbook lines of the single steps, and the verbs that the engine
implements; a topology implements every other verb."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dr_ctl.engine.runbook import Runbook, RunbookStep

# Verbs that the executor implements for every topology.
ESTIMATE: Final = "estimate"
SNAPSHOT: Final = "snapshot"
QUESTION: Final = "ask"
NO_RETURN: Final = "point-of-no-return"
HOOK: Final = "hook"
HOLD: Final = "hold"
ENGINE_VERBS: Final = frozenset({ESTIMATE, SNAPSHOT, QUESTION, NO_RETURN, HOOK, HOLD})
CATCHING_UP: Final = "catch-up"
# These verbs prove a site empty and open the other; a run repeats them if a takeover outdates the proof.
DRAIN_TO_ACTIVATE: Final = ("drain", "verify", NO_RETURN, "activate")
# A resumed run whose target was seen to serve does only these verbs.
FINISHING: Final = frozenset({"observe", "check", NO_RETURN, "activate", "probe"})
# If the source lets clients in again, it does these: it closes the source first, without a check.
CLOSING_AGAIN: Final = (FINISHING - {"check"}) | {"fence"}
# A repeated failover does only these verbs, to keep messages of the lost site out.
KEEPING_OUT: Final = frozenset({"observe", "check", SNAPSHOT, "quarantine"})
# These verbs reinstate a lost site. After RECONCILE the site stays reinstated, even if a later step fails.
RECONCILE: Final = "reconcile"
REJOINING: Final = frozenset({"residue", "reinstate", RECONCILE})
SWAPOVER: Final = "swapover"
FAILOVER: Final = "failover"
FAILBACK: Final = "failback"
REINSTATE: Final = "reinstate"
REINSTATING: Final = (REINSTATE, FAILBACK)
ALL: Final = (SWAPOVER, FAILOVER, FAILBACK, REINSTATE)
QUIESCE: Final = "quiesce"
FENCE: Final = "fence"  # a run keeps clients out from the first call of this verb
DRAIN: Final = "drain"
VERIFY: Final = "verify"
ACTIVATE: Final = "activate"  # clients may be in from the first call of this verb
UNFENCE: Final = "unfence"
RESTART: Final = "link restart"
TRIM: Final = "trim"
KEEP_ASIDE: Final = "sync settle"
PUT_BACK: Final = "sync put-back"
REHEARSE: Final = "rehearse"
REHEARSE_CLEAN: Final = "rehearse clean"
# These operations name the site where they act; every other names the site that will serve.
AT_SOURCE: Final = (QUIESCE, FENCE, UNFENCE, RESTART, TRIM, KEEP_ASIDE, PUT_BACK)
# Operations that send the clients to another site.
MOVING: Final = (SWAPOVER, FAILOVER, FAILBACK, ACTIVATE)
# Operations that leave every client where it is.
IN_PLACE: Final = (RESTART, TRIM, KEEP_ASIDE, PUT_BACK, REHEARSE, REHEARSE_CLEAN)
# Operations after which no site serves.
CLOSING: Final = (FENCE, DRAIN)
_STEP_LINES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    QUIESCE: (("quiesce", "serving"),),
    FENCE: (("fence", "source"),),
    DRAIN: (("drain", "target"), ("verify", "target")),
    ACTIVATE: (("point-of-no-return", "both"), ("activate", "target"), ("probe", "target")),
    UNFENCE: (("unfence", "source"),),
    RESTART: (("restart-link", "source"),),
    TRIM: (("trim", "source"),),
    KEEP_ASIDE: (("keep-aside", "source"),),
    PUT_BACK: (("put-back", "source"),),
    REHEARSE: (("canary", "source"),),
    REHEARSE_CLEAN: (("clean-canary", "both"),),
}
SINGLE_STEPS: Final = tuple(_STEP_LINES)


def single_step(operation: str) -> Runbook:
    """Return the lines of an operation that is a single step of the runbooks, with the same checks before the step."""
    lines = (("observe", "both"), ("check", "both"), *_STEP_LINES[operation])
    steps = tuple(RunbookStep(verb, site, number) for number, (verb, site) in enumerate(lines, start=1))
    return Runbook(operation, operation, steps, Path(operation))
