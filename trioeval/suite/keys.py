"""The keys of promptfoo configurations that are known here and have no meaning, or not yet.

Keys that mean something and are not supported yet are refused: ignoring them would lie about the results.
"""

from collections.abc import Collection

WITHOUT_MEANING: Collection[str] = (
    "$schema",
    "redteam",
    "sharing",
    "telemetry",
    "tracing",
    "writeLatestResults",
)
"""At the top; taken, not looked at, and told of. So is every key there that begins with `x-`, untold."""

UNTOLD: Collection[str] = ("$schema",)
"""Of those, what is not worth telling."""

DEFINITIONS: Collection[str] = ("$defs", "assertionTemplates", "definitions")
"""At the top; what stands there means something where a `$ref` leads to it, and nothing by itself."""

WITHOUT_MEANING_IN_OPTIONS: Collection[str] = (
    "generateSuggestions",
    "interactiveProviders",
    "isRedteam",
    "silent",
    "suggestionsCount",
)
"""Taken, not looked at, and told of."""

NOT_YET_IN_LANES: Collection[str] = ("exclusiveGroup", "itpm", "otpm")
