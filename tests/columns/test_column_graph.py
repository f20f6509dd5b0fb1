"""The producers of columns: order, edges and mistakes."""

import pytest
from hypothesis import given, settings
from made_graphs import graphs, producer

from trioeval.columns.graph import ColumnGraph, GraphMistake, Producer
from trioeval.errors import DatasetError


@given(graphs(most=8))
@settings(max_examples=settings().max_examples // 3)
def test_each_producer_follows_its_dependencies(graph: ColumnGraph) -> None:
    for place, several in enumerate(graph.upstream):
        names = {graph.producers[need].name for need in several}
        assert names == set(graph.producers[place].requires)
        assert all(need < place for need in several)
        assert list(several) == sorted(several)
        for need in several:
            assert place in graph.downstream[need]
    assert sum(map(len, graph.upstream)) == sum(map(len, graph.downstream))


def test_producers_without_dependencies_keep_their_declared_order() -> None:
    graph = ColumnGraph.of([producer("c", "b"), producer("a"), producer("b"), producer("d", "c")])
    assert [one.name for one in graph.producers] == ["a", "b", "c", "d"]
    assert ColumnGraph.of(graph.producers).producers == graph.producers


def test_an_output_of_the_same_producer_is_not_a_dependency() -> None:
    made = Producer(name="a", outputs=("a", "b"), extras=("c",), requires=("b", "c"))
    graph = ColumnGraph.of([made])
    assert graph.upstream == ((),)
    assert graph.columns == (("a", "b", "c"),)
    assert dict(graph.maker) == {"a": 0, "b": 0, "c": 0}


def test_co_02_a_cycle_is_reported_with_its_path() -> None:
    made = [
        producer("x", "c"),  # it needs the cycle, and is not on it
        producer("a", "b"),
        producer("b", "c"),
        producer("c", "a"),
        producer("e", "f"),
        producer("f", "e"),
    ]
    assert ColumnGraph.mistakes(made) == [
        GraphMistake(1, "columns depend on each other in a circle: a → b → c → a"),
        GraphMistake(4, "columns depend on each other in a circle: e → f → e"),
    ]


def test_co_02_an_unknown_column_is_reported_with_a_suggestion() -> None:
    made = [producer("problem"), producer("answer", "problm", "zzz", "problm")]
    assert ColumnGraph.mistakes(made) == [
        GraphMistake(
            1, 'it needs column "problm", which does not exist', 'did you mean "problem"?'
        ),
        GraphMistake(1, 'it needs column "zzz", which does not exist'),
    ]


def test_co_02_two_makers_of_a_column_are_reported() -> None:
    made = [
        producer("a", extras=("trace",)),
        producer("b", extras=("trace",)),
        producer("a"),
        Producer(name="c", outputs=("c", "c")),
    ]
    assert ColumnGraph.mistakes(made) == [
        GraphMistake(1, 'column "trace" is also made by "a"'),
        GraphMistake(2, 'column "a" is also made by "a"'),
        GraphMistake(3, 'column "c" is listed twice'),
    ]


def test_co_03_a_real_column_wins_over_a_side_effect_of_its_name() -> None:
    made = [producer("a", extras=("b", "t")), producer("b", "t"), producer("c", "b")]
    graph = ColumnGraph.of(made)
    assert dict(graph.maker) == {"a": 0, "t": 0, "b": 1, "c": 2}
    assert graph.columns == (("a", "t"), ("b",), ("c",))
    assert graph.upstream == ((), (0,), (1,))


def test_a_dependency_that_the_scope_does_not_allow_is_a_mistake() -> None:
    made = [producer("a", ordered=True), producer("b", "b", "a", scope="scratch")]
    assert ColumnGraph.mistakes(made) == [
        GraphMistake(0, "cells are made in any order", "leave out `ordered`"),
        GraphMistake(
            1,
            'a producer of scope "scratch" cannot need column "a"',
            'use scope "full"',
        ),
    ]


def test_all_mistakes_are_in_the_error() -> None:
    with pytest.raises(DatasetError) as caught:
        ColumnGraph.of([producer("apple", "b"), producer("b", "aple", "b2", ordered=True)])
    assert str(caught.value).splitlines() == [
        "column 'b': cells are made in any order; leave out `ordered`",
        'column \'b\': it needs column "aple", which does not exist; did you mean "apple"?',
        "column 'b': it needs column \"b2\", which does not exist",
    ]


def test_jobs_are_counted_by_rows_and_by_groups() -> None:
    graph = ColumnGraph.of([producer("a"), producer("b", scope="full"), producer("c", "a")])
    assert graph.jobs(rows=10, groups=3) == 23
