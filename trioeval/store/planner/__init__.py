"""The queue of agents that survives restarts."""
