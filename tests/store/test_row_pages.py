"""Paging meets each selected row once, in order, however the pages are chosen."""

import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.report.formats.json import compact
from trioeval.report.records import RowRecord
from trioeval.report.stored import RunStart
from trioeval.store.reader import read_store
from trioeval.store.records import read_text, stored_json
from trioeval.store.row_pages import PagedRow, RowQuery, RowStatus, may_say, says
from trioeval.store.schema import INDEX_BITS
from trioeval.store.store import open_store


@attrs.frozen
class Made:
    position: int
    index: int
    status: RowStatus
    column: int
    word: str


rows = st.lists(
    st.builds(
        Made,
        st.integers(0, 2),
        st.integers(0, 40),
        st.sampled_from(("pass", "fail", "error", "not_graded")),
        st.integers(0, 1),
        st.sampled_from(("Ape", "bee", 'cap\u00e9 "x"')),
    ),
    max_size=40,
    unique_by=lambda row: (row.position, row.index),
)
queries = st.builds(
    RowQuery,
    position=st.none() | st.integers(0, 3),
    status=st.none() | st.sampled_from(("pass", "fail", "error", "not_graded")),
    column=st.none() | st.integers(0, 1),
    text=st.sampled_from(("", "APE", 'p\u00e9 "', "gone")),
    size=st.integers(1, 7),
)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three tasks, and one on each side of it."""
    path = tmp_path_factory.mktemp("pages") / "runs.db"

    async def make() -> None:
        async with open_store(path) as store:
            for name in ("before", "run", "after"):
                heads = [{"task": task} for task in "abc"]
                run = store.begin(RunStart(id=name, utc_created="", heads=heads))
                run.finish("finished", duration_ms=0, derived={})
                await run.durable()

    trio.run(make)
    return path


def fill(path: Path, made: list[Made]) -> None:
    """Give the middle run these rows, and the others one each, which must never be found."""
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM result")
        connection.execute("DELETE FROM record")
        parts = [part for (part,) in connection.execute("SELECT part FROM part ORDER BY part")]
        others = [(part, Made(0, 5, "fail", 0, "Ape")) for part in parts[:3] + parts[6:]]
        for part, row in [*others, *((parts[3 + row.position], row) for row in made)]:
            key = part << INDEX_BITS | row.index
            connection.execute(
                "INSERT INTO result (key, row_id, test, prompt, status, outcome, tokens, cached) "
                "VALUES (?, 'x', 0, ?, ?, 'done', 0, 0)",
                (key, row.column, row.status),
            )
            record = compact({"vars": {"word": row.word}, "testCase": {"description": None}})
            connection.execute("INSERT INTO record VALUES (?, ?)", (key, record))
    connection.close()


def met(row: PagedRow) -> tuple[int, int]:
    return row.position, row.index


@settings(max_examples=settings().max_examples // 3)
@given(rows, queries)
def test_all_pages_together_have_the_selected_rows(
    database: Path, made: list[Made], query: RowQuery
) -> None:
    """Pages of any size go forwards and then backwards; the total is known if possible."""
    fill(database, made)
    wanted = sorted(
        (row.position, row.index)
        for row in made
        if query.position in {None, row.position}
        and query.status in {None, row.status}
        and query.column in {None, row.column}
        and query.text.casefold() in row.word.casefold()
    )
    with read_store(database) as reader:
        run = reader.find("run")
        assert run is not None
        page = reader.row_page(run, query)
        assert not page.earlier
        pages = [page]
        while page.later:
            page = reader.row_page(run, attrs.evolve(query, after=page.rows[-1].key))
            assert page.earlier
            pages.append(page)
        forwards = [[met(row) for row in page.rows] for page in pages]
        assert [row for rows in forwards for row in rows] == wanted
        assert all(len(rows) == query.size for rows in forwards[:-1])
        assert {page.total for page in pages} == {None if query.text else len(wanted)}
        assert all(row.record is not None for page in pages for row in page.rows)
        backwards, place = list[tuple[int, int]](), page
        while place.rows and place.earlier:
            place = reader.row_page(run, attrs.evolve(query, before=place.rows[0].key))
            assert place.later
            backwards[:0] = map(met, place.rows)
        assert backwards + (forwards[-1] if wanted else []) == wanted


@given(
    st.dictionaries(st.text(max_size=3), st.text() | st.floats() | st.lists(st.text()), max_size=3),
    st.data(),
)
def test_a_search_finds_every_text_of_a_record(
    variables: dict[str, Any], data: st.DataObject
) -> None:
    """A text is searched in the JSON first, in any spelling of it."""
    record = {"vars": variables, "error": data.draw(st.none() | st.text())}
    texts = [text for value in [*variables.values(), record["error"]] for text in _texts_of(value)]
    text = data.draw(st.sampled_from(["x", *texts]))
    begin = data.draw(st.integers(0, len(text)))
    text = data.draw(st.sampled_from([text[begin:], text[begin:].upper(), text.swapcase()]))
    if says(RowRecord.of(record), text):
        assert may_say(read_text(stored_json(compact(record))), text)


def _texts_of(value: object) -> list[str]:
    return [value] if isinstance(value, str) else value if isinstance(value, list) else []


def test_a_search_reads_a_limited_number_of_rows_and_reports_its_position() -> None:
    """It continues from there, in both directions, and never reads a whole run at once."""
    rows = [Made(0, index, "pass", 0, "bee") for index in range(450)]
    rows[440] = attrs.evolve(rows[440], word="Ape")
    rows[3] = attrs.evolve(rows[3], word="Ape")
    with TemporaryDirectory() as folder:
        path = Path(folder, "runs.db")

        async def make() -> None:
            async with open_store(path) as store:
                run = store.begin(RunStart(id="run", utc_created="", heads=[{}]))
                await run.durable()

        trio.run(make)
        with sqlite3.connect(path) as connection:
            part = connection.execute("SELECT part FROM part").fetchone()[0]
            connection.executemany(
                "INSERT INTO result (key, row_id, test, prompt, status, outcome, tokens, cached) "
                "VALUES (?, 'x', 0, 0, 'pass', 'done', 0, 0)",
                ((part << INDEX_BITS | row.index,) for row in rows),
            )
            connection.executemany(
                "INSERT INTO record VALUES (?, ?)",
                (
                    (part << INDEX_BITS | row.index, compact({"vars": {"word": row.word}}))
                    for row in rows
                ),
            )
        connection.close()
        with read_store(path) as reader:
            run = reader.find("run")
            assert run is not None
            query, found, steps = RowQuery(text="ape", size=5, reads=200), list[int](), 0
            while True:
                page = reader.row_page(run, query)
                found += [row.index for row in page.rows]
                steps += 1
                if page.searched is None:
                    break
                query = attrs.evolve(query, after=page.searched)
            assert (found, steps) == ([3, 440], 3)
            short = reader.row_page(run, RowQuery(text="ape", characters=100))
            assert (len(short.rows), short.searched) == (1, part << INDEX_BITS | 4)
            last = reader.row_page(
                run, RowQuery(text="ape", before=(part + 1) << INDEX_BITS, reads=200)
            )
            assert [row.index for row in last.rows] == [440]
            assert last.searched is not None
