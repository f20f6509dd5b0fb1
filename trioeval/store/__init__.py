"""The store of runs: an SQLite database that survives any end of the process."""
