"""Kinds of assertions that need no model: one module a family."""
