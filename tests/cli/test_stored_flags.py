"""Flags of a run, stored and used again."""

import json
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.cli.arguments import with_values
from trioeval.cli.environment import EnvironmentSettings, cache_path, database_path
from trioeval.cli.flags import (
    LimitFlags,
    OutputFlags,
    RowFlags,
    RunFlags,
    StartFlags,
    StorageFlags,
    SuiteFlags,
    check_flags,
    read_age,
)
from trioeval.cli.run.storage import RunStorage
from trioeval.cli.stored_flags import StoredFlags, stored_flags
from trioeval.errors import UsageError

WORDS = st.text(min_size=1, max_size=5)


@given(
    prompts=st.lists(WORDS, max_size=3),
    tests=st.none() | WORDS,
    replay=st.none() | WORDS.filter(lambda word: "\0" not in word).map(Path),
    repeat=st.none() | st.integers(1, 9),
    timeout=st.none() | st.floats(0, 1e6),
    sample=st.none() | st.integers(1, 9),
    is_empty_allowed=st.booleans(),
    cache=st.none() | st.booleans(),
    durability=st.sampled_from([None, "normal", "full"]),
    table=st.none() | st.booleans(),
    code=st.none() | st.integers(1, 255),
)
def test_stored_flags_are_restored_unchanged(
    *,
    prompts: list[str],
    tests: str | None,
    replay: Path | None,
    repeat: int | None,
    timeout: float | None,
    sample: int | None,
    is_empty_allowed: bool,
    cache: bool | None,
    durability: Literal["normal", "full"] | None,
    table: bool | None,
    code: int | None,
) -> None:
    """Values of every kind survive JSON; only flags that were given are stored."""
    flags = RunFlags(
        what=SuiteFlags(prompts=tuple(prompts), tests=tests, replay=replay),
        rows=RowFlags(filter_sample=sample, allow_empty=is_empty_allowed),
        limits=LimitFlags(repeat=repeat, timeout=timeout),
        keep=StorageFlags(cache=cache, durability=durability, db=Path("x.db"), retry="failed"),
        output=OutputFlags(table=table, progress=table, fail_exit_code=code, verbose=True),
    )
    kept = stored_flags(Path("s.json"), flags, [Path("o.json")], {"": "digest"})
    assert StoredFlags.read(json.loads(json.dumps(kept.json())), "eval-1") == kept
    again = kept.with_flags(RunFlags())
    assert (again.what, again.rows, again.limits) == (flags.what, flags.rows, flags.limits)
    assert again.keep == StorageFlags(cache=cache, durability=durability)
    outputs = (Path.cwd() / "o.json",)
    assert again.output == OutputFlags(
        output=outputs, table=table, progress=table, fail_exit_code=code
    )


def test_flags_that_were_not_given_are_not_stored() -> None:
    """Only the folder and the suite are stored then."""
    assert set(stored_flags(None, RunFlags(), [], {}).json()) == {"directory"}


BEGUN = stored_flags(
    Path("s.json"),
    RunFlags(
        what=SuiteFlags(prompts=("a", "b"), env_file=(Path("x"),), record=Path("r")),
        rows=RowFlags(filter_first_n=3),
        limits=LimitFlags(repeat=2, max_concurrency=4, timeout=5),
    ),
    [],
    {},
)


def test_flags_about_the_execution_may_change() -> None:
    """Flags that are not given are unchanged, and nothing is recorded a second time."""
    given = RunFlags(
        what=SuiteFlags(env_file=(Path("y"),)),
        limits=LimitFlags(repeat=2, timeout=9, max_time=7),
        keep=StorageFlags(cache=False),
        output=OutputFlags(output=(Path("o.json"),)),
    )
    found = BEGUN.with_flags(given)
    assert found.limits == LimitFlags(repeat=2, max_concurrency=4, timeout=9, max_time=7)
    assert found.what == SuiteFlags(prompts=("a", "b"), env_file=(Path("y"),))
    assert (found.keep, found.output) == (given.keep, given.output)


@pytest.mark.parametrize(
    ("begun", "now", "expected"),
    [
        ({"cache": False}, {}, {"cache": False}),
        ({"cache": False}, {"cache": True}, {"cache": True}),
        ({"cache": False}, {"refresh": True}, {"refresh": True}),
        ({"refresh": True}, {}, {"refresh": True}),
        ({"refresh": True}, {"cache": False}, {"cache": False}),
        ({"durability": "full"}, {"retry": "failed"}, {"durability": "full", "retry": "failed"}),
        ({"durability": "full"}, {"durability": "normal"}, {"durability": "normal"}),
    ],
)
def test_cache_flags_of_the_start_apply_by_default(
    begun: dict[str, Any], now: dict[str, Any], expected: dict[str, Any]
) -> None:
    """Of two that exclude each other, the later one counts."""
    kept = stored_flags(None, RunFlags(keep=StorageFlags(**begun)), [], {})
    found = kept.with_flags(RunFlags(keep=StorageFlags(**now)))
    assert found.keep == StorageFlags(**expected)
    check_flags(found)


