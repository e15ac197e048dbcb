"""A twin whose queues are copied to the other site over a network connector, and whose copies an agent cleans."""
