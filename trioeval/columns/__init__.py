"""Tasks of type `columns`: datasets that are built column by column, row group by row group.

`model` and `form` hold the settings and how a suite writes them; `open` opens such a task, and `run` builds
the dataset. `graph` orders the columns, `groups` and `progress` decide which cells may be made next, `makers`
make them, `buffer` holds their values, and `files` writes and reads the finished groups.
"""
