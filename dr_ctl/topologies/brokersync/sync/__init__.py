"""The agent of such a pair: deletes at the waiting site the copies of what the serving site has consumed."""
