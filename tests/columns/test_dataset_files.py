"""Rows are read as they were written, and the same rows make the same bytes."""

import datetime as dt
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.columns.cell_types import ColumnType, fits
from trioeval.columns.files import (
    DatasetFolder,
    DatasetRows,
    GroupFile,
    Header,
    chosen_format,
    open_folder,
)
from trioeval.columns.files.formats import (
    Parquet,
    file_columns,
    mended,
    read_jsonl,
    read_rows,
    write_jsonl,
)
from trioeval.columns.graph import RowGrouping
from trioeval.errors import DatasetError

Format = Literal["parquet", "jsonl"]
FORMATS: Sequence[Format] = ("parquet", "jsonl")
KINDS: Sequence[ColumnType] = ("text", "int", "float", "bool", "vector", "json")
EVERY: Mapping[str, ColumnType] = {kind: kind for kind in KINDS}
FULL = {
    "text": "2026-01-01 \0 \n\r\u2028 \"'é😀",
    "int": 2**63 - 1,
    "float": -0.0,
    "bool": True,
    "vector": [1.0, 5e-324, -1.7976931348623157e308],
    "json": {"b": [1, 2**80, None], "a": "\0", "c": 1e16},
}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.booleans() | st.integers() | numbers | texts,
    lambda inner: (
        st.lists(inner | st.none(), max_size=3)
        | st.dictionaries(texts, inner | st.none(), max_size=3)
    ),
    max_leaves=8,
)
VALUES: Mapping[ColumnType, st.SearchStrategy[Any]] = {
    "text": texts,
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": numbers,
    "bool": st.booleans(),
    "vector": st.lists(numbers, max_size=4),
    "json": json_values,
}


@st.composite
def tables(
    draw: st.DrawFn,
) -> tuple[Mapping[str, ColumnType], Sequence[Mapping[str, Any]]]:
    names = draw(
        st.lists(texts.filter(bool), min_size=1, max_size=5, unique_by=lambda name: name.casefold())
    )
    columns = {name: draw(st.sampled_from(KINDS)) for name in names}
    row = st.fixed_dictionaries({name: st.none() | VALUES[kind] for name, kind in columns.items()})
    return columns, draw(st.lists(row, min_size=1, max_size=6))


@pytest.fixture(scope="module")
def parquet() -> Iterator[Parquet]:
    one = Parquet()
    yield one
    one.close()


def open_new(
    path: Path, columns: Mapping[str, ColumnType], rows: int, file_format: Format, size: int = 1000
) -> DatasetFolder:
    header = Header(columns=columns, grouping=RowGrouping(size, (rows,)), fingerprint={})
    return open_folder(path, header, file_format=file_format, existing="never")


def written(
    path: Path,
    columns: Mapping[str, ColumnType],
    rows: Sequence[Mapping[str, Any]],
    file_format: Format,
) -> GroupFile:
    with open_new(path, columns, len(rows), file_format) as folder:
        done = folder.write(0, list(enumerate(rows)))
        folder.finish({"written": len(rows)})
    return done


def exact(value: Any) -> Any:
    """Return values with their types: otherwise 1, 1.0 and true are equal, and so are both zeros."""
    match value:
        case dict():
            return {name: exact(one) for name, one in value.items()}
        case list():
            return [exact(one) for one in value]
        case _:
            return repr(value)


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 3)
@given(tables())
def test_both_formats_are_read_as_they_were_written(
    parquet: Parquet, table: tuple[Mapping[str, ColumnType], Sequence[Mapping[str, Any]]]
) -> None:
    """Every value of every type keeps its type, and columns keep their order."""
    columns, rows = table
    values = file_columns(list(enumerate(rows)), columns)
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "file"
        parquet.write(path, columns, values)
        found = [list(read_rows(columns, parquet.read(path)[1]))]
        write_jsonl(path, columns, values)
        found.append(list(read_jsonl(path.read_bytes())))
    for one in found:
        assert exact(one) == exact(list(rows))
        assert [list(row) for row in one] == [list(columns)] * len(rows)


@pytest.mark.slow
@pytest.mark.parametrize("file_format", FORMATS)
def test_extreme_values_are_read_as_they_were_written(tmp_path: Path, file_format: Format) -> None:
    """Cases: the largest numbers, zeros in texts, dates that stay texts, and a text of 20 MB."""
    rows = [FULL, dict.fromkeys(EVERY), {**FULL, "int": -(2**63), "text": "ü" * 10 * 2**20}]
    written(tmp_path / "data", EVERY, rows, file_format)
    assert exact(list(DatasetRows(tmp_path / "data"))) == exact(rows)
    assert len(DatasetRows(str(tmp_path / "data"))) == len(rows)


