"""What the topologies of Artemis brokers have in common: looks, doors, pauses, documents, proofs."""
