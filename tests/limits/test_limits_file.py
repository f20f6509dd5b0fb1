"""Limits as JSON data, and in files."""

import errno
import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.errors import OutputError, SuiteError
from trioeval.limits import LimitState, SharedLimit
from trioeval.limits.json import from_json, limit_data, state_data
from trioeval.limits.limits_file import read_limits, write_limits
from trioeval.limits.model import MOST

RPM = {"key": "llm:rpm", "kind": "rolling", "capacity": 60, "windowSeconds": 60}
SLOTS = {"key": "llm:slots", "kind": "concurrency", "capacity": 8, "timeoutSeconds": 30}
DAILY = {"key": "daily", "kind": "budget", "capacity": 1000}

NAMES = st.text(min_size=1).map(str.strip).filter(bool)
COUNTS = st.integers(1, MOST)
SECONDS = st.floats(min_value=0, max_value=1e9, exclude_min=True)
# Whole milliseconds of this century.
BEGINNINGS = st.none() | st.integers(10**12, 4 * 10**12).map(lambda n: n / 1000)
WORDS = {"unit": st.text(), "description": st.text()}
LIMITS: st.SearchStrategy[SharedLimit] = st.one_of(
    st.builds(
        SharedLimit,
        key=NAMES,
        kind=st.just("rolling"),
        capacity=COUNTS,
        window=SECONDS,
        overage=st.sampled_from(["debt", "deny"]),
        **WORDS,
    ),
    st.builds(
        SharedLimit,
        key=NAMES,
        kind=st.just("concurrency"),
        capacity=COUNTS,
        timeout=SECONDS,
        **WORDS,
    ),
    st.builds(
        SharedLimit,
        key=NAMES,
        kind=st.just("budget"),
        capacity=COUNTS,
        reset=st.none() | SECONDS,
        **WORDS,
    ),
)


@st.composite
def states(draw: st.DrawFn) -> LimitState:
    """A valid state of a limit."""
    limit = draw(LIMITS)
    is_decreasing = limit.capacity > 1 and draw(st.booleans())
    return LimitState(
        limit=limit,
        status="decreasing" if is_decreasing else "active",
        pending_capacity=draw(st.integers(1, limit.capacity - 1)) if is_decreasing else None,
        used=draw(st.integers(0, MOST)),
        outstanding=draw(st.integers(0, MOST)) if limit.kind == "budget" else 0,
        debt=draw(st.integers(0, MOST)),
        began_at=draw(BEGINNINGS) if limit.reset is not None else None,
    )


def problems_of(wanted: type, data: Any) -> list[str]:
    """Return the problems as messages show them."""
    with pytest.raises(SuiteError) as wrong:
        from_json(data, wanted)
    return [str(problem) for problem in wrong.value.problems]


