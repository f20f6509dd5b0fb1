"""Values nested too deeply cost their cell, not a result file."""

import csv
import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml
from finished import results_of, rows_of
from hypothesis import given
from hypothesis import strategies as st

from trioeval.report.files import FORMATS, write_results
from trioeval.report.formats.json import DEEPEST, TOO_DEEP, shallow, to_json
from trioeval.report.records import RowRecord
from trioeval.report.row import row_json
from trioeval.report.tables import FirstRows


def nested(levels: int, kind: type = list) -> Any:
    """Return nested lists or objects."""
    found: Any = "x"
    for _ in range(levels):
        found = [found] if kind is list else {"a": found}
    return found


@pytest.mark.parametrize("kind", [list, dict])
def test_values_nested_too_deeply_are_truncated(kind: type) -> None:
    """Values are cut at a depth that every reader supports."""
    assert shallow(nested(DEEPEST, kind)) == nested(DEEPEST, kind)
    for levels in (DEEPEST + 1, 100_000):
        found = shallow(nested(levels, kind))
        for _ in range(DEEPEST):
            found = found[0] if kind is list else found["a"]
        assert found == TOO_DEEP


def test_empty_containers_count_for_the_depth() -> None:
    """The list that is too deep is replaced, not its contents."""
    found: Any = []
    for _ in range(DEEPEST):
        found = [found]
    assert to_json(shallow(found)) == "[" * DEEPEST + to_json(TOO_DEEP) + "]" * DEEPEST


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.text() | st.floats(allow_nan=False),
        lambda parts: st.lists(parts) | st.dictionaries(st.text(), parts),
        max_leaves=10,
    )
)
def test_a_flat_value_is_returned_unchanged(value: Any) -> None:
    """Flat values are not copied."""
    assert shallow(value) is value


@pytest.mark.parametrize("suffix", sorted(FORMATS.keys() - {".yml", ".txt"}))
@pytest.mark.parametrize("kind", [list, dict])
@pytest.mark.parametrize("levels", [DEEPEST - 10, 500, 3000])
def test_every_format_can_be_written_with_deep_values(
    tmp_path: Path, suffix: str, kind: type, levels: int
) -> None:
    """Deep outputs, variables and metadata do not affect other rows."""
    _, rows = rows_of()
    deep = nested(levels, kind)
    step = attrs.evolve(rows[0].step, vars={"word": deep})
    rows[0] = attrs.evolve(rows[0], step=step, output=deep)
    texts = [to_json(row_json(row, "e1")) for row in rows]

    def read(column: int | None) -> Any:
        found = map(json.loads, texts)
        return (row for row in found if column is None or row["promptIdx"] == column)

    path = tmp_path / f"out{suffix}"
    write_results(path, [attrs.evolve(results_of(), records=read)])
    text = path.read_text()
    match suffix:
        case ".json":
            results = json.loads(text)["results"]["results"]
            assert results[1]["response"]["output"] == "say hi"
        case ".yaml":
            assert len(yaml.load(text, yaml.CSafeLoader)["results"]["results"]) == 4
        case ".csv":
            assert len(list(csv.reader(io.StringIO(text)))) == 3
        case ".html":
            assert text.endswith("</html>\n")
        case ".datasette.json":
            assert json.loads(text)
        case ".md":
            assert text.startswith("## trioeval: ")
        case _:
            ET.fromstring(text)  # noqa: S314 - our own
    if suffix not in {
        ".junit.xml",
        ".html",
        ".md",
        ".datasette.json",
    }:  # these formats cut long values, or leave them out
        assert (TOO_DEEP in text) is (levels > DEEPEST)


def test_the_table_of_rows_shows_deep_values() -> None:
    """They are shown as far as the width allows."""
    _, rows = rows_of()
    deep = nested(100_000)
    first = FirstRows(40, 5)
    step = attrs.evolve(rows[0].step, vars={"d": deep})
    first.add(RowRecord.of(row_json(attrs.evolve(rows[0], output=deep, step=step), "e1")))
    assert first.names[0].startswith("d=[[[[")
    assert first.cells[0, 0].text.startswith("[[[[")
