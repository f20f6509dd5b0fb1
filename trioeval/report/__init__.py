"""Reports of a run: pure functions from records of rows to JSON, tables and text."""
