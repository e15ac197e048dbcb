"""A simulated pair of sites in memory that answers like the real brokers, for rehearsals and for tests of failures."""
