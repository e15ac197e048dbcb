"""Classic brokers with BrokerSync: composite queues copy, network connectors ship, an agent removes what is done."""
