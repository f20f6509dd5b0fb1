"""Workflow commands of GitHub Actions: lines of a log that make the runner do something. Pure."""

import re
from collections.abc import Mapping

_IN_TEXT = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_IN_PROPERTY = {**_IN_TEXT, ":": "%3A", ",": "%2C"}


def workflow_command(
    name: str, text: str = "", properties: Mapping[str, str | None] | None = None
) -> str:
    r"""A command on one line, whatever stands in it.

    Args:
        name: Such as `error` or `group`.
        text: What it says.
        properties: What it says it of; those that are None are left out.

    Example:
        >>> workflow_command("error", "100 %\nx", {"file": "a,b.yaml", "line": None})
        '::error file=a%2Cb.yaml::100 %25%0Ax'
    """
    given = (properties or {}).items()
    said = [f"{key}={_escaped(fact, _IN_PROPERTY)}" for key, fact in given if fact is not None]
    head = f"{name} {','.join(said)}" if said else name
    # What is a command of the old kind stands for one wherever it stands.
    return f"::{head}::{_escaped(text, _IN_TEXT)}".replace("##[", "##\\[")


def without_commands(text: str) -> str:
    r"""Text of others in which no command is left: a backslash stands in what would be one.

    The runner takes a line for a command if it begins with `::`, blanks aside, or has `##[` in it.

    Example:
        >>> without_commands("a::b\n  ::error::x\n##[group]")
        'a::b\n  \\::error::x\n##\\[group]'
    """
    return _AT_FIRST.sub(r"\1\2\\::", text).replace("##[", "##\\[")


_AT_FIRST = re.compile(r"(^|[\r\n])([^\S\r\n]*)::")


def _escaped(text: str, escapes: Mapping[str, str]) -> str:
    return "".join(escapes.get(char, char) for char in text)
