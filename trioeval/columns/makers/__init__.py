"""Makers of cells: one module a kind of column."""
