"""Common parts of the topologies of Artemis brokers: readings, listeners, pauses, documents, proofs."""
