"""Moves from the command line, and a run whose process died on the way."""

import json

from dr_ctl.engine.plan import Ask, Plan, PlannedStep
from tests.cli.conftest import Ended, Shell
from tests.cli.installation import Installation
from tests.report.scribe import Scribe

MOVE = ["pause()", "pause()", "stop()", "resume()", "resume()", "start()"]
ACCEPTED = ("--accept-loss", "unknown", "--accept-duplicates", "unknown")


def swapover(dr_ctl: Shell, *words: str, to: str = "paris") -> Ended:
    return dr_ctl("swapover", "--to", to, "--json", *words)


def failover(dr_ctl: Shell, *words: str) -> Ended:
    return dr_ctl("failover", "--to", "paris", "--json", *words)


def owed(ended: Ended) -> list[tuple[str, str]]:
    return [(debt["kind"], debt["site"]) for debt in ended.document["debts"]]


def begun(dr_ctl: Shell, installation: Installation, *verbs: str) -> None:
    """A run whose process died after these steps, with what it had changed until then."""
    dr_ctl("plan", "swapover", "--to", "paris", "--out", "plan.json")
    told = json.loads((dr_ctl.folder / "plan.json").read_text(encoding="utf-8"))
    steps = tuple(PlannedStep.from_json(step) for step in told["steps"])
    asked = Ask.from_json(told["ask"])
    scribe = Scribe(
        dr_ctl.run(), plan=Plan(asked, "london", steps, (), told["baseline"], (), (), ("london",), basis=told["basis"])
    )
    scribe.begin()
    for verb in verbs:
        calls = [call for call in scribe.step(verb).calls if call.when is None]
        for call in calls:
            site = installation.london if call.site == "london" else installation.paris
            site.do(call)
        scribe.start(verb).sent(verb, *calls).stop(verb)
    scribe.close()
    installation.forget()
