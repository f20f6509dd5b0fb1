"""The values of open groups."""

import copy
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from trioeval.columns.buffer import Buffer
from trioeval.errors import DatasetError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
ROWS = st.integers(0, 4)


class BufferLaws(RuleBasedStateMachine):
    """A buffer compared with a mapping of mappings."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = Buffer()
        self.rows: dict[int, dict[str, Any] | None] = {}

    @rule(row=ROWS)
    def open(self, row: int) -> None:
        if row in self.rows:
            with pytest.raises(DatasetError, match=f"row {row} is already open"):
                self.buffer.open([row])
        else:
            self.buffer.open([row])
            self.rows[row] = {}

    @rule(row=ROWS, values=st.dictionaries(st.sampled_from("abc"), VALUES))
    def set(self, row: int, values: dict[str, Any]) -> None:
        held = self.rows.get(row)
        if held is None:
            why = "was dropped" if row in self.rows else "is not open"
            for misuse in (
                lambda: self.buffer.set(row, values),
                lambda: self.buffer.view(row),
                lambda: self.buffer.copy(row, "a"),
            ):
                with pytest.raises(DatasetError, match=f"row {row} {why}"):
                    misuse()
        else:
            self.buffer.set(row, copy.deepcopy(values))
            held.update(values)

    @rule(row=ROWS)
    def drop(self, row: int) -> None:
        if row in self.rows:
            self.buffer.drop([row])
            self.rows[row] = None
        else:
            with pytest.raises(DatasetError, match=f"row {row} is not open"):
                self.buffer.drop([row])

    @rule(row=ROWS)
    def close(self, row: int) -> None:
        self.buffer.close([row])
        self.rows.pop(row, None)

    @invariant()
    def holds_what_was_set(self) -> None:
        held = {row: values for row, values in self.rows.items() if values is not None}
        for row, values in held.items():
            assert self.buffer.view(row) == values
            assert self.buffer.copy(row, ["b", "c"]) == {
                column: values[column] for column in "bc" if column in values
            }
        anew = Buffer()
        anew.open(held)
        for row, values in held.items():
            anew.set(row, values)
        assert self.buffer.bytes == anew.bytes
        assert (self.buffer.bytes > 0) == any(held.values())


TestBufferLaws = BufferLaws.TestCase
TestBufferLaws.settings = settings(max_examples=settings().max_examples // 6)


def test_co_21_changing_a_copy_changes_no_row() -> None:
    buffer = Buffer()
    buffer.open([0])
    buffer.set(0, {"a": {"b": [1, {"c": "d"}]}, "e": "f"})
    taken = buffer.copy(0, ["a", "e"])
    taken["a"]["b"][1]["c"] = "changed"
    taken["a"]["b"].append(2)
    taken["a"]["g"] = taken["e"] = None
    assert buffer.view(0) == {"a": {"b": [1, {"c": "d"}]}, "e": "f"}


def test_a_view_shows_later_values_and_cannot_be_changed() -> None:
    buffer = Buffer()
    buffer.open([0])
    view = buffer.view(0)
    buffer.set(0, {"a": 1})
    assert view == {"a": 1}
    with pytest.raises(TypeError):
        view["a"] = 2  # type: ignore[index] # that is the point


def test_weights_grow_with_lengths() -> None:
    buffer = Buffer()
    buffer.open([0, 1])
    buffer.set(0, {"text": "x" * 10_000, "vector": [0.5] * 1000})
    assert 10_000 + 8_000 < buffer.bytes < 10_000 + 40_000
    buffer.set(0, {"text": ""})
    assert buffer.bytes < 40_000
    buffer.drop([0])
    assert buffer.bytes == 0


def test_a_deep_value_is_weighed_and_copied_without_recursion_errors() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    buffer = Buffer()
    buffer.open([0])
    buffer.set(0, {"a": value})
    assert buffer.copy(0, ["a"])["a"] is not value


def test_the_weight_of_a_list_includes_all_its_members() -> None:
    """This holds even if the first is a number like those of a vector."""
    buffer = Buffer()
    buffer.open([0])
    buffer.set(0, {"a": [0.5, "x" * 100_000]})
    assert buffer.bytes > 100_000
