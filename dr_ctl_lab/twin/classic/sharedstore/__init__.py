"""A twin whose sites have one store: whoever holds its lock serves, the other waits for it."""
