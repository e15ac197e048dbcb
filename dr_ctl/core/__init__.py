"""The words everything else is written in: sites, roles, findings, exit codes, errors, time. Standard library only."""
