"""Datasets that are built column by column, row group by row group: the pure part.

What columns depend on (`graph`), which rows belong together (`grouping`), what may be made next (`tracker`),
whose turn it is (`fair`), what is held in memory (`buffer`), when to give up (`error_window`), what became of
it all (`result`, `profile`), and the files that it ends in (`files`). Nothing here knows of suites, models or
clocks; effects are those of files alone.
"""