@pytest.mark.slow
@pytest.mark.parametrize("file_format", FORMATS)
def test_equal_rows_give_equal_bytes_in_every_process(tmp_path: Path, file_format: Format) -> None:
    """They contain no time, no process id, and no order of a set."""
    rows = [{**FULL, "int": number} for number in range(50)]
    here = [written(tmp_path / f"here-{again}", EVERY, rows, file_format) for again in range(2)]
    program = (
        "import sys, pathlib, test_dataset_files as t\n"
        "rows = [{**t.FULL, 'int': number} for number in range(50)]\n"
        f"t.written(pathlib.Path(sys.argv[1]), t.EVERY, rows, {file_format!r})\n"
    )
    for seed in ("1", "2"):
        path = tmp_path / f"there-{seed}"
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run(
            [sys.executable, "-c", program, str(path)],
            check=True,
            cwd=Path(__file__).parent,
            env=environment,
        )
        for name in ("dataset.json", f"batch_00000.{file_format}"):
            assert (path / name).read_bytes() == (tmp_path / "here-0" / name).read_bytes()
    assert here[0] == here[1]
    content = (tmp_path / "here-0" / str(here[0].file)).read_bytes()
    assert here[0].digest == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("file_format", FORMATS)
def test_lone_surrogates_are_escaped(tmp_path: Path, file_format: Format) -> None:
    """No file can contain a lone surrogate; a pair of them becomes one character."""
    rows = [{"a": "x\ud800y", "b": {"\udc00": ["\ud83d\ude00"]}}]
    written(tmp_path / "data", {"a": "text", "b": "json"}, rows, file_format)
    assert list(DatasetRows(tmp_path / "data")) == [{"a": r"x\ud800y", "b": {r"\udc00": ["😀"]}}]


@given(st.text())
def test_only_lone_surrogates_are_changed(text: str) -> None:
    """Text that UTF-8 can represent stays unchanged."""
    whole = "".join(rf"\u{ord(one):04x}" if "\ud800" <= one <= "\udfff" else one for one in text)
    pairs = any(
        "\ud800" <= high <= "\udbff" and "\udc00" <= low <= "\udfff"
        for high, low in itertools.pairwise(text)
    )
    if not pairs:
        assert mended(text) == whole
    mended(text).encode()


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("text", 1, "1 is not text (type text)"),
        ("text", dt.date(2026, 1, 1), "datetime.date(2026, 1, 1) is not text (type text)"),
        ("int", 2**63, f"{2**63} is not a whole number of 64 bits (type int)"),
        ("int", True, "True is not a whole number of 64 bits (type int)"),
        ("int", 1.0, "1.0 is not a whole number of 64 bits (type int)"),
        ("float", float("nan"), "nan is not a finite number (type float)"),
        ("float", 10**400, f"1{58 * '0'}… is not a finite number (type float)"),
        ("float", False, "False is not a finite number (type float)"),
        ("bool", 1, "1 is neither true nor false (type bool)"),
        ("vector", [1, float("inf")], "[1, inf] is not a list of finite numbers (type vector)"),
        ("vector", "ab", "'ab' is not a list of finite numbers (type vector)"),
        (
            "json",
            [float("inf")],
            "[inf] is not JSON (type json): Out of range float values are not JSON compliant",
        ),
        ("json", {1}, "{1} is not JSON (type json): Object of type set is not JSON serializable"),
        pytest.param("int", 10**5000, "int is not a whole number of 64 bits (type int)", id="huge"),
    ],
)
def test_a_value_that_does_not_fit_is_reported_with_its_row(
    tmp_path: Path, file_format: Format, kind: ColumnType, value: Any, message: str
) -> None:
    """No value is converted, and no file is left half written."""
    with open_new(tmp_path / "data", {"a": kind}, 9, file_format) as folder:
        with pytest.raises(DatasetError) as caught:
            folder.write(0, [(3, {"a": None}), (7, {"a": value})])
        head, line = str(caught.value).splitlines()
        assert head == f"{tmp_path / 'data'}: group 0 cannot be written:"
        assert line.removesuffix(": inf") == f"row 7, column 'a': {message}"
        assert folder.written == {}
    assert [one.name for one in (tmp_path / "data").iterdir()] == ["dataset.json"]


