"""The agent of such a pair: deletes at the standby the copies of what the serving site has consumed."""
