"""Clients of the lab's traffic, one module a protocol that brokers speak."""