@pytest.mark.slow
@given(states())
def test_a_limit_reads_as_it_was_written(state: LimitState) -> None:
    """Through JSON too, and with keys in snake_case."""
    data = json.loads(json.dumps(state_data(state)))
    assert from_json(data, LimitState) == state
    snake = {"windowSeconds": "window_seconds", "pendingCapacity": "pending_capacity"}
    assert (
        from_json({snake.get(key, key): value for key, value in data.items()}, LimitState) == state
    )
    assert from_json(limit_data(state.limit), SharedLimit) == state.limit


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"key": " "}, ["$.key: is blank\n  a name"]),
        ({"key": None}, ["$.key: is missing\n  a name"]),
        ({"key": " a"}, ['$.key: " a" has blanks around it\n  "a"']),
        ({"key": 5}, ["$.key: 5 is not a text\n  put it in quotes"]),
        (
            {"kind": "roling"},
            ['$.kind: "roling" is not known\n  one of rolling, concurrency, budget'],
        ),
        (
            {"capacity": 0},
            ["$.capacity: 0 is too small\n  a whole number from 1 to 2^53-1"],
        ),
        (
            {"capacity": 1.0},
            ["$.capacity: 1.0 is not a whole number\n  a whole number from 1 to 2^53-1"],
        ),
        (
            {"capacity": True},
            ["$.capacity: true is not a whole number\n  a whole number from 1 to 2^53-1"],
        ),
        (
            {"capacity": 2**53},
            [f"$.capacity: {2**53} is too large\n  a whole number from 1 to 2^53-1"],
        ),
        (
            {"windowSeconds": 0},
            [
                "$.windowSeconds: 0 is out of range\n  seconds, more than 0 and at most 1,000,000,000"
            ],
        ),
        (
            {"windowSeconds": 1_000_000_001},
            [
                """$.windowSeconds: 1000000001 is out of range
  seconds, more than 0 and at most 1,000,000,000"""
            ],
        ),
        ({"key": "k" * 257}, ["$.key: has 257 characters\n  a name of at most 256"]),
        (
            {"windowSeconds": float("nan")},
            [
                "$.windowSeconds: nan is out of range\n  seconds, more than 0 and at most 1,000,000,000"
            ],
        ),
        (
            {"windowSeconds": "60"},
            [
                '$.windowSeconds: "60" is not a number\n  seconds, more than 0 and at most 1,000,000,000'
            ],
        ),
        (
            {"windowSeconds": None},
            [
                """$.windowSeconds: is missing
  a rolling limit needs the length of its window, in seconds"""
            ],
        ),
        (
            {"timeoutSeconds": 5},
            ["$.timeoutSeconds: is not allowed for a rolling limit\n  it may have windowSeconds"],
        ),
        (
            {"reset_seconds": 5},
            ["$.reset_seconds: is not allowed for a rolling limit\n  it may have windowSeconds"],
        ),
        (
            {"window_seconds": 5},
            ["$.window_seconds: is the same key as windowSeconds\n  write one of them"],
        ),
        (
            {
                "kind": "concurrency",
                "windowSeconds": None,
                "timeoutSeconds": 5,
                "overage": "deny",
            },
            [
                """$.overage: is not allowed for a concurrency limit
  a hold is one, whatever was used: leave it out"""
            ],
        ),
        ({"overage": "no"}, ['$.overage: "no" is not known\n  one of debt, deny']),
        ({"capcity": 5}, ['$.capcity: is not a key of a limit\n  did you mean "capacity"?']),
        (
            {"overage": "n" * 80},
            [f'$.overage: "{"n" * 58}… is not known\n  one of debt, deny'],
        ),
        ({"unit": {1}}, ["$.unit: a value of type set is not a text\n  put it in quotes"]),
        ({"un it": 5}, ['$["un it"]: is not a key of a limit\n  did you mean "unit"?']),
        ({"unit": 5}, ["$.unit: 5 is not a text\n  put it in quotes"]),
    ],
)
def test_an_invalid_definition_is_reported_with_valid_values(
    change: dict[str, Any], wrong: list[str]
) -> None:
    """Each field has its own rules."""
    assert problems_of(SharedLimit, RPM | change) == wrong


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"used": -1}, ["$.used: -1 is too small\n  a whole number from 0 to 2^53-1"]),
        (
            {"pendingCapacity": 60},
            ["$.pendingCapacity: 60 is not a decrease\n  less than the capacity, 60"],
        ),
        (
            {"status": "decreasing"},
            [
                """$.status: "decreasing" contradicts the pending capacity
  a limit is decreasing while it has a pendingCapacity, and otherwise active"""
            ],
        ),
        (
            {"outstanding": 5},
            ["$.outstanding: is not allowed for a rolling limit\n  write it in used"],
        ),
        (
            {"beganAt": "2026-11-22T08:54:56Z"},
            ["$.beganAt: is only for a budget that resets\n  give it resetSeconds"],
        ),
        *(
            (
                {"beganAt": value},
                [
                    f"""$.beganAt: {json.dumps(value)} is not an instant
  date, time and offset, like 2026-11-22T08:54:56Z"""
                ],
            )
            for value in (5, "yesterday", "2026-11-22T08:54:56")
        ),
    ],
)
def test_an_impossible_state_is_reported(change: dict[str, Any], wrong: list[str]) -> None:
    """An invalid state is not corrected."""
    assert problems_of(LimitState, RPM | change) == wrong


