"""Values drawn at random: reproducible, within bounds, and with the right frequencies."""

import random
import subprocess
import sys
import uuid
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from made_locally import column_of, group_order, made_by

from trioeval.columns.makers.base import CellError
from trioeval.columns.makers.samplers import SamplerMaker, draw, stream
from trioeval.columns.model import (
    CategorySampler,
    DatetimeSampler,
    GaussianSampler,
    Sampler,
    SamplerColumn,
    SubcategorySampler,
    UniformSampler,
    UuidSampler,
)

KINDS: list[Sampler] = [
    CategorySampler(values=("a", 1, None)),
    CategorySampler(values=("a", "b"), weights=(3, 1)),
    UniformSampler(low=2, high=50, decimals=0),
    UniformSampler(low=-1, high=1),
    GaussianSampler(mean=5, deviation=2, low=0),
    DatetimeSampler(start="2026-01-01", end="2026-02-01", unit="hour"),
    UuidSampler(),
]
DRAWS = 4000


def maker(sampler: Sampler, seed: int = 7, name: str = "x", own: int | None = None) -> SamplerMaker:
    column = SamplerColumn(name=name, outputs=(name,), sampler=sampler, seed=own)
    return SamplerMaker(column, seed)


def values(sampler: Sampler, count: int = DRAWS, seed: int = 7) -> list[Any]:
    return list(draw(sampler, stream(seed, "x", 0), [{}] * count))


def drawn(sampler: Sampler, rows: list[int], start: int, group: int = 1) -> dict[int, Any]:
    made = made_by(maker(sampler), group_order([{}] * len(rows), rows, group, start))
    return dict(zip(rows, column_of(made, "x"), strict=True))


def test_values_are_the_same_in_all_processes_and_versions() -> None:
    """These are golden values: changing them changes every dataset that is resumed."""
    assert [values(sampler, 2) for sampler in KINDS] == EXPECTED


EXPECTED: list[list[Any]] = [
    [1, 1],
    ["a", "a"],
    [24, 20],
    [-0.09713212004186289, -0.23021484015246885],
    [3.3569547847555468, 7.540822941460165],
    ["2026-01-15T00:00:00", "2026-01-12T22:00:00"],
    ["73912cb8-6288-41f3-a68f-f43c263a8435", "95b82871-119c-4069-b7e8-cb815c2acbc8"],
]


@pytest.mark.slow
def test_the_stream_does_not_depend_on_the_hash_seed_of_a_process() -> None:
    code = "from trioeval.columns.makers.samplers import stream; print(stream(7, 'x', 3).random())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        check=True,
        text=True,
    )
    assert float(done.stdout) == stream(7, "x", 3).random()


@pytest.mark.parametrize("sampler", KINDS)
def test_dropped_rows_do_not_change_the_values_of_others(sampler: Sampler) -> None:
    every = drawn(sampler, list(range(40, 60)), 40)
    some = drawn(sampler, [41, 45, 46, 52], 40)
    assert some == {row: every[row] for row in (41, 45, 46, 52)}


@pytest.mark.parametrize("sampler", KINDS[3:])
def test_values_depend_on_seed_column_and_group_alone(sampler: Sampler) -> None:
    order = group_order(5, group=3, start=15)
    first = column_of(made_by(maker(sampler), order), "x")
    made_by(maker(sampler), group_order(5, group=2, start=10))
    assert column_of(made_by(maker(sampler), order), "x") == first
    assert column_of(made_by(maker(sampler, own=7, seed=99), order), "x") == first
    others = [
        column_of(made_by(maker(sampler, seed=8), order), "x"),
        column_of(made_by(maker(sampler, name="y"), order), "y"),
        column_of(made_by(maker(sampler), group_order(5, group=4, start=15)), "x"),
    ]
    assert first not in others


def test_a_large_group_is_drawn_at_once_and_lets_other_tasks_run() -> None:
    made = made_by(maker(KINDS[2]), group_order(2500))
    assert [row for row, _ in made] == list(range(2500))
    assert column_of(made, "x") == values(KINDS[2], 2500)


