"""The ways brokers of two sites are joined; each package knows one."""
