"""The built-in assertion types, by name.

Users add types by passing another mapping: a global registry does not exist.
"""

import importlib
from collections.abc import Iterator, Mapping

from trioeval.grading.kind import Kind, Kinds

_MODULES = {
    "kinds.commands": "command webhook",
    "kinds.compare": "max-score",
    "kinds.files": "agent-done file-contains file-exists file-json",
    "kinds.html": "contains-html is-html",
    "kinds.json": "contains-json is-json",
    "kinds.measures": "cost finish-reason guardrails latency perplexity perplexity-score",
    "kinds.scripts": "javascript python ruby",
    "kinds.similarity": "bleu gleu meteor rouge-n",
    "kinds.sql": "contains-sql is-sql",
    "kinds.text": (
        "contains contains-all contains-any equals icontains icontains-all icontains-any is-refusal"
        " levenshtein regex starts-with word-count"
    ),
    "kinds.tools": (
        "is-valid-function-call is-valid-openai-function-call is-valid-openai-tools-call skill-used"
        " tool-call-f1"
    ),
    "kinds.traces": "trace-error-spans trace-span-count trace-span-duration",
    "kinds.trajectory": (
        "trajectory:step-count trajectory:tool-args-match trajectory:tool-sequence"
        " trajectory:tool-used"
    ),
    "kinds.xml": "contains-xml is-xml",
    "judges.conversation": "conversation-relevance trajectory:goal-success",
    "judges.facts": "answer-relevance factuality model-graded-closedqa model-graded-factuality",
    "judges.moderate": "classifier moderation",
    "judges.rag": "context-faithfulness context-recall context-relevance",
    "judges.rubric": "agent-rubric g-eval llm-rubric search-rubric",
    "judges.shapes": "select-best",
    "judges.similar": "similar similar:cosine similar:dot similar:euclidean",
}
"""The names that `KINDS` of each module has; the tests compare them."""


class _BuiltInKinds(Mapping[str, Kind]):
    """The built-in types; the module of each is imported on its first use."""

    def __init__(self) -> None:
        self._modules = {name: home for home, names in _MODULES.items() for name in names.split()}
        self._found: dict[str, Kind] = {}

    def __getitem__(self, name: str) -> Kind:
        if name not in self._found:
            module = importlib.import_module(f"trioeval.grading.{self._modules[name]}")
            self._found.update(module.KINDS)
        return self._found[name]

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __repr__(self) -> str:
        return "KINDS"  # in signatures

    def __len__(self) -> int:
        return len(self._modules)


KINDS: Kinds = _BuiltInKinds()
"""The base types."""

COMMAND, WEBHOOK = "command", "webhook"
"""The names of the types that run a command, and that call a server whose URL may contain a credential."""

JUDGED_BY_MODELS: frozenset[str] = frozenset(
    name for home, names in _MODULES.items() if home.startswith("judges.") for name in names.split()
)
"""The names of the types that ask a model."""

ASSERTION_TYPES: frozenset[str] = frozenset(KINDS)
"""The names of the base types; most also exist with the prefix `not-`."""


COMPARISONS = frozenset({"max-score", "select-best"})
"""Types that compare the outputs of one test; the tests that have them are known before a run."""


def split_type(name: str) -> tuple[str, bool]:
    """Return the base type, and True if it is inverted.

    Example:
        >>> split_type("not-contains"), split_type("contains")
        (('contains', True), ('contains', False))
    """
    base = name.removeprefix("not-")
    return base, base != name
