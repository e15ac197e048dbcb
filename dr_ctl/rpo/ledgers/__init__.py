"""Ledgers of message ids, and what they say against each other."""
