"""What is told of a run: pure functions from rows to JSON, tables and text."""

from trioeval.report.document import RunInfo as RunInfo
from trioeval.report.document import document as document
from trioeval.report.document import row_json as row_json
from trioeval.report.inert import inert as inert
