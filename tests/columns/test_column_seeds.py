"""Seed columns: the source row of each row, and the mistakes in files."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from made_locally import column_of, group_order, made_by

from trioeval.columns.makers.seeds import SeedMaker, Source, open_seed_file, permutation, seed_rows
from trioeval.columns.model import SeedColumns
from trioeval.errors import DatasetError, SuiteError
from trioeval.run.build_dataset import build_columns

BOTH = {"n": "name", "a": "age"}


def maker(
    source: Source, order: Literal["ordered", "shuffled"] = "ordered", seed: int | None = None
) -> SeedMaker:
    column = SeedColumns(name="n", outputs=("n",), columns=BOTH, order=order, seed=seed)
    return SeedMaker(column, source, 7)


def numbers(count: int) -> Source:
    return seed_rows([{"q": place} for place in range(count)], {"n": "q"}, "the task")


def written(folder: Path, name: str, text: str | bytes) -> Path:
    file = folder / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def refused(file: Path, columns: Mapping[str, str] = BOTH) -> str:
    with pytest.raises(SuiteError) as caught:
        open_seed_file(file, columns, "$.tasks[0].columns[0].file")
    return str(caught.value).replace(f"{file}", file.name)


def test_co_24_a_group_starts_at_its_first_row_in_any_order_of_calls() -> None:
    seeds = maker(numbers(9))
    found = {
        group: column_of(made_by(seeds, group_order(2, group=group, start=2 * group)), "n")
        for group in (2, 0, 1)
    }
    assert found == {0: [0, 1], 1: [2, 3], 2: [4, 5]}


def test_co_74_an_ordered_source_continues_and_wraps_around() -> None:
    """With 3 values and 5 rows, extended to 7, the new rows are 5 and 6, not 0 and 1."""
    seeds = maker(numbers(3))
    assert column_of(made_by(seeds, group_order(5)), "n") == [0, 1, 2, 0, 1]
    assert column_of(made_by(seeds, group_order(2, group=1, start=5)), "n") == [2, 0]


@given(st.integers(1, 60), st.integers(0, 2**63), st.integers(0, 5))
def test_a_round_contains_every_row_once(count: int, seed: int, turn: int) -> None:
    order = permutation(count, seed, "n", turn)
    assert sorted(order) == list(range(count))
    assert order == permutation(count, seed, "n", turn)


def test_all_orders_are_equally_likely() -> None:
    """Each of the six orders of three rows comes up within five standard deviations of a sixth."""
    counts: dict[tuple[int, ...], int] = {}
    for turn in range(3000):
        order = tuple(permutation(3, 1, "n", turn))
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6
    assert all(abs(count - 500) < 5 * (3000 / 6 * 5 / 6) ** 0.5 for count in counts.values())


@given(st.integers(1, 20), st.lists(st.integers(0, 100), min_size=1, unique=True))
def test_a_shuffled_value_depends_on_the_row_number_alone(count: int, rows: list[int]) -> None:
    """The order of calls does not matter: the same maker, another one, one row at a time."""
    rows = sorted(rows)
    source = numbers(count)
    seeds = maker(source, "shuffled")
    whole = [seeds.place(row) for row in range(101)]
    assert column_of(made_by(seeds, group_order(len(rows), rows)), "n") == [
        whole[row] for row in rows
    ]
    for begin in range(0, 101 - count, count):
        assert sorted(whole[begin : begin + count]) == list(range(count))
    fresh = maker(source, "shuffled")
    assert [fresh.place(row) for row in reversed(rows)] == [whole[row] for row in reversed(rows)]


def test_a_column_seed_precedes_that_of_the_dataset() -> None:
    orders = [
        [maker(numbers(50), "shuffled", seed).place(row) for row in range(50)]
        for seed in (None, 7, 8)
    ]
    assert orders[0] == orders[1] != orders[2]


ROWS: list[dict[str, Any]] = [
    {"name": "Ann", "age": 30},
    {"name": 'Böb, "x"\nz', "age": None},
    {"name": "", "age": 5},
]


def parquet(folder: Path, select: str) -> Path:
    import duckdb

    file = folder / "p.parquet"
    duckdb.sql(f"COPY ({select}) TO '{file}' (FORMAT parquet)")
    return file


def same_rows(folder: Path) -> dict[str, Path]:
    """Return the same three rows in each format; in CSV all values are text."""
    lines = "\n\n".join(json.dumps(row) for row in ROWS)
    table = 'other, name ,age\r\n,Ann,30\r\n\r\nx,"Böb, ""x""\nz",\r\n,,5\r\n'
    values = "VALUES ('Ann', 30), ('Böb, \"x\"\nz', NULL), ('', 5)"
    return {
        "csv": written(folder, "s.csv", b"\xef\xbb\xbf" + table.encode()),
        "jsonl": written(folder, "s.jsonl", lines),
        "parquet": parquet(folder, f"FROM ({values}) t(name, age)"),
    }


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_rows_of_a_file_are_read_in_any_order(tmp_path: Path, kind: str) -> None:
    source = open_seed_file(same_rows(tmp_path)[kind], BOTH)
    expected = [{"n": row["name"], "a": row["age"]} for row in ROWS]
    if kind == "csv":
        expected = [{"n": row["n"], "a": str(row["a"] or "")} for row in expected]
    assert len(source) == 3
    for places in ([0, 1, 2], [1, 2], [2], [2, 0], [1, 2, 0, 1], [2, 1, 0]):
        assert source.read(places) == [expected[place] for place in places]
    assert source.types == {"n": "text", "a": "text" if kind == "csv" else "int"}
    made = made_by(maker(source), group_order(4))
    assert made == [(row, expected[row % 3]) for row in range(4)]


def test_large_files_are_read_in_parts(tmp_path: Path) -> None:
    lines = [json.dumps({"name": f"n{place}", "age": place}) for place in range(2500)]
    source = open_seed_file(written(tmp_path, "s.jsonl", "\n".join(lines)), BOTH)
    assert source.read([2499, 0, 1000, 1001]) == [
        {"n": f"n{place}", "a": place} for place in (2499, 0, 1000, 1001)
    ]
    table = "name,age\n" + "".join(f"n{place},{place}\n" for place in range(2500))
    source = open_seed_file(written(tmp_path, "s.csv", table), BOTH)
    assert [row["a"] for row in source.read(range(990, 1010))] == list(map(str, range(990, 1010)))


def test_fields_of_a_column_have_dotted_names(tmp_path: Path) -> None:
    columns = {"q": "vars.q", "v": "vars"}
    file = written(tmp_path, "s.jsonl", '{"vars": {"q": 1}}\n{"vars": {"q": 2.5}}')
    source = open_seed_file(file, columns)
    assert source.types == {"q": "float", "v": "json"}
    assert source.read([1]) == [{"q": 2.5, "v": {"q": 2.5}}]
    file = parquet(tmp_path, "SELECT {'q': 7} AS vars, 1 AS other")
    assert open_seed_file(file, columns).read([0]) == [{"q": 7, "v": {"q": 7}}]


def test_values_of_parquet_are_json(tmp_path: Path) -> None:
    file = parquet(
        tmp_path,
        "SELECT DATE '2026-01-02' AS d, 1.50::DECIMAL(9, 2) AS m, [1, 2] AS l, "
        "'{\"x\":1}'::JSON AS j, true AS b",
    )
    source = open_seed_file(file, {name: name for name in "dmljb"})
    assert source.read([0]) == [
        {"d": "2026-01-02", "m": 1.5, "l": [1, 2], "j": {"x": 1}, "b": True}
    ]
    assert source.types == {"d": "text", "m": "float", "l": "json", "j": "json", "b": "bool"}


TYPED = """
    TIMESTAMP '2026-01-02 03:04:05.678' AS at, TIMESTAMPTZ '2026-01-02 03:04:05+02' AS zoned,
    TIMESTAMP_NS '2026-01-02 03:04:05.123456789' AS fine, DATE '2026-01-02' AS day, TIME '03:04' AS noon,
    [1, NULL, 3]::INTEGER[] AS list, {'x': 1, 'y': [DATE '2026-01-02']} AS struct,
    MAP {'k': 1.5::DOUBLE} AS map, 12345678901234567.125::DECIMAL(20, 3) AS exact,
    2.50::DECIMAL(9, 2) AS price, 18446744073709551615::UBIGINT AS wide, 7::SMALLINT AS small,
    1.5::FLOAT AS single, '\\x00\\xFF'::BLOB AS bytes, uuid() AS id, 'text' AS plain, true AS yes
