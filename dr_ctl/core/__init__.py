"""The terms that every other package uses: sites, roles, findings, exit codes, errors, time. Standard library only."""
