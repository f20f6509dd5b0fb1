"""The keys of promptfoo configurations that are known here and have no meaning, or not yet.

Keys that mean something and are not supported yet are refused: ignoring them would lie about the results.
"""

from collections.abc import Collection

WITHOUT_MEANING: Collection[str] = (
    "$schema",
    "metadata",
    "redteam",
    "sharing",
    "tags",
    "tracing",
    "writeLatestResults",
)
"""At the top; taken and not looked at. So is every key there that begins with `x-`."""

NOT_YET_AT_TOP: Collection[str] = (
    "assertionTemplates",
    "commandLineOptions",
    "derivedMetrics",
    "env",
    "extensions",
    "nunjucksFilters",
    "outputPath",
    "registerScope",
    "scenarios",
    "tasks",
)

NOT_YET_IN_OPTIONS: Collection[str] = (
    "cache",
    "filterRange",
    "grading",
    "registerScope",
    "showProgressBar",
)

NOT_YET_IN_LANES: Collection[str] = ("exclusiveGroup", "itpm", "otpm")

NOT_YET_IN_PROVIDERS: Collection[str] = ("env", "transform")

NOT_YET_IN_PROMPTS: Collection[str] = ("config",)

NOT_YET_IN_ASSERTIONS: Collection[str] = (
    "assert",
    "config",
    "contextTransform",
    "provider",
    "rubricPrompt",
    "transform",
)

NOT_YET_IN_TESTS: Collection[str] = (
    "assertScoringFunction",
    "prompts",
    "provider",
    "providerOutput",
    "providers",
)

NOT_YET_IN_TEST_OPTIONS: Collection[str] = (
    "disableConversationVar",
    "disableDefaultAsserts",
    "disableVarExpansion",
    "factuality",
    "postprocess",
    "prefix",
    "provider",
    "rubricPrompt",
    "storeOutputAs",
    "suffix",
    "transform",
    "transformVars",
)
