"""Simulated ActiveMQ Classic brokers, with a package for each topology."""
