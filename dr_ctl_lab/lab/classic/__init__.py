"""Labs of real ActiveMQ Classic brokers: made, managed, and what each way of joining two of them needs."""
