"""Tasks of type `columns`: what makes the values of a dataset, and runs on the kernel.

`making` says what makers are; there is one module for each kind of column. `dataset_run` puts the pure parts
of `trioeval.datasets`, the makers, the journal and the folder together as one plan of jobs.
"""
