"""The store of runs: an SQLite database that survives any end of the process."""

from trioeval.report.stored import DatasetFacts as DatasetFacts
from trioeval.report.stored import RunStart as RunStart
from trioeval.report.stored import StoredCall as StoredCall
from trioeval.report.stored import StoredOutcome as StoredOutcome
from trioeval.report.stored import StoredRunFacts as StoredRunFacts
from trioeval.store.not_run_rows import NotRunRows as NotRunRows
from trioeval.store.reader import StoreReader as StoreReader
from trioeval.store.reader import read_store as read_store
from trioeval.store.run import StoredRun as StoredRun
from trioeval.store.store import Store as Store
from trioeval.store.store import open_store as open_store