def test_up_to_five_mistakes_are_reported(tmp_path: Path) -> None:
    """Five show the pattern; thousands would not be read."""
    with open_new(tmp_path / "data", {"a": "int"}, 9, "jsonl") as folder:
        with pytest.raises(DatasetError, match="row 4") as caught:
            folder.write(0, [(row, {"a": "x"}) for row in range(9)])
        assert str(caught.value).splitlines()[-1] == "… and more"
        assert "row 5" not in str(caught.value)


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_row_is_reduced_to_the_written_columns(tmp_path: Path, file_format: Format) -> None:
    """Columns that are not in the header are left out; missing values become null."""
    written(tmp_path / "data", {"a": "int", "b": "int"}, [{"c": object(), "b": 1}], file_format)
    assert list(DatasetRows(tmp_path / "data")) == [{"a": None, "b": 1}]


def test_row_numbers_are_stored_if_some_are_missing(tmp_path: Path) -> None:
    """For a whole group only the count is noted; a group without rows has no file."""
    with open_new(tmp_path / "data", {"a": "int"}, 6, "jsonl", size=2) as folder:
        whole = folder.write(2, [(4, {}), (5, {})])
        part = folder.write(0, [(1, {})])
        none = folder.write(1, [])
        assert (whole.rows, whole.file) == (2, "batch_00002.jsonl")
        assert (part.rows, part.file) == ((1,), "batch_00000.jsonl")
        assert none == GroupFile(group=1, rows=0, file=None, digest=None)
        assert folder.written == {0: part, 1: none, 2: whole}
        noted = (tmp_path / "data" / "groups.jsonl").read_text().splitlines()
        assert [json.loads(line)["group"] for line in noted] == [2, 0, 1]
        assert len(DatasetRows(tmp_path / "data")) == 3
        folder.finish({"written": 3})
    assert sorted(one.name for one in (tmp_path / "data").iterdir()) == [
        "batch_00000.jsonl",
        "batch_00002.jsonl",
        "dataset.json",
    ]
    header = json.loads((tmp_path / "data" / "dataset.json").read_text())
    assert header["result"] == {"written": 3}
    assert [group["group"] for group in header["groups"]] == [0, 1, 2]


def test_removed_columns_are_stored_in_the_format_of_the_dataset(tmp_path: Path) -> None:
    """They keep their types, and the numbers of their rows under a free name."""
    types: dict[str, ColumnType] = {"a": "int", "ROW": "text", "t": "json", "f": "float"}
    with open_new(tmp_path / "data", {"a": "int"}, 2, "parquet") as folder:
        left_out: list[tuple[int, Mapping[str, Any]]] = [
            (0, {"t": {"x": 1}, "ROW": "r", "f": 2}),
            (1, {"t": None, "ROW": None}),
        ]
        folder.write_aside(0, left_out, types)
        with pytest.raises(DatasetError, match="row 1, column 't'"):
            folder.write_aside(1, [(1, {"t": {1}})], types)
    [file] = (tmp_path / "data" / "aside").iterdir()
    assert file.name == "batch_00000.parquet"
    found = duckdb.execute("FROM read_parquet(?)", [str(file)])
    assert [(one[0], str(one[1])) for one in found.description] == [
        *(("row_", "BIGINT"), ("ROW", "VARCHAR"), ("t", "VARCHAR"), ("f", "DOUBLE")),
    ]
    assert found.fetchall() == [(0, "r", '{"x":1}', 2.0), (1, None, None, None)]


def test_removed_columns_are_stored_aside(tmp_path: Path) -> None:
    """They have the numbers of their rows, whatever they contain."""
    with open_new(tmp_path / "data", {"a": "int"}, 2, "jsonl") as folder:
        folder.write_aside(0, [(1, {"t": {"x": "\ud800"}, "row": 2})], {})
        with pytest.raises(DatasetError, match="the columns cannot be written: Object of type set"):
            folder.write_aside(1, [(1, {"t": {1}})], {})
    lines = (tmp_path / "data" / "aside" / "batch_00000.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"row": 1, "columns": {"t": {"x": r"\ud800"}, "row": 2}}
    ]


