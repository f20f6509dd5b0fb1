"""The suite file: its data, the tests and prompts that it names, and the rows that they expand to."""

from typing import TYPE_CHECKING

from trioeval.lazy import lazy_names

if TYPE_CHECKING:
    from trioeval.suite.model import EvaluateOptions as EvaluateOptions
    from trioeval.suite.model import LaneSettings as LaneSettings
    from trioeval.suite.model import Prompt as Prompt
    from trioeval.suite.model import ProviderEntry as ProviderEntry
    from trioeval.suite.model import Test as Test
    from trioeval.suite.model import TestOptions as TestOptions
else:  # type checkers would accept any name
    __getattr__, __dir__, __all__ = lazy_names(
        "trioeval.suite",
        {
            "trioeval.suite.model": "EvaluateOptions LaneSettings Prompt ProviderEntry Test TestOptions",
        },
    )
