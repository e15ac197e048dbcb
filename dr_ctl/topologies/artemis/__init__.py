"""Common parts of the topologies of Artemis brokers: looks, listeners, pauses, documents, proofs."""
