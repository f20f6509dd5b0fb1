"""Jobs for groups of steps: computed positions against a list, and readiness against the rule itself."""

import random
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from trioeval.evaluation.groups import Group, GroupReadiness, Layout
from trioeval.evaluation.registers import SerialReadiness
from trioeval.kernel import Rank, Readiness, ReadinessUpdate
from trioeval.suite.expand import StepSpan

SHAPES = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4), st.booleans()), max_size=5)
"""Groups, their width, and whether they are compared."""


def spans_of(shapes: Sequence[tuple[int, int, bool]]) -> list[StepSpan]:
    spans, at = [], 0
    for groups, width, compared in shapes:
        spans.append(StepSpan(at, at + groups * width, width, compared))
        at += groups * width
    return spans


def listed(spans: Sequence[StepSpan]) -> list[int | range]:
    """Every job: the number of its step, or the numbers of the steps that it compares."""
    jobs: list[int | range] = []
    for span in spans:
        for start in range(span.start, span.stop, span.width):
            group = range(start, start + span.width)
            jobs += [*group, group] if span.compared else group
    return jobs


@given(SHAPES)
def test_every_job_is_a_step_or_compares_the_steps_right_before_it(
    shapes: list[tuple[int, int, bool]],
) -> None:
    """The layout agrees with a list of all jobs, and knows the job of every step."""
    layout, jobs = Layout.of(spans_of(shapes)), listed(spans_of(shapes))
    assert len(layout) == len(jobs)
    assert layout.compares == any(isinstance(job, range) for job in jobs)
    comparisons = [(index, job) for index, job in enumerate(jobs) if isinstance(job, range)]
    for index, group in comparisons:
        assert layout.step(index) is None
        assert layout.group(index) == Group(group.start, group.stop, index)
    for index, job in enumerate(jobs):
        if isinstance(job, int):
            assert layout.step(index) == job
            assert layout.job(job) == index
            own = [Group(g.start, g.stop, behind) for behind, g in comparisons if job in g]
            assert layout.group(index) == (own[0] if own else None)
    assert list(layout.step_jobs()) == [i for i, job in enumerate(jobs) if isinstance(job, int)]


@given(SHAPES, st.booleans(), st.randoms(use_true_random=False))
def test_a_comparison_is_ready_with_the_last_step_of_its_group(
    shapes: list[tuple[int, int, bool]],
    in_order: bool,  # noqa: FBT001 - hypothesis gives it
    chance: random.Random,
) -> None:
    """It is ready neither earlier nor later, once, for any order of ends; steps wait only for each other."""
    spans = spans_of(shapes)
    layout, jobs = Layout.of(spans), listed(spans)
    size = spans[-1].stop if spans else 0
    order = GroupReadiness(layout, SerialReadiness.of(size, ()) if in_order else None)
    ready, over = list(order.begin()), set[int]()
    while ready:
        index = ready.pop(chance.randrange(len(ready)))
        over.add(index)
        freed = order.on_outcome(index, done=chance.random() < 0.5)
        assert not freed.blocked
        job = jobs[index]
        steps = [other for other in freed.ready if isinstance(jobs[other], int)]
        compared = [other for other in freed.ready if isinstance(jobs[other], range)]
        if isinstance(job, int) and in_order:
            assert steps == [layout.job(step) for step in (job + 1,) if step < size]
        else:
            assert steps == []
        assert compared == [
            other
            for other, group in enumerate(jobs)
            if isinstance(group, range)
            and job in group
            and {layout.job(step) for step in group} <= over
        ]
        ready += freed.ready
    assert len(over) == len(jobs)


class ScriptedReadiness(Readiness):
    """A readiness of four steps: later ones come first, 1 is named again at once, and 2 withdraws 3."""

    def begin(self) -> Sequence[int]:
        return range(4)

    def on_outcome(self, index: int, *, done: bool) -> ReadinessUpdate:  # noqa: ARG002 - whatever it is
        return ReadinessUpdate(blocked=[(3, 2)]) if index == 2 else ReadinessUpdate()

    def rank(self, index: int) -> Rank:
        return (-index,)

    def on_set_aside(self, index: int) -> ReadinessUpdate | None:
        return ReadinessUpdate([index]) if index == 1 else None


def test_ranks_rounds_and_withdrawals_are_those_of_the_steps() -> None:
    """The inner readiness gets jobs; comparisons have no rank, and the run decides about their rounds."""
    order = GroupReadiness(Layout.of([StepSpan(0, 4, 2, compared=True)]), ScriptedReadiness())
    assert order.begin() == [0, 1, 3, 4]
    assert [order.rank(job) for job in range(6)] == [(0,), (-1,), (), (-2,), (-3,), ()]
    assert [order.on_set_aside(job) for job in (0, 1, 2)] == [None, ReadinessUpdate([1], []), None]
    assert order.on_outcome(3, done=True) == ReadinessUpdate([], [(4, 3)])
    plain = GroupReadiness(Layout.of([StepSpan(0, 4, 2, compared=True)]), None)
    assert (plain.rank(0), plain.on_set_aside(0)) == ((), None)
