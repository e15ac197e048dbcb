"""The ways to join brokers of two sites: a package for every way."""
