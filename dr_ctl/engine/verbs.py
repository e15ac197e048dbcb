"""The verbs of a runbook that the engine itself tells apart; what every other one does is a topology's."""

from __future__ import annotations

from typing import Final

# What the executor does itself, whatever the topology.
ESTIMATE: Final = "estimate"
SNAPSHOT: Final = "snapshot"
QUESTION: Final = "ask"
NO_RETURN: Final = "point-of-no-return"
HOOK: Final = "hook"
HOLD: Final = "hold"
GENERAL: Final = frozenset({ESTIMATE, SNAPSHOT, QUESTION, NO_RETURN, HOOK, HOLD})

# Clients are out from the first call of this step, and may be in from the first call of that one.
FENCING: Final = "fence"
ACTIVATING: Final = "activate"

# What is left of a resumed run whose target was seen to serve.
FINISHING: Final = frozenset({"observe", "check", NO_RETURN, ACTIVATING, "probe"})
# The same where the site that was left lets clients in again: that is closed, and nothing is checked before.
CLOSING_AGAIN: Final = (FINISHING - {"check"}) | {FENCING}

# How a lost site is taken in. Once the last of it has succeeded, what was done stays done: it is neither undone nor
# begun again because a later step fails.
KEEPS: Final = "reconcile"
TAKING_IN: Final = frozenset({"residue", "reinstate", KEEPS})
