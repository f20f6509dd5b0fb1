"""Reports of a run: pure functions from records of rows to JSON, tables and text."""

from trioeval.report.formats.document import document as document
from trioeval.report.formats.document import run_document as run_document
from trioeval.report.formats.json import json_chunks as json_chunks
from trioeval.report.formats.json import to_json as to_json
from trioeval.report.head import Head as Head
from trioeval.report.head import config_tests as config_tests
from trioeval.report.head import head_of as head_of
from trioeval.report.records import RowRecord as RowRecord
from trioeval.report.results import Results as Results
from trioeval.report.results import RunInfo as RunInfo
from trioeval.report.row import row_json as row_json
from trioeval.report.totals import Totals as Totals
