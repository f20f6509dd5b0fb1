"""The page about agents agrees with the models."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from model_tables import columns, documented, tables
from snippets import DOCS
from workbench import lay_out

from trioeval.agent.case_keys import AGENT_TYPES
from trioeval.agent.model import AgentSettings, Case
from trioeval.loading.load import load_suite
from trioeval.suite.dependencies import FailedDependency
from trioeval.suite.model import RunLimits

PAGE = DOCS / "reference" / "agents.md"
_CASE = {
    "name": ("text", "", "made"),
    "depends_on": ("list or text", "", "empty"),
    "when_failed": (", ".join(f"`{one}`" for one in get_args(FailedDependency)), "", "`skip`"),
}


@pytest.mark.parametrize(
    ("model", "written"),
    [(AgentSettings, {}), (RunLimits, {}), (Case, _CASE)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_table_equals_its_model(model: type, written: Mapping[str, Any]) -> None:
    """It has every key with type, range and default, in the order of the model."""
    wanted = list(documented(model, written))
    assert wanted in [columns(table, 4) for table in tables(PAGE.read_text())]


def test_types_that_need_an_agent_are_listed() -> None:
    """The page names each of them."""
    (line,) = [line for line in PAGE.read_text().splitlines() if line.startswith("`agent-done`, ")]
    assert set(line.split("`")) >= AGENT_TYPES


def test_the_suite_of_the_page_loads(tmp_path: Path) -> None:
    """It is used unchanged."""
    lay_out(PAGE, tmp_path)
    (task,) = load_suite(tmp_path / "countdown.yaml").tasks
    assert task.suite.settings == AgentSettings(restart_delay=0)
    assert task.suite.run_limits == RunLimits(max_concurrent_runs=2)
    assert [test.extra for test in task.suite.tests] == [
        Case(name="two"),
        Case(name="four", depends_on=("two",)),
    ]
