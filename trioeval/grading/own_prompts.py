"""The prompts with which judges are asked where the user gives none: data, in files beside this module.

Each has what the judge is told about its work, and what it is shown. Everything that others wrote stands
between lines with a mark that they cannot know; see `names_of`.
"""

import functools
from importlib.resources import files

from trioeval.grading.text import json_text


@functools.cache
def own_prompt(name: str) -> str:
    """The template of a prompt: a list of messages as JSON."""
    import tomllib  # noqa: PLC0415 - only those who judge with models need it

    file = files("trioeval.grading").joinpath("prompts", f"{name}.toml")
    found = tomllib.loads(file.read_text("utf-8"))
    return json_text(
        [{"role": role, "content": found[role].strip()} for role in ("system", "user")]
    )
