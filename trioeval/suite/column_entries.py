"""Tasks of type `columns`: a dataset, built column by column.

Such a task is a suite without prompts and tests. Its providers are those that its columns name.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import cattrs

from trioeval.datasets.types import fits
from trioeval.grading import quote
from trioeval.grading.text import json_text
from trioeval.suite.column_forms import column_hook
from trioeval.suite.column_models import (
    Column,
    ColumnsSettings,
    ErrorWindow,
    Processor,
    SeedColumns,
)
from trioeval.suite.column_names import Reader, related
from trioeval.suite.column_producers import column_types, means, written_columns
from trioeval.suite.column_words import camel_choice, some_text
from trioeval.suite.mistakes import Mistake, MistakenError, PartlyRightError, kind, nearest
from trioeval.suite.models import ProviderEntry, Suite
from trioeval.suite.python_targets import python_target
from trioeval.suite.sources.around import Around, names_file
from trioeval.suite.strict import Hook, camel, object_hook, strict_converter

RENAMED: Mapping[str, str | None] = {"existing": "resume"}
"""Keys of a dataset that are called otherwise than their fields."""
SETTINGS = tuple(
    RENAMED.get(field.name) or camel(field.name) for field in attrs.fields(ColumnsSettings)
)
"""Keys of an entry that only tasks of this type have."""
PROCESSOR_KEYS: Mapping[str, str | None] = {"timeout_s": "timeout"}
STAGES = ("before_batch", "after_batch", "after_generation")
ON_ERROR = ("abort", "drop_group")
EXISTING = ("never", "if_possible", "always")
