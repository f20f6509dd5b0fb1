"""Result files of many rows: how long each takes to write, and the memory.

    python tests/bench/export_rows.py [ROWS]

Wanted of 100,000 rows of 2 kB: JSON in 10 s at most, with 150 MB of memory at most altogether. Rows come as
JSON text, as the store gives them; totals are counted first, which is a pass of its own. Each figure comes
from a process of its own.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trioeval.cli.output import write_results
from trioeval.report import Results, RunInfo, Totals, config_tests, head_of, row_json
from trioeval.report.json_text import compact
from trioeval.suite import expand, parse_suite
from trioeval.tasks import Status
from trioeval.tasks.endings import NOT_STARTED

ROWS = 100_000
SIZE = 2000  # bytes of a row
SUFFIXES = (".json", ".jsonl", ".csv", ".html", ".junit.xml", ".xml", ".yaml")
"""
