"""Servers of the Model Context Protocol: their processes, connections and tools."""
