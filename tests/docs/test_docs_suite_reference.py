"""The page about the suite file agrees with the models."""

import re
from pathlib import Path
from typing import get_args

import pytest
from model_tables import columns, documented, tables
from snippets import DOCS
from workbench import lay_out

from trioeval.grading import Assertion
from trioeval.loading.load import load_suite
from trioeval.question_eval.answer import ParseFaultKind
from trioeval.question_eval.model import QuestionBudget, QuestionSettings, Tool
from trioeval.suite import form as keys
from trioeval.suite.limit_form import unit_of
from trioeval.suite.model import (
    BatchSettings,
    EvaluateOptions,
    LaneSettings,
    LimitsSettings,
    ProviderEntry,
    Scenario,
    Suite,
    Test,
    TestOptions,
)

PAGE = (DOCS / "reference" / "suite.md").read_text()


def table_with(first: str) -> list[list[str]]:
    """The only table with this first cell."""
    (found,) = [table for table in tables(PAGE) if table[0][0] == f"`{first}`"]
    return found


@pytest.mark.parametrize(
    ("model", "first"),
    [
        (Suite, "providers"),
        (ProviderEntry, "id"),
        (Test, "description"),
        (TestOptions, "runSerially"),
        (Scenario, "config"),
        (Assertion, "type"),
        (EvaluateOptions, "maxConcurrency"),
        (LaneSettings, "key"),
        (LimitsSettings, "backend"),
        (BatchSettings, "size"),
        (QuestionSettings, "questionsFile"),
        (QuestionBudget, "maxTokens"),
        (Tool, "name"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_table_equals_its_model(model: type, first: str) -> None:
    """It has every key with type, range and default, in the order of the model."""
    assert columns(table_with(first), 4) == list(documented(model))


def test_every_refused_key_is_listed() -> None:
    """Places are in the order of the module, keys in alphabetical order."""
    (listed,) = [table for table in tables(PAGE) if table[-1][0] == "lanes"]
    refused = {
        place.removeprefix("NOT_YET_IN_").lower(): sorted(getattr(keys, place))
        for place in vars(keys)
        if place.startswith("NOT_YET_IN_")
    }
    assert {place: re.findall(r"`(\w+)`", names) for place, names in listed} == refused


def test_the_suites_of_the_page_load(tmp_path: Path) -> None:
    """The files that the page shows exist next to them."""
    lay_out(DOCS / "reference" / "suite.md", tmp_path)
    environ = {"REDIS_URL": "redis://localhost"}
    shared = load_suite(tmp_path / "shared.yaml", environ=environ)
    assert shared.limits is not None
    assert shared.limits.url == "redis://localhost"
    (task,) = load_suite(tmp_path / "colours.yaml").tasks
    assert [test.description for test in task.suite.tests] == ["sky"]


def test_the_suffixes_of_keys_are_listed() -> None:
    """Each has its unit."""
    (listed,) = [table for table in tables(PAGE) if table[0][0].startswith("`:rpm`")]
    assert {end: unit for ends, (unit,) in _words(listed) for end in ends} == {
        end: unit_of(end) for ends, _ in _words(listed) for end in ends
    }


def test_faults_of_replies_are_listed() -> None:
    """The page has every kind of fault."""
    (listed,) = [table for table in tables(PAGE) if table[-1][0] == "anything else"]
    assert {reading.strip("`") for _, reading in listed[:-1]} == set(get_args(ParseFaultKind))


def _words(listed: list[list[str]]) -> list[list[list[str]]]:
    return [[re.findall(r"`([^`]+)`", cell) for cell in line] for line in listed]
