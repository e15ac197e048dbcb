"""The verbs of a runbook that the engine itself tells apart; a topology does every other verb."""

from typing import Final

# Verbs that the executor does itself, whatever the topology.
ESTIMATE: Final = "estimate"
SNAPSHOT: Final = "snapshot"
QUESTION: Final = "ask"
NO_RETURN: Final = "point-of-no-return"
HOOK: Final = "hook"
HOLD: Final = "hold"
GENERAL: Final = frozenset({ESTIMATE, SNAPSHOT, QUESTION, NO_RETURN, HOOK, HOLD})

CATCHING_UP: Final = "catch-up"
# Clients are out from the first call of this step, and may be in from the first call of that one.
FENCING: Final = "fence"
ACTIVATING: Final = "activate"

# Verbs left for a resumed run whose target was seen to serve.
FINISHING: Final = frozenset({"observe", "check", NO_RETURN, ACTIVATING, "probe"})
# The same verbs where the source lets clients in again: the source is closed, without any check before.
CLOSING_AGAIN: Final = (FINISHING - {"check"}) | {FENCING}

# How a lost site is taken in. Once the last verb has succeeded, the site stays taken in, even if a later step fails.
KEEPS: Final = "reconcile"
TAKING_IN: Final = frozenset({"residue", "reinstate", KEEPS})