"""


def table(file: Path) -> tuple[list[Any], list[Any]]:
    """Return the names and types of the columns of a Parquet file, and its rows as texts."""
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        kinds = connection.execute("DESCRIBE FROM read_parquet(?)", [str(file)]).fetchall()
        texts = "SELECT CAST(COLUMNS(*) AS VARCHAR) FROM read_parquet(?)"
        return [one[:2] for one in kinds], connection.execute(texts, [str(file)]).fetchall()


@pytest.mark.parametrize("size", [1, 1000])
def test_types_of_parquet_are_kept_in_parquet(tmp_path: Path, size: int) -> None:
    """Every value is kept; as seeds, rows have the values of their JSON form."""
    nulls = "SELECT " + ", ".join("NULL" for _ in TYPED.split(" AS ")[1:])
    file = parquet(tmp_path, f"SELECT {TYPED} UNION ALL {nulls}")
    kinds, rows = table(file)
    names = [name for name, _ in kinds]
    settings = {
        "format": "parquet",
        "groupSize": size,
        "columns": [{"type": "seed", "file": "p.parquet", "columns": names}],
    }
    dataset = trio.run(
        partial(build_columns, settings, output_dir=tmp_path / "data", directory=tmp_path)
    )
    assert dataset.result.outcome == "complete"
    written = [table(path) for path in sorted((tmp_path / "data").glob("batch*"))]
    assert [kept for kept, _ in written] == [kinds] * len(written)
    assert [row for _, part in written for row in part] == rows
    source = open_seed_file(file, {name: name for name in names})
    assert list(dataset.rows) == source.read([0, 1])
    assert dataset.rows[0]["exact"] == "12345678901234567.125"
    assert dataset.rows[0]["bytes"] == "AP8="


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([], "text"),
        ([None], "text"),
        ([1, None], "int"),
        ([1, 2.5], "float"),
        ([True], "bool"),
        ([True, 1], "json"),
        (["a", 1], "json"),
        ([[0.5]], "json"),
    ],
)
def test_a_type_covers_all_rows(values: list[Any], kind: str) -> None:
    rows = [{"q": value} for value in [None, *values, None]]
    assert seed_rows(rows, {"n": "q"}, "the task").types == {"n": kind}


def test_a_digest_covers_the_whole_content(tmp_path: Path) -> None:
    first, again, other = (
        open_seed_file(written(tmp_path, f"{name}.csv", f"name,age\n{cell},1\n"), BOTH).digest
        for name, cell in (("a", "x"), ("b", "x"), ("c", "y"))
    )
    assert first == again != other
    assert numbers(3).digest == numbers(3).digest != numbers(4).digest


def test_a_changed_file_is_not_read(tmp_path: Path) -> None:
    for file in same_rows(tmp_path).values():
        source = open_seed_file(file, BOTH)
        with file.open("ab") as opened:
            opened.write(b"more")
        with pytest.raises(DatasetError, match="the file has changed since the suite was loaded"):
            source.read([0])
        file.unlink()
        with pytest.raises(DatasetError, match="cannot be read any more"):
            source.read([0])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "s.txt",
            "x",
            ('s.txt: …: "s.txt" is not a supported table\n  use a .csv, .jsonl or .parquet file'),
        ),
        ("s.csv", "", "s.csv: …: is empty\n  its first line must name the columns"),
        ("s.csv", "name,age\n\n", "s.csv: …: has no rows"),
        ("s.jsonl", "\n", "s.jsonl: …: has no rows"),
        (
            "s.csv",
            "nam,age,age\nx,1,2\n",
            (
                's.csv:1:1: …: column "name" does not exist\n  did you mean "nam"?\n'
                's.csv:1:1: …: 2 columns are named "age"\n  rename them'
            ),
        ),
        (
            "s.csv",
            'name,age\nx\n"y\nz",1\nv,1,2\n"w"v,1\nu,1\n"',
            (
                "s.csv:2:1: …: the row has 1 cell, but the header has 2 cells\n"
                "s.csv:5:1: …: the row has 3 cells, but the header has 2 cells\n"
                "s.csv:6:1: …: not CSV: ',' expected after '\"'\n"
                '  write a quote inside of a quoted cell as ""\n'
                "s.csv:8:1: …: not CSV: unexpected end of data\n"
                '  write a quote inside of a quoted cell as ""'
            ),
        ),
        (
            "s.csv",
            b"name,age\nx\xff,1\n",
            "s.csv:2:1: …: byte 1 of the line (0xff) is not UTF-8\n  save the file as UTF-8",
        ),
        (
            "s.jsonl",
            (
                '{"name": 1, "age": 2}\n\n[1]\n{"nam": 1, "age": 2}\n{"name": 1, "age": x}\n'
                '{"name": 1, "name": 2, "age": 1}'
            ),
            (
                "s.jsonl:3:1: …: must be an object, got a list\n"
                's.jsonl:4:1: …: column "name" does not exist; did you mean "nam"?\n'
                "s.jsonl:5:20: …: not JSON: expecting value\n  write one object a line\n"
                's.jsonl:6:1: …: duplicate key "name"'
            ),
        ),
        ("s.parquet", "PAR1", None),
    ],
)
def test_all_mistakes_of_a_file_are_reported_with_their_lines(
    tmp_path: Path, name: str, text: str | bytes, message: str | None
) -> None:
    problems = refused(written(tmp_path, name, text)).replace("$.tasks[0].columns[0].file", "…")
    if message is None:
        assert problems.startswith("s.parquet: …: cannot be read as Parquet: ")
    else:
        assert problems == message


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    for name in ("s.csv", "s.jsonl"):
        assert "cannot be read: No such file or directory" in refused(tmp_path / name)
    assert "cannot be read as Parquet: " in refused(tmp_path / "s.parquet")


def test_many_mistakes_are_counted(tmp_path: Path) -> None:
    problems = refused(written(tmp_path, "s.jsonl", "[]\n" * 1000))
    assert problems.count("must be an object") == 50
    assert problems.endswith("… and 950 more mistakes")


def test_mistakes_in_parquet_are_reported(tmp_path: Path) -> None:
    file = parquet(tmp_path, "SELECT 'x' AS name, 1 AS agee")
    assert refused(file).endswith('column "age" does not exist\n  did you mean "agee"?')
    file = parquet(
        tmp_path, "SELECT 'x' AS name, 1.5::DOUBLE AS age UNION ALL SELECT 'y', 'nan'::DOUBLE"
    )
    assert refused(file).endswith('row 1: column "age" contains nan, which is not valid JSON')


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "the task has no rows"),
        (
            [{"vars": {"q": 1}}, {"vars": {"p": 1}}, {"vars": None}],
            (
                'row 1 of the task: member "q" does not exist in "vars"; known are p\n'
                'row 2 of the task: "vars" is null, which has no member "q"'
            ),
        ),
        (
            [{"vars": 1}] * 25,
            "\n".join(
                f'row {number} of the task: "vars" is 1, which has no member "q"'
                for number in range(20)
            )
            + "\n… and 5 more rows",
        ),
    ],
)
def test_rows_of_a_task_that_lack_a_column_are_reported(
    rows: Sequence[Mapping[str, Any]], message: str
) -> None:
    with pytest.raises(DatasetError) as caught:
        seed_rows(rows, {"n": "vars.q"}, "the task")
    assert str(caught.value) == message


class _Counted(list[dict[str, Any]]):
    """Rows that record the order of access."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        super().__init__(rows)
        self.asked: list[Any] = []

    def __getitem__(self, place: Any) -> Any:
        self.asked.append(place)
        return super().__getitem__(place)


