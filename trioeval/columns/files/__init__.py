"""The folder of a dataset: one file for each group of rows, and what is known of them.

    problems/
        dataset.json       what the dataset is, and the digest of each file; written at begin and end
        groups.jsonl       groups as they are written; gone when the dataset is complete
        batch_00000.parquet, batch_00001.parquet, …    (or .jsonl)
        aside/…            columns that processors have left out
        final/…            where the whole of it was processed after it was made: the rows as they are then,
                           with a dataset.json of their own; the files above stay as they were

A file is written under another name, brought to the disk, and renamed; then its folder is, and then it is
noted. So a file with its name is whole, and what is not noted is known by its digest. `final` comes to be by
one rename, and only when all of it is safe; one of a time before is read, by another name, until then. One
that is not as it was written is removed when the folder is opened again, for it can be made again.

Two runs with the same rows write the same bytes: no time, no id of a run stands in them.

All of it blocks, and is called in threads.
"""

from trioeval.columns.files.folder import DatasetFolder as DatasetFolder
from trioeval.columns.files.folder import chosen_format as chosen_format
from trioeval.columns.files.layout import GroupFile as GroupFile
from trioeval.columns.files.layout import Header as Header
from trioeval.columns.files.layout import is_whole as is_whole
from trioeval.columns.files.open import HELPS as HELPS
from trioeval.columns.files.open import open_folder as open_folder
from trioeval.columns.files.rows import DatasetRows as DatasetRows
