"""Rows of files keep the numbers that they got when they were planned."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.columns.files import DatasetRows, Header, open_folder
from trioeval.columns.graph import RowGrouping

ROWS = 10


@given(
    st.sets(st.integers(min_value=0, max_value=ROWS - 1)),
    st.sets(st.integers(min_value=0, max_value=2)),
)
@settings(max_examples=settings().max_examples // 6)
def test_a_row_is_found_by_its_number(present: set[int], groups: set[int]) -> None:
    """This holds for any dropped rows and groups; a dropped number has no index."""
    grouping = RowGrouping(4, (ROWS,))
    header = Header(columns={"n": "int"}, grouping=grouping, fingerprint={})
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "data"
        folder = open_folder(path, header, file_format="jsonl", existing="never")
        dropped = 0
        for group in groups:
            rows = [(row, {"n": row}) for row in grouping.rows_of(group) if row in present]
            gone = len(grouping.rows_of(group)) - len(rows)
            folder.write(group, rows, {"failed": gone} if gone else {})
            dropped += gone
        folder.close()
        found = DatasetRows(path)
        there = [row for row in sorted(present) if grouping.group_of(row) in groups]
        assert [found.number(place) for place in range(len(found))] == there
        places = [found.place(row) for row in range(-1, ROWS + 1)]
        assert places == [there.index(row) if row in there else None for row in range(-1, ROWS + 1)]
        assert sum(found.dropped.values()) == dropped
        assert found.result is None
