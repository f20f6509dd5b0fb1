"""The uncertainty of numbers, and whether two of them differ beyond chance. Pure, with sources.

See docs/reference/statistics.md for what is shown where, and why.
"""
