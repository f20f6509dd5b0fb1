"""Simulations of suites on a virtual clock: the real kernel and lanes, with modelled providers.

`model` is a provider as data, `rows` are the jobs of a suite, `run` simulates them, `alternatives` compares
settings, and `report` shows the results.
"""
