"""The rows of a task that run together, and one after another."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.evaluation.groups import Layout
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.evaluation.shared_data import serial_rank
from trioeval.loading.load import parse_suite
from trioeval.run import prepare
from trioeval.scaleout.chains import Chains, next_piece, serial_cuts
from trioeval.scaleout.shard_task import layout_of_rows

FEWER = settings(max_examples=settings().max_examples // 3)
PROMPTS = ["say {{word}}", "{{word}} of {{_conversation}}"]


@st.composite
def dependent_suites(draw: st.DrawFn) -> PreparedSuite:
    """Return a suite whose rows may read what others leave."""
    tests: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 6))):
        word = draw(st.sampled_from(["plain", "{{a}}", "{{b}}"]))
        options: dict[str, Any] = {}
        if (register := draw(st.sampled_from([None, None, "a", "b"]))) is not None:
            options["storeOutputAs"] = register
        if draw(st.integers(0, 5)) == 0:
            options["runSerially"] = True
        test: dict[str, Any] = {"vars": {"word": f"{word} {number}"}, "options": options}
        if draw(st.integers(0, 4)) == 0:
            test["assert"] = [{"type": "max-score"}, {"type": "contains", "value": "say"}]
        if draw(st.booleans()):
            test["metadata"] = {"conversationId": draw(st.sampled_from("xy"))}
        tests.append(test)
    several = draw(st.booleans()) or any("assert" in test for test in tests)
    serialize = draw(st.sampled_from(["auto", "conversation", "register", "all"]))
    suite = {
        "providers": ["echo", {"id": "echo", "label": "b"}] if several else ["echo"],
        "prompts": draw(st.sampled_from([PROMPTS[:1], PROMPTS[1:], PROMPTS])),
        "tests": tests,
        "evaluateOptions": {
            "registerScope": draw(st.sampled_from(["suite", "column"])),
            "serialize": serialize,
        },
    }
    return prepare(parse_suite(suite))


@FEWER
@given(dependent_suites())
def test_rows_of_different_chains_need_nothing_of_each_other(prepared: PreparedSuite) -> None:
    """Law BLOCK: a row reads only from its own chain, and from serial rows, which run before."""
    steps, access, chains = prepared.steps, prepared.access, Chains.of(prepared)
    keys = [None if chains is None else chains.key(index) for index in range(len(steps))]
    serial = {*steps.serial_indices}
    for reader in steps:
        for writer in steps:
            if not serial_rank(writer) < serial_rank(reader):
                continue
            depends = bool(access(writer.index).writes & access(reader.index).reads)
            if prepared.in_order or depends:
                same = keys[writer.index] is not None and keys[writer.index] == keys[reader.index]
                assert same or (writer.index in serial) > (reader.index in serial)
    for span in steps.spans:
        for start in range(span.start, span.stop, span.width) if span.compared else ():
            group = range(start, start + span.width)
            assert chains is not None
            assert len({keys[index] for index in group}) == 1
            assert {*map(chains.together, group)} == {group}


@FEWER
@given(dependent_suites())
def test_rows_of_a_chain_on_one_lane_say_so(prepared: PreparedSuite) -> None:
    chains = Chains.of(prepared)
    if chains is None or chains.use_several_lanes:
        return
    lanes: dict[Any, set[int]] = {}
    for step in prepared.steps:
        if (key := chains.key(step.index)) is not None:
            lanes.setdefault(key, set()).add(step.provider_index)
    assert all(len(found) == 1 for found in lanes.values())


def test_independent_rows_and_conversations_run_side_by_side() -> None:
    """A chain has only the rows that need each other."""

    def keys(**more: Any) -> list[Any]:
        base = {"providers": ["echo"], "prompts": ["{{word}}"]}
        options = {"evaluateOptions": {"serialize": "auto"}}
        prepared = prepare(parse_suite({**base, **options, **more}))
        chains = Chains.of(prepared)
        assert chains is not None
        return [chains.key(index) for index in range(len(prepared.steps))]

    talks = [{"vars": {"word": 1}, "metadata": {"conversationId": one}} for one in "xyx"]
    first, second, third = keys(prompts=["{{word}} {{_conversation}}"], tests=talks)
    assert first == third != second
    found = keys(
        tests=[
            {"vars": {"word": 1}},
            {"vars": {"word": 2}, "options": {"storeOutputAs": "a"}},
            {"vars": {"word": "{{a}}"}},
        ]
    )
    assert found[0] is None
    assert found[1] == found[2] is not None


@FEWER
@given(dependent_suites(), st.data())
def test_a_piece_has_whole_groups_and_at_least_one_row(
    prepared: PreparedSuite, data: st.DataObject
) -> None:
    chains = Chains.of(prepared)
    if chains is None:
        return
    by_key: dict[Any, list[int]] = {}
    for index in range(len(prepared.steps)):
        if (key := chains.key(index)) is not None:
            by_key.setdefault(key, []).append(index)
    for rows in by_key.values():
        most = data.draw(st.integers(1, 5))
        left = rows
        while left:
            count = next_piece(left, most, chains)
            assert count >= 1
            piece = left[:count]
            assert count <= max(most, len(chains.together(piece[0])))
            assert {*piece} == {one for row in piece for one in chains.together(row)}
            left = left[count:]


def test_a_piece_waits_for_rows_that_have_not_started() -> None:
    suite = {
        "providers": ["echo", {"id": "echo", "label": "b"}],
        "prompts": ["a", "b"],
        "tests": [{"assert": [{"type": "max-score"}, {"type": "contains", "value": "a"}]}],
    }
    chains = Chains.of(prepare(parse_suite(suite)))
    assert chains is not None
    assert [next_piece(range(count), 1, chains) for count in range(5)] == [0, 0, 0, 0, 4]


@given(st.integers(0, 12), st.data(), st.integers(1, 5))
def test_serial_rows_are_in_ranges_of_their_own(size: int, data: st.DataObject, most: int) -> None:
    serial = sorted(data.draw(st.sets(st.integers(0, size - 1)))) if size else []
    cuts = serial_cuts(size, serial, most, 3)
    assert [row for rows, _ in cuts for row in rows] == [*range(size)]
    assert all(0 < len(rows) <= (3 if is_serial else most) for rows, is_serial in cuts)
    assert [row for rows, is_serial in cuts if is_serial for row in rows] == serial


@FEWER
@given(dependent_suites(), st.data())
def test_the_plan_of_a_shard_compares_its_groups(
    prepared: PreparedSuite, data: st.DataObject
) -> None:
    whole = Layout.of(prepared.steps.spans)
    groups = [
        range(start, start + (span.width if span.compared else 1))
        for span in whole.spans
        for start in range(span.start, span.stop, span.width if span.compared else 1)
    ]
    chosen = data.draw(st.lists(st.sampled_from(groups), unique=True))
    rows = [row for group in sorted(chosen, key=lambda group: group.start) for row in group]
    layout, jobs = layout_of_rows(whole, rows)
    assert len(layout) == len(jobs)
    assert [*jobs] == sorted({*jobs})
    for place, job in enumerate(jobs):
        step, there = layout.step(place), whole.step(job)
        assert (None if step is None else rows[step]) == there
        group = layout.group(place)
        if step is None:
            assert group is not None
            assert group.job == place


@pytest.mark.parametrize("in_order", [True, False])
def test_the_order_of_a_shard_is_that_of_its_rows_in_the_task(*, in_order: bool) -> None:
    suite = {
        "providers": ["echo"],
        "prompts": ["{{word}} {{_conversation}}"],
        "tests": [
            {"vars": {"word": number}, "metadata": {"conversationId": number % 2}}
            for number in range(8)
        ],
        "evaluateOptions": {"serialize": "all" if in_order else "auto"},
    }
    prepared = prepare(parse_suite(suite))
    order = prepared.order_among([1, 3, 4, 6])
    assert order is not None
    readiness = order()
    assert [*readiness.begin()] == ([0] if in_order else [0, 2])
    assert [*readiness.on_outcome(0, done=False).ready] == [1]
