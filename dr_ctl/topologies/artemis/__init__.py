"""Common parts of the topologies of Artemis brokers: looks, doors, pauses, documents, proofs."""
