"""What every topology of ActiveMQ Classic brokers has in common: names, looks, the way to a broker, its documents."""
