"""Datasets that are built from Python: their rows, their columns, and their folders."""

from pathlib import Path
from typing import Any

import pytest
import trio

import trioeval
from trioeval.columns.files.layout import lock_folder, unlock_folder
from trioeval.columns.open import check_folders
from trioeval.errors import DatasetError, PlanError, SuiteError, UsageError
from trioeval.kernel import Lanes
from trioeval.loading.load import parse_suite
from trioeval.providers import Request
from trioeval.run import Row, prepare, run_suite
from trioeval.run.build_dataset import Dataset, preview_suite

A = {"name": "a", "type": "sampler", "sampler": "category", "values": ["x"]}
TEXT = {"name": "text", "type": "llm", "provider": "model", "prompt": "say {{ a }}"}
DROPS = {"dropColumns": ["text*", "b"]}


async def model(request: Request) -> str:  # noqa: ASYNC124 - as providers are
    return request.prompt.upper()


async def ignore_row(_row: Row) -> None:  # noqa: ASYNC124 - it emits nothing
    """Do nothing: datasets emit no rows."""


def built(*columns: dict[str, Any], out: Path | None = None, **more: Any) -> Dataset:
    settings = {"rows": 3, "groupSize": 2, "format": "jsonl", "columns": list(columns), **more}

    async def main() -> Dataset:
        return await trioeval.build_columns(settings, providers={"model": model}, output_dir=out)

    return trio.run(main)


@pytest.mark.parametrize("is_written", [True, False])
def test_a_built_dataset_has_its_rows(tmp_path: Path, *, is_written: bool) -> None:
    """Rows in files are read on access."""
    dataset = built(A, TEXT, out=tmp_path / "made" if is_written else None)
    assert list(map(dict, dataset.rows)) == [{"a": "x", "text": "SAY X"}] * 3
    assert (tmp_path / "made" / "dataset.json").exists() == is_written


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("stage", ["afterBatch", "afterGeneration"])
def test_columns_removed_by_a_processor_are_not_written(
    tmp_path: Path, stage: str, *, is_written: bool
) -> None:
    """This holds for every stage."""
    dataset = built(
        A,
        TEXT,
        {"name": "b", "type": "expression", "template": "{{ text }}"},
        out=tmp_path / "made" if is_written else None,
        processors=[{"stage": stage, **DROPS}],
    )
    assert dataset.result.error is None
    assert list(map(dict, dataset.rows)) == [{"a": "x"}] * 3


def test_a_column_that_is_not_kept_is_in_no_file() -> None:
    """This holds even if its name is that of another column's trace; otherwise the suite is refused."""
    try:
        dataset = built({**A, "keep": False}, {**TEXT, "trace": "a"})
    except SuiteError as error:
        assert "trace" in str(error)  # noqa: PT017 - either is right
    else:
        assert list(map(dict, dataset.rows)) == [{"text": "SAY X"}] * 3


@pytest.mark.parametrize("order", [1, -1])
def test_the_default_number_of_rows_is_that_of_the_first_seed(tmp_path: Path, order: int) -> None:
    """The first seed of the suite counts, whether it is a file or the rows of a task."""
    (tmp_path / "three.csv").write_text("n\n1\n2\n3\n")
    seeds = [
        {"type": "seed", "fromTask": "five", "columns": ["a"]},
        {"type": "seed", "file": "three.csv", "columns": ["n"]},
    ]
    tasks = [
        {"id": "five", "type": "columns", "rows": 5, "columns": [A]},
        {"id": "seeded", "type": "columns", "columns": seeds[::order]},
    ]
    prepared = prepare(parse_suite({"tasks": tasks}, directory=tmp_path))

    async def main() -> list[int]:
        return [len(one.rows) for one in await preview_suite(prepared, 100)]

    assert trio.run(main) == [5, 5 if order == 1 else 3]


@pytest.mark.parametrize("preview", [True, False, 1.5, "3", 0, -1])
def test_a_preview_has_the_requested_number_of_rows(preview: Any) -> None:
    """The number must be at least 1."""
    prepared = prepare(
        parse_suite({"tasks": [{"id": "d", "type": "columns", "rows": 2, "columns": [A]}]})
    )
    for build in (
        lambda: trioeval.build_columns({"columns": [A]}, preview=preview),
        lambda: preview_suite(prepared, preview),
    ):
        with pytest.raises(UsageError, match="preview must be a whole number of rows, 1 or more"):
            trio.run(build)


@pytest.mark.parametrize("settings", [None, [A], "columns", 3])
def test_settings_that_are_not_a_mapping_are_refused(settings: Any) -> None:
    """The message describes the value."""
    with pytest.raises(UsageError, match="settings must be a mapping"):
        trio.run(trioeval.build_columns, settings)


def suite_in(folder: Path, *names: str, **more: Any) -> trioeval.Suite:
    tasks = [
        {"id": name, "type": "columns", "rows": 2, "outputDir": name, "columns": [A], **more}
        for name in names
    ]
    return parse_suite({"tasks": tasks}, directory=folder)


def test_a_refused_run_releases_its_opened_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for every cause, even while the error is still referenced."""
    monkeypatch.chdir(tmp_path)

    async def main() -> None:
        with pytest.raises(PlanError, match="the tasks need the lanes") as caught:
            await run_suite(suite_in(tmp_path, "made"), emit=ignore_row, lanes=Lanes([]))
        assert caught.value.__traceback__ is not None
        unlock_folder(lock_folder(tmp_path / "made"), tmp_path / "made")

    trio.run(main)


def test_folders_that_are_not_empty_are_reported_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are checked before the run starts; the folder of a task that continues is checked later."""
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.txt").write_text("mine")
    (tmp_path / "three").write_text("a file")
    (tmp_path / "four").mkdir()
    with pytest.raises(DatasetError) as caught:
        check_folders(prepare(suite_in(tmp_path, "one", "two", "three", "four", "five")))
    lines = str(caught.value).splitlines()
    assert [("one is not empty" in lines[0]), ("two is not empty" in lines[1])] == [True, True]
    assert "three is a file" in lines[2]
    assert len(lines) == 3
    check_folders(prepare(suite_in(tmp_path, "one", resume="ifPossible")))
    assert list((tmp_path / "four").iterdir()) == []