def test_rows_of_a_task_are_read_in_their_order() -> None:
    """Rows of a dataset are read file by file, and each of its files once."""
    rows = _Counted([{"n": number} for number in range(10)])
    source = seed_rows(rows, {"n": "n"}, "the task")
    rows.asked.clear()
    assert [row["n"] for row in source.read([7, 2, 9, 2, 0])] == [7, 2, 9, 2, 0]
    assert rows.asked == [0, 2, 7, 9]


@pytest.mark.parametrize("folder", ["a[1]", "a*b", "a?b", "a{b,c}", "it's"])
def test_a_parquet_path_is_literal(tmp_path: Path, folder: str) -> None:
    place = tmp_path / folder
    place.mkdir()
    file = parquet(tmp_path, "SELECT 'x' AS name, 1 AS age").rename(place / "p.parquet")
    source = open_seed_file(file, BOTH)
    assert source.read([0]) == [{"n": "x", "a": 1}]


def test_instants_of_parquet_are_texts(tmp_path: Path) -> None:
    instant = "TIMESTAMPTZ '2020-01-01 01:00:00.5+01'"
    file = parquet(tmp_path, f"SELECT {instant} AS at, [{instant}] AS several, NULL::TIMESTAMPTZ n")
    source = open_seed_file(file, {"at": "at", "several": "several", "n": "n"})
    (row,) = source.read([0])
    assert row["at"] == "2020-01-01T00:00:00.500000+00:00"
    assert row["several"] == ["2020-01-01 00:00:00.5+00"]
    assert row["n"] is None