def test_names_that_differ_only_in_case_are_reported_before_the_start(
    tmp_path: Path,
) -> None:
    """Parquet would rename one of them."""
    columns: Mapping[str, ColumnType] = {"Name": "int", "name": "int"}
    with pytest.raises(DatasetError, match="columns 'Name' and 'name' differ only in case"):
        chosen_format("parquet", columns)
    with pytest.raises(DatasetError, match=r"data: columns 'Name' and 'name' differ"):
        open_new(tmp_path / "data", columns, 1, "parquet")
    assert chosen_format("auto", columns) == "jsonl"
    assert (
        chosen_format("auto", {"a": "int"}) == chosen_format("parquet", {"a": "int"}) == "parquet"
    )
    assert chosen_format("jsonl", columns) == "jsonl"
    assert chosen_format("auto", {"": "int"}) == "jsonl"
    written(tmp_path / "lines", columns, [{"Name": 1, "name": 2}], "jsonl")
    assert list(DatasetRows(tmp_path / "lines")) == [{"Name": 1, "name": 2}]


def test_without_the_extra_json_lines_are_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An explicit request for Parquet is refused with the install command."""
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert chosen_format("auto", {"a": "int"}) == "jsonl"
    with pytest.raises(
        DatasetError, match=r"pip install 'trioeval\[parquet\]', or set format: jsonl"
    ):
        chosen_format("parquet", {"a": "int"})
    written(tmp_path / "data", {"a": "int"}, [{"a": 1}], "jsonl")
    assert list(DatasetRows(tmp_path / "data")) == [{"a": 1}]


def test_rows_are_read_by_group_on_access(tmp_path: Path) -> None:
    """Any index may be read, also after missing rows, and while the dataset is built."""
    path = tmp_path / "da[ta]*'s"
    with open_new(path, {"n": "int"}, 10, "parquet", size=4) as folder:
        for group, rows in enumerate([(0, 2, 3), (), (8, 9)]):
            folder.write(group, [(row, {"n": row}) for row in rows])
        found = DatasetRows(path)
    values = [0, 2, 3, 8, 9]
    assert len(found) == 5
    assert [row["n"] for row in found] == values
    for place in (4, 0, 3, -1, -5):
        assert found[place]["n"] == values[place]
    assert [row["n"] for row in found[1:4]] == [2, 3, 8]
    assert [row["n"] for row in found[::-2]] == [9, 3, 0]
    for beyond in (5, -6):
        with pytest.raises(IndexError):
            found[beyond]
    assert repr(found) == f"<DatasetRows {path}: 5 rows of 1 column>"
    assert found.files == [path / "batch_00000.parquet", path / "batch_00002.parquet"]
    assert (found.path, found.format, found.header.grouping.size) == (path, "parquet", 4)


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_changed_file_is_not_read(tmp_path: Path, file_format: Format) -> None:
    """A missing file is reported on opening, a changed one on access."""
    path = tmp_path / "data"
    written(path, {"n": "int"}, [{"n": 1}], file_format)
    file = path / f"batch_00000.{file_format}"
    file.write_bytes(file.read_bytes()[:-1])
    rows = DatasetRows(path)
    with pytest.raises(DatasetError, match=rf"{file.name}: .* it has changed since it was written"):
        rows[0]
    file.unlink()
    with pytest.raises(DatasetError, match=rf"{file.name}: .* file not found"):
        DatasetRows(path)


def test_a_folder_without_a_dataset_is_not_read(tmp_path: Path) -> None:
    """The message names the missing file."""
    with pytest.raises(DatasetError, match=r"contains no readable dataset \(dataset.json: No such"):
        DatasetRows(tmp_path)
    (tmp_path / "dataset.json").write_text("{}")
    with pytest.raises(DatasetError, match=r"dataset.json cannot be read: 'version' is missing"):
        DatasetRows(tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / "dataset.json"]


def test_a_dataset_without_rows_is_empty(tmp_path: Path) -> None:
    """Reading it is not an error."""
    with open_new(tmp_path / "data", {"n": "int"}, 2, "parquet") as folder:
        folder.write(0, [])
    assert list(DatasetRows(tmp_path / "data")) == []


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_file_that_differs_from_its_record_is_not_read(
    tmp_path: Path, file_format: Format
) -> None:
    """This holds even if the changed digest was noted: without rows, or with fewer of them."""
    path = tmp_path / "data"
    done = written(path, {"n": "int"}, [{"n": 1}, {"n": 2}], file_format)
    fewer = written(tmp_path / "fewer", {"n": "int"}, [{"n": 1}], file_format)
    file, note = path / str(done.file), path / "dataset.json"
    text = note.read_text()
    for content, why in [
        (b"no rows at all", "No magic bytes|Expecting value"),
        ((tmp_path / "fewer" / str(fewer.file)).read_bytes(), "it has 1 row, not 2"),
    ]:
        file.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        note.write_text(text.replace(str(done.digest), digest))
        with pytest.raises(DatasetError, match=rf"missing or damaged: .*({why})"):
            DatasetRows(path)[0]


@pytest.mark.parametrize("when", ["header", "lines"])
def test_a_reader_sees_all_written_rows_while_the_writer_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The lines of groups may be moved into the header before or just after it was read."""
    path = tmp_path / "data"
    read = Path.read_bytes
    with open_new(path, {"n": "int"}, 2, "jsonl") as folder:
        folder.write(0, [(0, {"n": 1}), (1, {"n": 2})])
        left = [{"header": "dataset.json", "lines": "groups.jsonl"}[when]]

        def read_bytes(self: Path) -> bytes:
            content = read(self)
            if self.name in left:
                left.clear()
                folder.finish({"written": 2})
            return content

        monkeypatch.setattr(Path, "read_bytes", read_bytes)
        found = DatasetRows(path)
        assert not left
        assert [row["n"] for row in found] == [1, 2]
        assert found.result == {"written": 2}


