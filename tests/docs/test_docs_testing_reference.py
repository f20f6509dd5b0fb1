"""The page about testing lists the contents of `trioeval.testing`."""

import inspect
import re

import attrs
import pytest
from hypothesis import strategies as st
from snippets import DOCS, table

from trioeval import testing
from trioeval.testing import RunScenario, SimulatedServer, metamorphic

PAGE = (DOCS / "reference" / "testing.md").read_text()


def _written(field: "attrs.Attribute[object]") -> str:
    if field.default is attrs.NOTHING:
        return "required"
    if isinstance(field.default, attrs.Factory):  # type: ignore[arg-type]
        return "`{}`"
    return f"`{field.default!r}`"


@pytest.mark.parametrize(("first", "model"), [("field", RunScenario), ("setting", SimulatedServer)])
def test_every_setting_is_listed_with_its_default(
    first: str, model: type[attrs.AttrsInstance]
) -> None:
    """They are in the order of the class."""
    expected = [[f"`{field.name}`", _written(field)] for field in attrs.fields(model)]
    assert [row[:2] for row in table(PAGE, first)] == expected


def test_every_strategy_is_listed() -> None:
    """The page has those that the package exports, and no others."""
    makers = (
        "scenarios",
        "faulty_scenarios",
        "no_lane_scenarios",
        "shared_scenarios",
        "simple_scenarios",
        "lane_specs",
        "learning_lane_specs",
    )
    assert all(callable(getattr(testing, name)) for name in makers)
    assert isinstance(testing.durations, st.SearchStrategy)
    listed = [re.findall(r"\w+", row[0])[0] for row in table(PAGE, "strategy")]
    assert listed == [*makers, "durations"]


def test_every_relation_is_listed() -> None:
    """The checks are in the order of the module."""
    checks = [name for name in vars(metamorphic) if name.startswith("check_")]
    assert [row[0] for row in table(PAGE, "check")] == [f"`{name}`" for name in checks]


def test_every_function_of_the_package_is_documented() -> None:
    """It is on this page, or on the page about testing a scheduler."""
    documented = set(
        re.findall(r"\w+", PAGE + (DOCS / "howto" / "test-your-scheduler.md").read_text())
    )
    functions = {
        name
        for name in dir(testing)
        if not name.startswith("_") and inspect.isfunction(getattr(testing, name))
    }
    assert functions - documented == set()
