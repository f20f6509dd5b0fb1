"""Sessions: runs of suites, side by side, on common lanes, limits, store and cache."""
