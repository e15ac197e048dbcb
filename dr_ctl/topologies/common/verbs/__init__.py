"""The verbs that topologies share: for each a pure draft, and the act that executes it."""
