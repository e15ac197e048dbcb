"""Sites to practise on: real brokers that are thrown away, simulated ones, clients with a ledger, and the demo."""
