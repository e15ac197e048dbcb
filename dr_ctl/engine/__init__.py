"""From a runbook and an observation to a plan, its execution and its journal."""
