"""A twin whose sites have one store: the broker with its lock serves, the other waits."""