def test_parquet_is_read_only_from_its_own_folder(tmp_path: Path) -> None:
    """Wildcards in the path match no other names."""
    names = ["run", "run*", "run?", "runx", "run[12]", "run1", "[ab]", "a"]
    for number, name in enumerate(names):
        written(tmp_path / name, {"n": "int"}, [{"n": number}], "parquet")
    for number, name in enumerate(names):
        assert list(DatasetRows(tmp_path / name)) == [{"n": number}]


@pytest.mark.parametrize("file_format", FORMATS)
def test_closed_rows_hold_no_resources(tmp_path: Path, file_format: Format) -> None:
    """They hold no connection and no group; closing twice is allowed."""
    written(tmp_path / "data", {"n": "int"}, [{"n": 1}], file_format)
    with DatasetRows(tmp_path / "data") as rows:
        assert list(rows) == [{"n": 1}]
    rows.close()
    assert len(rows) == 1
    if file_format == "parquet":
        with pytest.raises(DatasetError, match="onnection"):
            rows[0]


class _Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "another"


class _Whole(int):
    __slots__ = ()


class _Real(float):
    pass


class _Several(list[Any]):
    pass


class _Named(dict[str, Any]):
    pass


def _of_subclasses(value: Any) -> Any:
    match value:
        case str():
            return _Text(value)
        case bool() | None:
            return value
        case int():
            return _Whole(value)
        case float():
            return _Real(value)
        case list():
            return _Several(map(_of_subclasses, value))
        case _:
            return _Named({name: _of_subclasses(one) for name, one in value.items()})


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


ANY = st.one_of(
    *VALUES.values(),
    st.sampled_from([10**4299, 10**5000, 2**63, float("nan"), b"x", nested(500), nested(501)]),
    st.tuples(numbers),
    st.dictionaries(st.integers(), texts, max_size=1),
    st.lists(st.sampled_from([True, 1, 0.5, 2**64, float("inf"), {1}, (), nested(499)])),
)


@settings(max_examples=settings().max_examples // 2)
@given(ANY | ANY.map(lambda one: [one]), st.sampled_from(KINDS), st.booleans())
def test_every_value_that_fits_a_type_can_be_written(
    value: Any,
    kind: ColumnType,
    derived: bool,  # noqa: FBT001
) -> None:
    """Every value that a maker may return can be written and read again."""
    if derived and not isinstance(value, bytes | tuple) and fits(value, "json"):
        value = _of_subclasses(value)
    try:
        (held,) = file_columns([(0, {"a": value})], {"a": kind})["a"]
    except DatasetError:
        assert not fits(value, kind)
        return
    assert fits(value, kind)
    (row,) = read_rows({"a": kind}, [[held]])
    if kind == "vector":
        value = [*map(float, value)]
    assert row["a"] == (float(value) if kind == "float" else value)
    assert type(held) in (str, int, float, bool, list)
