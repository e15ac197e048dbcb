"""Labs of real Artemis brokers: made, managed, and what each way of joining two of them needs."""
