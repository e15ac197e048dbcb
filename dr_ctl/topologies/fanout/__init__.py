"""Classic brokers side by side: producers write each message to both, consumers work at one of them."""
