"""Simulated Artemis brokers: the parts that do not depend on how the sites are joined."""
