"""Classic brokers that share one store: whoever holds its lock serves, the other waits for it with no port open."""
