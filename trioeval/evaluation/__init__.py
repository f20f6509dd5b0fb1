"""The evaluation of one row, of any task type: ask the provider, transform, judge, record."""
