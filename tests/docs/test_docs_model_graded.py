"""The page about models as judges lists the built-in ones and the variables of prompts."""

import re
import tomllib
from importlib.resources import files

from snippets import DOCS, table

from trioeval.evaluation.graders import BUILT_IN, SEARCHING, BuiltInJudge
from trioeval.evaluation.graders import SEARCHING_KINDS as SEARCHING_TYPES
from trioeval.grading import KINDS

PAGE = (DOCS / "howto" / "model-graded.md").read_text()

PROMPTS = {
    "answer_relevance": ("answer-relevance", ""),
    "agent_rubric": ("agent-rubric", ""),
    "closed_qa": ("model-graded-closedqa", ""),
    "context_recall": ("context-recall", ""),
    "context_relevance": ("context-relevance", ""),
    "conversation_relevance": ("conversation-relevance", ""),
    "factuality": ("factuality", ""),
    "faithfulness_statements": ("context-faithfulness", "first"),
    "faithfulness_verdicts": ("context-faithfulness", "second"),
    "g_eval_steps": ("g-eval", "`steps`"),
    "g_eval": ("g-eval", "`evaluate`"),
    "goal_success": ("trajectory:goal-success", ""),
    "llm_rubric": ("llm-rubric", ""),
    "search_rubric": ("search-rubric", ""),
    "select_best": ("select-best", ""),
}
"""The prompt of the page that each file contains."""


def _names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def _offers() -> list[tuple[str, BuiltInJudge]]:
    by_role = [(role, one) for role, offers in BUILT_IN.items() for one in offers]
    (searching,) = SEARCHING_TYPES
    return [*by_role, *((searching, one) for one in SEARCHING)]


def test_built_in_judges_are_those_of_the_code() -> None:
    """They are listed by key and role."""
    roles = ("text", "embedding", "moderation", "search-rubric")
    heading = f"\n| key | {' | '.join(f'`{role}`' for role in roles)} |\n"
    assert heading in PAGE
    documented = [
        (role, tuple(_names(keys)), *_names(cell))
        for keys, *cells in _rows_below(heading)
        for role, cell in zip(roles, cells, strict=True)
        if cell
    ]
    assert sorted(documented) == sorted((role, one.keys, one.id) for role, one in _offers())


def test_variables_of_prompts_are_documented() -> None:
    """A user's prompt may use the variables of the built-in one; the page lists exactly these."""
    documented: dict[tuple[str, str], set[str]] = {}
    types: list[str] = []
    for cell, part, names, _reply in table(PAGE, "type"):
        types = _names(cell) or types
        documented |= {(name, part): set(_names(names)) for name in types}
    folder = files("trioeval.grading") / "prompts"
    found = {}
    for file in folder.iterdir():
        text = "\n".join(tomllib.loads(file.read_text("utf-8")).values())
        loops = dict(re.findall(r"{% for (\w+) in (\w+) %}", text))
        named = set(re.findall(r"{{ (\w+) }}", text)) - loops.keys() | set(loops.values())
        found[PROMPTS[file.name.removesuffix(".toml")]] = {
            "messages" if name == "__transcript" else name for name in named - {"__mark"}
        }
    assert documented == found


def test_every_type_with_a_text_model_is_listed() -> None:
    """Second names of types are left out."""
    with_model = {name for name, kind in KINDS.items() if "text" in kind.roles}
    listed = {name for cell, *_ in table(PAGE, "type") for name in _names(cell)}
    assert listed == with_model - {"model-graded-factuality"}


def _rows_below(heading: str) -> list[list[str]]:
    lines = PAGE.partition(heading)[2].splitlines()[1:]
    rows = lines[: next(number for number, line in enumerate(lines) if not line)]
    return [[cell.strip() for cell in row[1:-1].split("|")] for row in rows]
