"""Common parts of all topologies of ActiveMQ Classic brokers: names, looks, the way to a broker, its documents."""
