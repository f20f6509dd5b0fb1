"""Names of cases and of their folders are unique in every combination of a suite."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from trioeval import parse_suite
from trioeval.agent.case_folder import CaseNames, task_folder
from trioeval.run.prepare import prepare

IDS = ("a", "b", "A", "a-2", "a.b", "b.repeat-1", "case-1", "bus")
LABELS = ("x", "X", "x y", "x-y", "b.x", "..", "é", "prompt-1", "a" * 90)


def names_of(
    tests: Sequence[Mapping[str, Any]],
    labels: Sequence[str] = ("x",),
    prompts: Sequence[str] = ("Do it.",),
    repeat: int = 1,
) -> CaseNames:
    """Return the case names of a task with providers of these labels."""
    task = {
        "id": "work",
        "type": "agent",
        "prompts": [*prompts],
        "providers": [{"id": "exec:true", "label": label} for label in labels],
        "tests": [*tests],
        "evaluateOptions": {"repeat": repeat},
    }
    prepared = prepare(parse_suite({"tasks": [task]}, environ={}), environ={})
    return CaseNames.of(prepared.parts[0].prepared.steps)


@settings(max_examples=settings().max_examples // 10)
@given(
    st.lists(st.sampled_from(IDS), min_size=1, max_size=4, unique=True),
    st.lists(st.sampled_from(LABELS), min_size=1, max_size=3, unique=True),
    st.integers(1, 2),
    st.integers(1, 2),
)
@example(["a", "a.b"], ["b.x", "x"], 1, 1)
def test_no_two_cases_share_a_folder(
    ids: list[str], labels: list[str], prompts: int, repeat: int
) -> None:
    """Folders differ also without regard to case, and names are unique in each column."""
    names = names_of(
        [{"id": one} for one in ids], labels, [f"Do {n}." for n in range(prompts)], repeat
    )
    rooms = [room.lower() for room in names.folder_names]
    assert len(rooms) == len(set(rooms)) == len(ids) * len(labels) * prompts * repeat
    assert all(
        re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,240}", room) for room in names.folder_names
    )
    places = [*zip(names.names, names.columns, strict=True)]
    assert len(places) == len(set(places))
    assert {name for name, _ in places} == set(ids)
    assert len({column for _, column in places}) == len(labels) * prompts * repeat
    assert not names.dependents


def test_a_folder_name_contains_the_case_and_the_dimensions_with_several_values() -> None:
    assert names_of([{"id": "a"}]).folder_names == ["a"]
    assert names_of([{"id": "a"}], prompts=["1", "2"]).folder_names == ["a.prompt-1", "a.prompt-2"]
    assert names_of([{"id": "a"}], repeat=2).folder_names == ["a.repeat-1", "a.repeat-2"]
    several = names_of([{"id": "a"}], ["x", "y"], ["1", "2"])
    assert several.folder_names == ["a.x.prompt-1", "a.x.prompt-2", "a.y.prompt-1", "a.y.prompt-2"]


def test_a_dependency_refers_to_the_same_column() -> None:
    """It does so even if a test has its own provider."""
    tests: list[dict[str, Any]] = [
        {"id": "a", "provider": "exec:false"},
        {"id": "b", "dependsOn": ["a"], "onFailedDependency": "block"},
    ]
    names = names_of(tests, ["x", "y"])
    assert sorted(names.dependents) == ["x", "y"]
    for column in names.dependents.values():
        assert [(one.name, one.depends_on, one.when_failed) for one in column] == [
            ("a", (), "skip"),
            ("b", ("a",), "block"),
        ]


def test_task_folders_are_inside_the_run_folder_beside_its_bus() -> None:
    """This holds for any ids."""
    assert task_folder("repairs") == "repairs"
    ids = ["bus", "BUS", "..", "a/b", "a-b", "../a", "/a", "", "é", "x" * 300, "x" * 301, None]
    folders = [task_folder(one) for one in ids]
    assert len(set(folders)) == len(ids)
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}", one) for one in folders)
    assert not {"bus", "BUS"} & {*folders}
