"""Single rows of a suite as an expansion of its own: those that somebody asks for, and no others."""

from collections.abc import Container, Iterator

import attrs

from trioeval.suite.expand import Expansion, Stretch


def narrowed(steps: Expansion, wanted: Container[tuple[int, int]]) -> Expansion:
    """The steps that are wanted, with the names that they have among all.

    Where the outputs of a test are compared with each other, all of its steps come with each of them.

    Args:
        steps: Those that `expand` has made.
        wanted: By `test_idx` and `prompt_idx`.

    Example:
        >>> from trioeval.suite import expand, parse_suite
        >>> suite = parse_suite(
        ...     {
        ...         "providers": ["echo"],
        ...         "prompts": ["a", "b"],
        ...         "tests": [{"vars": {"x": ["1", "2"]}}, {"vars": {"x": "3"}}],
        ...     }
        ... )
        >>> few = narrowed(expand(suite), {(1, 0), (2, 1)})
        >>> [(step.index, step.test_idx, step.prompt_idx, step.vars["x"]) for step in few]
        [(0, 1, 0, '2'), (1, 2, 1, '3')]
    """
    stretches: list[Stretch] = []
    index = 0
    for stretch in _rounds(steps):
        shape = stretch.shape
        columns = tuple(one for one in shape.columns if (stretch.first_test_idx, one) in wanted)
        if not columns:
            continue
        if shape.compared:
            columns = shape.columns
        # Its first test index is that of the first round, as that of every stretch.
        stretches.append(
            attrs.evolve(
                stretch,
                shape=attrs.evolve(shape, columns=columns),
                first_test_idx=stretch.first_test_idx - shape.round(stretch.first_round),
                first_index=index,
            )
        )
        index += len(columns)
    firsts = tuple(stretch.first_index for stretch in stretches)
    return attrs.evolve(steps, stretches=tuple(stretches), firsts=firsts, size=index)


def _rounds(steps: Expansion) -> Iterator[Stretch]:
    """A stretch for each `test_idx`, with that as its first."""
    ends = (*(stretch.first_index for stretch in steps.stretches), len(steps))[1:]
    # There is an end too many if there are no steps at all.
    for stretch, end in zip(steps.stretches, ends, strict=False):
        shape = stretch.shape
        for nth in range((end - stretch.first_index) // shape.steps if shape.columns else 0):
            for round_ in range(shape.repeats * shape.chosen):
                yield attrs.evolve(
                    stretch,
                    first_place=stretch.first_place + nth,
                    first_test_idx=stretch.first_test_idx
                    + nth * shape.rounds
                    + shape.round(round_),
                    first_round=round_,
                )
