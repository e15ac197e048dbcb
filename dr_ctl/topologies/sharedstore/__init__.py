"""Classic brokers that share one store: the holder of its lock serves, the other waits with no port open."""