@pytest.mark.parametrize("name", ["file_row_number", "File_Row_Number"])
def test_a_column_may_have_the_name_of_the_row_number(tmp_path: Path, name: str) -> None:
    file = parquet(tmp_path, f"SELECT range AS a, 100 - range AS {name} FROM range(50)")  # noqa: S608
    source = open_seed_file(file, {"a": "a", "z": name})
    assert source.read([3, 4]) == [{"a": 3, "z": 97}, {"a": 4, "z": 96}]
    assert source.read([40, 1, 40]) == [{"a": 40, "z": 60}, {"a": 1, "z": 99}, {"a": 40, "z": 60}]


def test_a_hint_about_quotes_is_only_given_for_quotes(tmp_path: Path) -> None:
    long = f"name,age\n{'x' * 200_000},1\n"
    problems = refused(written(tmp_path, "s.csv", long))
    assert "field larger than field limit" in problems
    assert "quote" not in problems
    assert "write a quote inside" in refused(written(tmp_path, "q.csv", 'name,age\n"a"b,1\n'))


def test_empty_cells_of_csv_are_texts_or_null(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("a,b\n,x\ny,\n")
    columns = {"a": "a", "b": "b"}
    assert open_seed_file(file, columns).read([0, 1]) == [{"a": "", "b": "x"}, {"a": "y", "b": ""}]
    found = open_seed_file(file, columns, empty_as_null=True)
    assert found.read([0, 1]) == [{"a": None, "b": "x"}, {"a": "y", "b": None}]
    assert found.types == {"a": "text", "b": "text"}
