"""Assertion types that need no model: one module per family."""
