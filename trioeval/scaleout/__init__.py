"""A run on many machines: its rows are performed by the workers of a Dask cluster.

The coordinator is a normal run, with its store, journal, resume, results and exit code; only the bodies of
its rows are exchanged. It sends rows to workers in shards, and records each reply and each row as it arrives.
A worker runs the rows of a shard as a run of its own, on lanes that live as long as the worker's session.
"""
