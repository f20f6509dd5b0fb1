"""The folder of a dataset: one file for each group of rows, and notes about them.

    problems/
        dataset.json       the description of the dataset and the digest of each file; written at start and
        end groups.jsonl       groups as they are written; removed when the dataset is complete
        batch_00000.parquet, batch_00001.parquet, …    (or .jsonl)
        aside/…            columns that processors removed
        final/…            if the whole dataset was processed after generation: the final rows, with their own
                           dataset.json; the files above stay unchanged

A file is written under another name, synced to disk, and renamed; then its folder is synced, and then the
file is noted. So a file with its final name is complete, and one that is not noted is identified by its
digest. `final` is created by one rename, after all of it is synced; until then an older one is read under
another name. A file that has changed since it was written is removed when the folder is opened again, because
it can be made again.

Two runs with the same rows write the same bytes: the files contain no times and no run ids.

All functions block, and are called in threads.
"""

from trioeval.columns.files.folder import DatasetFolder as DatasetFolder
from trioeval.columns.files.folder import chosen_format as chosen_format
from trioeval.columns.files.layout import GroupFile as GroupFile
from trioeval.columns.files.layout import Header as Header
from trioeval.columns.files.layout import is_whole as is_whole
from trioeval.columns.files.open import HELPS as HELPS
from trioeval.columns.files.open import open_folder as open_folder
from trioeval.columns.files.rows import DatasetRows as DatasetRows