def test_all_problems_of_a_list_are_reported_at_once() -> None:
    """Each problem has its path."""
    data = [RPM, {"kind": "concurrency", "capacity": 1}, 5, DAILY | {"windowSeconds": 5}, RPM]
    assert problems_of(tuple[SharedLimit, ...], data) == [
        "$[1].key: is missing\n  a name",
        """$[1].timeoutSeconds: is missing
  a concurrency limit needs the seconds after which a lost hold is returned""",
        "$[2]: 5 is not a limit\n  an object with key, kind, …",
        "$[3].windowSeconds: is not allowed for a budget limit\n  it may have resetSeconds",
        '$[4].key: [0] also has the key "llm:rpm"\n  one limit for each key',
    ]
    assert problems_of(tuple[LimitState, ...], {"limits": []}) == [
        "$: an object is not a list\n  a list of limits"
    ]
    assert from_json([], tuple[SharedLimit, ...]) == ()


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 10)  # each example writes to the disk
@given(found=st.lists(states(), max_size=4, unique_by=lambda state: state.limit.key))
def test_ql_34_limits_in_a_file_are_read_back_unchanged(
    found: list[LimitState], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The file is sorted by key, and no other file is left in the folder."""
    folder = tmp_path_factory.mktemp("limits")
    path = folder / "limits.json"
    write_limits(path, found)
    assert read_limits(path) == tuple(sorted(found, key=lambda state: state.limit.key))
    assert [*folder.iterdir()] == [path]


def test_ql_34_concurrent_writers_leave_one_whole_file(tmp_path: Path) -> None:
    """A concurrent reader sees one of the versions, and no temporary file is left."""
    path = tmp_path / "limits.json"
    both = [
        [LimitState(limit=from_json(RPM | {"key": f"{name}{n}"}, SharedLimit)) for n in range(50)]
        for name in "ab"
    ]
    write_limits(path, both[0])

    def write(found: list[LimitState]) -> None:
        for _ in range(10):
            write_limits(path, found)

    threads = [threading.Thread(target=write, args=[found]) for found in both]
    for thread in threads:
        thread.start()
    seen = {read_limits(path)[0].limit.key for _ in range(50)}
    for thread in threads:
        thread.join()
    assert seen <= {"a0", "b0"}
    assert len(read_limits(path)) == 50
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[\n{]", ":2:2: $: is not JSON: Expecting property name enclosed in double quotes"),
        ("", ":1:1: $: is not JSON: Expecting value"),
        ("{}", ":1: $: an object is not a list\n  a list of limits"),
        ('[{"key": "a", "key": "b"}]', ': the key "key" occurs twice in one object'),
        (
            '[\n  5,\n\n {"key": "[,]",\n"kind": "budget"}\n]',
            """:2: $[0]: 5 is not a limit
  an object with key, kind, …
{path}:4: $[1].capacity: is missing
  how much there is: a whole number from 1 to 2^53-1""",
        ),
    ],
)
def test_ql_34_an_invalid_file_is_reported_with_its_lines(
    text: str, wrong: str, tmp_path: Path
) -> None:
    """An invalid file never counts as empty."""
    path = tmp_path / "limits.json"
    path.write_text(text)
    with pytest.raises(SuiteError) as error:
        read_limits(path)
    assert str(error.value) == f"{path}{wrong.replace('{path}', str(path))}"
    assert error.value.files == (path,)


def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    """A missing file counts as one without limits if requested."""
    path = tmp_path / "limits.json"
    with pytest.raises(SuiteError, match=r"limits\.json: file not found"):
        read_limits(path)
    assert read_limits(path, missing_ok=True) == ()
    path.write_bytes(b"[\xff]")
    with pytest.raises(SuiteError, match=r"byte 1 is not UTF-8"):
        read_limits(path)
    path.write_text("[" * 100_000)
    with pytest.raises(SuiteError, match=r"is not a file of limits"):
        read_limits(path)
    path.write_text(f'[{{"capacity": {"1" * 5000}}}]')
    with pytest.raises(SuiteError, match=r"is not a file of limits"):
        read_limits(path)
    with pytest.raises(SuiteError, match=r"Is a directory"):
        read_limits(tmp_path)


def test_a_linked_file_is_replaced_in_place_and_keeps_its_permissions(tmp_path: Path) -> None:
    """A link stays a link."""
    target, link = tmp_path / "limits.json", tmp_path / "link.json"
    target.write_text("[]")
    target.chmod(0o640)
    link.symlink_to(target)
    write_limits(link, [LimitState(limit=from_json(SLOTS, SharedLimit))])
    assert link.is_symlink()
    assert read_limits(target)[0].limit == from_json(SLOTS, SharedLimit)
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


class Disk:
    """Records writes, and fails when requested."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails_on: str = "") -> None:
        self.done: list[str] = []
        self._fails_on = fails_on
        self._sync, self._replace = os.fsync, Path.replace
        monkeypatch.setattr(os, "fsync", self.sync)
        disk = self

        def replace(source: Path, target: Path) -> Path:
            return disk.replace(source, target)

        monkeypatch.setattr(Path, "replace", replace)

    def sync(self, descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        self._do("folder" if is_folder else "file")
        self._sync(descriptor)

    def replace(self, source: Path, target: Path) -> Path:
        self._do("replace")
        return self._replace(source, target)

    def _do(self, what: str) -> None:
        if what == self._fails_on:
            raise OSError(errno.EIO, "broken")
        self.done.append(what)


def test_a_written_file_is_synced_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is synced before its name: after a crash there is the old or the new one."""
    disk = Disk(monkeypatch)
    write_limits(tmp_path / "limits.json", [])
    assert disk.done == ["file", "replace", "folder"]


@pytest.mark.parametrize(
    ("fails_on", "message", "keys"),
    [
        ("file", "cannot write the limits: broken", []),
        ("replace", "cannot write the limits: broken", []),
        ("folder", "are written, but a loss of power may undo that: broken", ["llm:slots"]),
    ],
)
def test_a_disk_error_is_reported_with_the_content_of_the_file(
    fails_on: str, message: str, keys: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other file is left."""
    path = tmp_path / "limits.json"
    write_limits(path, [])
    Disk(monkeypatch, fails_on)
    with pytest.raises(OutputError, match=message):
        write_limits(path, [LimitState(limit=from_json(SLOTS, SharedLimit))])
    assert [state.limit.key for state in read_limits(path)] == keys
    assert [*tmp_path.iterdir()] == [path]


def test_a_file_that_cannot_be_written_stays_unchanged(tmp_path: Path) -> None:
    """No other file is left."""
    folder = tmp_path / "limits.json"
    folder.mkdir()
    with pytest.raises(OutputError, match=r"limits\.json: cannot write the limits: "):
        write_limits(folder, [])
    assert [*tmp_path.iterdir()] == [folder]
    with pytest.raises(OutputError, match=r"No such file or directory"):
        write_limits(tmp_path / "nowhere" / "limits.json", [])
