"""Assertion types that ask a model: their prompts, the reading of replies, and their findings."""