def test_display_flags_of_the_start_apply_by_default() -> None:
    """This holds for each flag by itself."""
    begun = OutputFlags(table=False, fail_exit_code=7, table_cell_max_length=9)
    kept = stored_flags(None, RunFlags(output=begun), [], {})
    found = kept.with_flags(RunFlags(output=OutputFlags(table=True, progress=False)))
    assert found.output == attrs.evolve(begun, table=True, progress=False)


def test_flags_about_the_rows_must_not_change_and_all_changes_are_named() -> None:
    """The message names the earlier values."""
    given = RunFlags(
        what=SuiteFlags(prompts=("c",), tag=("a=b",), record=Path("q"), var=("n=1",)),
        rows=RowFlags(task=("tone",), filter_first_n=3, allow_empty=True),
        limits=LimitFlags(repeat=3),
    )
    with pytest.raises(UsageError) as caught:
        BEGUN.with_flags(given)
    assert str(caught.value).splitlines() == [
        "--prompts c: the run was started with --prompts a b",
        "--var n=1: the run was started without",
        "--task tone: the run was started without",
        "--allow-empty: the run was started without",
        "--repeat 3: the run was started with --repeat 2",
        "--record applies to a whole run and cannot be used to continue one",
        "--tag applies to a whole run and cannot be used to continue one",
    ]


@pytest.mark.parametrize(
    "found", [{}, {"directory": "/", "colour": 1}, {"directory": "/", "what": 3}]
)
def test_flags_of_another_version_are_refused(found: dict[str, Any]) -> None:
    """The message is one line and names the run."""
    with pytest.raises(UsageError, match="eval-1 cannot be continued"):
        StoredFlags.read(found, "eval-1")


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("--resume", "--resume=latest"),
        ("s.json --resume -j 3", "s.json --resume=latest -j 3"),
        ("--resume s.YAML", "--resume=latest s.YAML"),
        ("--resume eval-1 s.json", "--resume=eval-1 s.json"),
        ("--resume=eval-1 --resume", "--resume=eval-1 --resume=latest"),
        ("--resume --resume", "--resume=latest --resume=latest"),
        ("-- --resume", "-- --resume"),
    ],
)
def test_resume_without_a_run_is_the_latest(arguments: str, found: str) -> None:
    """The following word is a run unless it is a flag or a suite."""
    assert with_values(arguments.split()) == found.split()


@pytest.mark.parametrize(
    ("keep", "begin", "output", "line"),
    [
        ({"retry": "failed", "retry_errors": True}, {}, {}, "--retry-errors and --retry exclude"),
        (
            {"retry_errors": True},
            {"resume": "latest"},
            {},
            "--retry-errors cannot be used with --resume",
        ),
        ({"retry": "failed"}, {"write": False}, {}, "--no-write applies to a whole run"),
        ({}, {"resume": "x"}, {"watch": True}, "--watch applies to a whole run"),
        ({}, {"resume": "x"}, {"plan": True}, "--plan applies to a whole run"),
        ({"reconcile": True}, {}, {}, "--reconcile needs --resume or --retry"),
        ({"refresh": True, "cache": False}, {}, {}, "--refresh and --no-cache exclude each other"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(
    keep: dict[str, Any], begin: dict[str, Any], output: dict[str, Any], line: str
) -> None:
    """They are refused before any file is read."""
    flags = RunFlags(
        keep=StorageFlags(**keep), begin=StartFlags(**begin), output=OutputFlags(**output)
    )
    with pytest.raises(UsageError, match=f"^{line}"):
        check_flags(flags)


def test_the_most_specific_setting_gives_the_place(tmp_path: Path) -> None:
    """A flag comes first, then its own variable, then the folder, then the working directory."""
    nothing = EnvironmentSettings()
    folder = attrs.evolve(nothing, config_dir=Path("/f"))
    own = attrs.evolve(folder, db=Path("/d.db"), cache_path=Path("/c.db"))
    assert database_path(Path("x.db"), own) == Path("x.db")
    assert database_path(None, own) == Path("/d.db")
    assert database_path(None, folder) == Path("/f/results.db")
    assert database_path(None, nothing) == Path(".trioeval/results.db")
    assert cache_path(own) == Path("/c.db")
    assert cache_path(folder) == Path("/f/cache.db")
    assert cache_path(nothing) == Path(".trioeval/cache.db")
    assert cache_path(attrs.evolve(own, cache_type="memory")) is None
    there = tmp_path / "folder.db"
    there.mkdir()
    assert cache_path(attrs.evolve(own, cache_path=there)) == there / "cache.db"


def test_the_command_that_continues_names_the_database_only_if_it_was_named() -> None:
    """It is quoted for a shell."""
    assert RunStorage(database=Path("a.db")).resume("eval-1") == "trioeval resume eval-1"
    named = RunStorage(database=Path("my a.db"), named=True)
    assert named.resume("eval-1") == "trioeval resume eval-1 --db 'my a.db'"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("45 m", 2700), ("12H", 43_200), ("30d", 2_592_000)]
)
def test_ages_have_units(text: str, seconds: float) -> None:
    """Other texts are not ages."""
    assert read_age(text, "--older-than") == seconds
    for wrong in (f"-{text}", text[:-1], f"{text}x", "", "x"):
        with pytest.raises(UsageError, match="--older-than must be a duration"):
            read_age(wrong, "--older-than")
