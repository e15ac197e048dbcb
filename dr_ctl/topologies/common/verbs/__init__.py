"""The verbs that topologies share: how each is decided, done and undone. A draft is pure; its act stands beside it."""
