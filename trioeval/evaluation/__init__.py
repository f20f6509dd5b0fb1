"""What a task of any type does with a row: ask, transform, judge, record."""
