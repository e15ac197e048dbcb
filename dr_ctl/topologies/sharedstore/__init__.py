"""Classic brokers that share one store: the broker that holds its lock serves, the other one waits with no port
open."""
