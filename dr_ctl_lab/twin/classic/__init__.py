"""Simulated ActiveMQ Classic brokers, with a package for each way in which sites are joined."""
