"""A twin whose sites the replication plugin joins, made from its published names and states: nobody has measured it."""
