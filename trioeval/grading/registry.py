"""The built-in assertion types, by name.

Users add types by passing another mapping: a global registry does not exist.
"""

from trioeval.grading.judges import KINDS as JUDGES
from trioeval.grading.kind import Kinds
from trioeval.grading.kinds.commands import KINDS as COMMAND_KINDS
from trioeval.grading.kinds.compare import KINDS as COMPARE_KINDS
from trioeval.grading.kinds.files import KINDS as FILE_KINDS
from trioeval.grading.kinds.html import KINDS as HTML_KINDS
from trioeval.grading.kinds.json import KINDS as JSON_KINDS
from trioeval.grading.kinds.measures import KINDS as MEASURES
from trioeval.grading.kinds.scripts import KINDS as SCRIPT_KINDS
from trioeval.grading.kinds.similarity import KINDS as SIMILARITY_KINDS
from trioeval.grading.kinds.sql import KINDS as SQL_KINDS
from trioeval.grading.kinds.text import KINDS as TEXT_KINDS
from trioeval.grading.kinds.tools import KINDS as TOOL_KINDS
from trioeval.grading.kinds.traces import KINDS as TRACE_KINDS
from trioeval.grading.kinds.trajectory import KINDS as TRAJECTORY_KINDS
from trioeval.grading.kinds.xml import KINDS as XML_KINDS

KINDS: Kinds = {
    **COMMAND_KINDS,
    **COMPARE_KINDS,
    **FILE_KINDS,
    **JUDGES,
    **MEASURES,
    **SCRIPT_KINDS,
    **SIMILARITY_KINDS,
    **HTML_KINDS,
    **JSON_KINDS,
    **SQL_KINDS,
    **TEXT_KINDS,
    **XML_KINDS,
    **TOOL_KINDS,
    **TRACE_KINDS,
    **TRAJECTORY_KINDS,
}
"""The base types."""

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
