"""Sentences on the traces of a move, for the operator: the second copy, the way back, the sends in doubt. Pure."""

from dr_ctl.core.model import some
from dr_ctl.engine.operations import FAILBACK, FAILOVER, SWAPOVER
from dr_ctl.engine.parts import option
from dr_ctl.engine.plan import Plan


def left_behind(plan: Plan, *, one_store: bool = False) -> list[str]:
    """Empty where nothing was moved."""
    source, target = plan.source, plan.target
    which = option(plan.ask) if plan.untouched else ""
    doubt = (
        f"In doubt: what a client sent to {source} without seeing a receipt. It sends that again, "
        "and it may then be there twice."
    )
    stays, away = (
        f"{source} stays up and closed and takes what {target} ships; switched off, there is none.",
        f"none until {source} is taken in again; what {target} takes lies at {target} alone.",
    )
    if one_store:
        stays = away = f"none, both sites use one store; {source} can take it while its broker runs and waits."
    if which:
        named = some([*(plan.ask.units or ())])
        stays = f"{source} lets no client of {named} in and takes what {target} ships; switched off, there is none."
    if plan.ask.operation in (SWAPOVER, FAILBACK):
        return [
            f"Second copy: {stays}",
            doubt,
            f"Outage: counted until {target} let clients in, not until they work on the first new message.",
            f"To come back: `dr-ctl swapover --to {source}{which}`.",
        ]
    if plan.ask.operation == FAILOVER:
        back = f"`dr-ctl failback --to {source}` once {source} is up, or `dr-ctl reinstate {source}`, then a swapover."
        return [
            f"Second copy: {away}",
            doubt,
            f"To come back: {back}",
        ]
    return []
