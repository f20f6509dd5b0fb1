"""All assertion types that are built in, by name.

A user adds types of their own by giving another mapping: there is no registry that code changes.
"""

from trioeval.grading.kind import Kinds
from trioeval.grading.text_kinds import KINDS as TEXT_KINDS

KINDS: Kinds = {**TEXT_KINDS}
"""Every base type."""

ASSERTION_TYPES: frozenset[str] = frozenset(KINDS)
"""The names of the base types; most can be written with `not-` in front as well."""


def split_type(name: str) -> tuple[str, bool]:
    """The base type, and whether it is inverted.

    Example:
        >>> split_type("not-contains"), split_type("contains")
        (('contains', True), ('contains', False))
    """
    base = name.removeprefix("not-")
    return base, base != name