@given(
    st.integers(-(10**6), 10**6), st.integers(0, 10**6), st.integers(0, 4), st.integers(0, 2**64)
)
def test_uniform_numbers_are_rounded_and_within_both_ends(
    low: int, width: int, decimals: int, seed: int
) -> None:
    """They are drawn on the grid of the decimals, so no number is left out or beyond an end."""
    bottom, top = low / 1000, (low + width) / 1000
    sampler = UniformSampler(low=bottom, high=top, decimals=decimals)
    try:
        found = values(sampler, 20, seed)
    except CellError:
        assume(False)  # noqa: FBT003
    for value in found:
        assert bottom <= value <= top
        assert value == round(value, decimals)
        assert isinstance(value, int) is (decimals == 0)


def test_both_ends_of_a_uniform_sampler_are_drawn() -> None:
    assert set(values(UniformSampler(low=0.05, high=0.29, decimals=1))) == {0.1, 0.2}
    assert set(values(UniformSampler(low=0.28, high=0.29, decimals=2))) == {0.28, 0.29}
    assert set(values(UniformSampler(low=1, high=6, decimals=0))) == {1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize("seed", range(5))
def test_every_number_is_equally_likely(seed: int) -> None:
    """Counts stay within five standard deviations: by chance none of 6 × 5 is outside (2 in 10⁵)."""
    counts = Counter(values(UniformSampler(low=1, high=6, decimals=0), DRAWS, seed))
    deviation = (DRAWS / 6 * 5 / 6) ** 0.5
    assert all(abs(count - DRAWS / 6) < 5 * deviation for count in counts.values())


def test_weights_determine_the_frequency_of_values() -> None:
    counts = Counter(values(CategorySampler(values=("a", "b", "c", "d"), weights=(0, 3, 1, 0))))
    assert set(counts) == {"b", "c"}
    deviation = (DRAWS * 3 / 4 / 4) ** 0.5
    assert abs(counts["b"] - DRAWS * 3 / 4) < 5 * deviation


def test_the_last_value_with_a_weight_is_the_last_that_is_drawn() -> None:
    """Rounding may make a draw as large as the sum of all weights."""

    class Top(random.Random):
        def random(self) -> float:
            return 1 - 2**-53

    tiny = CategorySampler(values=("a", "b", "c"), weights=(5e-324, 5e-324, 0))
    assert list(draw(tiny, Top(), [{}])) == ["b"]


def test_gaussian_numbers_have_mean_and_deviation() -> None:
    found = values(GaussianSampler(mean=5, deviation=2))
    mean = sum(found) / DRAWS
    assert abs(mean - 5) < 5 * 2 / DRAWS**0.5
    variance = sum((value - mean) ** 2 for value in found) / DRAWS
    assert abs(variance - 4) < 5 * 4 * (2 / DRAWS) ** 0.5


def test_gaussian_numbers_are_rounded_and_then_clipped() -> None:
    found = values(GaussianSampler(mean=0, deviation=1, decimals=0, low=-1, high=0.6))
    assert set(found) == {-1, 0}
    assert all(type(value) is int for value in found)


def test_bounds_that_exclude_all_draws_are_an_error() -> None:
    with pytest.raises(CellError, match=r"none of 1000 numbers with mean 0 and deviation 1 was"):
        values(GaussianSampler(mean=0, deviation=1, low=100), 1)


@given(st.sampled_from(["second", "minute", "hour", "day"]), st.integers(0, 10**6), st.integers(0))
def test_instants_are_multiples_of_the_unit_from_the_start(
    unit: str, seconds: int, seed: int
) -> None:
    start = datetime(2026, 1, 1, 0, 0, 30)  # noqa: DTZ001 - it has no zone
    end = start + timedelta(seconds=seconds)
    sampler = DatetimeSampler(start=str(start), end=str(end), unit=unit)  # type: ignore[arg-type]
    for text in values(sampler, 10, seed):
        found = datetime.fromisoformat(text)
        assert start <= found <= end
        assert (found - start) % timedelta(**{f"{unit}s": 1}) == timedelta(0)
        assert found.isoformat() == text


def test_both_ends_of_a_time_are_drawn_in_the_zone_of_the_start() -> None:
    sampler = DatetimeSampler(
        start="2026-01-01T01:00+01:00", end="2026-01-01T01:00:00Z", unit="hour"
    )
    assert set(values(sampler)) == {"2026-01-01T01:00:00+01:00", "2026-01-01T02:00:00+01:00"}


def test_a_format_replaces_iso_8601() -> None:
    sampler = DatetimeSampler(start="2026-01-01", end="2026-01-01", format="%d.%m.%Y")
    assert values(sampler, 1) == ["01.01.2026"]


def test_uuids_are_of_version_4_and_unique() -> None:
    found = values(UuidSampler(), 500)
    assert len(set(found)) == 500
    read = list(map(uuid.UUID, found))
    assert list(map(str, read)) == found
    assert {(one.version, one.variant) for one in read} == {(4, uuid.RFC_4122)}


def test_uuids_may_be_short_with_a_prefix_and_in_capitals() -> None:
    whole = values(UuidSampler(), 1)[0]
    assert values(UuidSampler(prefix="p-", short=True), 1) == [f"p-{whole[:8]}"]
    assert values(UuidSampler(prefix="p-", uppercase=True), 1) == [f"p-{whole.upper()}"]


def test_a_subcategory_depends_on_the_text_of_its_category() -> None:
    sampler = SubcategorySampler(category="c", values={"a": ("x",), "1": ("y",), "true": ("z",)})
    rows: list[dict[str, Any]] = [{"c": "a"}, {"c": 1}, {"c": True}]
    assert column_of(made_by(maker(sampler), group_order(rows)), "x") == ["x", "y", "z"]


def test_a_subcategory_of_a_row_does_not_change_when_others_are_dropped() -> None:
    sampler = SubcategorySampler(category="c", values={"a": tuple(range(99)), "b": ("x",)})
    rows = [{"c": "ab"[place % 2]} for place in range(10)]
    every = column_of(made_by(maker(sampler), group_order(rows)), "x")
    some = column_of(made_by(maker(sampler), group_order(rows[4::2], [4, 6, 8])), "x")
    assert some == every[4::2]
    assert every[1::2] == ["x"] * 5


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (
            UniformSampler(low=0.01, high=0.04, decimals=1),
            "no number with 1 decimal is between 0.01 and 0.04",
        ),
        (UniformSampler(low=2, high=1), "low must not be above high, got 2 and 1"),
        (
            CategorySampler(values=("a",), weights=(0,)),
            "at least one weight must be above 0",
        ),
        (
            DatetimeSampler(start="soon", end="2026-01-01"),
            '"soon" is not a date and time in ISO 8601',
        ),
        (
            DatetimeSampler(start="2026-01-02", end="2026-01-01"),
            'end must not be before start, got "2026-01-02" and "2026-01-01"',
        ),
        (
            DatetimeSampler(start="2026-01-02", end="2026-01-03T00:00Z"),
            'start and end must both have a time zone, or neither, got "2026-01-02" and "2026-01-03T00:00Z"',
        ),
    ],
)
def test_a_sampler_without_values_reports_the_reason(sampler: Sampler, message: str) -> None:
    with pytest.raises(CellError) as caught:
        values(sampler, 1)
    assert str(caught.value) == message


def test_a_category_without_values_is_reported_with_the_others() -> None:
    sampler = SubcategorySampler(category="c", values={"a": ("x",), "b": ("y",)})
    made = made_by(maker(sampler), group_order([{"c": "z"}, {"c": "a"}], start=4))
    assert column_of(made, "x") == [
        'column "c" is "z", for which no values are given; values are given for "a", "b"',
        "x",
    ]
