"""Throw-away real brokers on this machine, faults between them, and traffic with a ledger."""
