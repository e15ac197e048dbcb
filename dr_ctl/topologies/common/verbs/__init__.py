"""Topologies share these verbs. A draft is pure, and the act that carries it out stands beside it."""
