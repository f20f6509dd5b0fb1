"""What judges ask that is not in this process: models, code, servers.

Protocols only. Whoever runs rows implements them, with lanes, workers and time limits; judges know nothing
of that, and so need neither Trio nor a network to be tested.
"""

import functools
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol, TypeVar

import attrs

from trioeval.text import json_text

# The prompts with which judges are asked where the user gives none: data, in files beside this module.
#
# Each has what the judge is told about its work, and what it is shown. Everything that others wrote stands
# between lines with a mark that they cannot know; see `names_of`.


@functools.cache
def own_prompt(name: str) -> str:
    """The template of a prompt: a list of messages as JSON."""
    import tomllib  # noqa: PLC0415 - only those who judge with models need it

    file = files("trioeval.grading").joinpath("prompts", f"{name}.toml")
    found = tomllib.loads(file.read_text("utf-8"))
    return json_text(
        [{"role": role, "content": found[role].strip()} for role in ("system", "user")]
    )


T = TypeVar("T")

CUT_OFF = "it was cut off (finish reason length): raise max_tokens"
"""What is told of a reply that became too long."""


@attrs.frozen
class Answer:
    """What a model answered that was asked to judge."""

    text: str
    """As text; never blank as it came."""
    output: Any
    """As the provider gave it: text, or parsed JSON."""
    is_cut_off: bool = False
    """Whether it ended because it became too long."""


_THOUGHTS = re.compile(r"\s*+<think>.*?(?:</think>\s*+|\Z)", re.DOTALL)


def without_thoughts(answer: Answer) -> Answer:
    """An answer without what a reasoning model wrote for itself before it: that is a draft.

    Example:
        >>> reply = '<think>{"pass": false}?</think> {"pass": true}'
        >>> without_thoughts(Answer(reply, reply)).text
        '{"pass": true}'
    """
    thoughts = _THOUGHTS.match(answer.text)
    if thoughts is None or not isinstance(answer.output, str):
        return answer
    said = answer.text[thoughts.end() :]
    return attrs.evolve(answer, text=said, output=said)


@attrs.frozen
class Flag:
    """One category that a moderation found."""

    category: str
    description: str = ""
    confidence: float | None = None


class Grader(Protocol):
    """The models that judge one assertion of one row."""

    def render(self, own: str, names: Mapping[str, Any], *, part: int | str | None = None) -> str:
        """The prompt that a judge is asked with: the user's, or else the type's own.

        Args:
            own: The type's own prompt, a template.
            names: What it may name besides the variables of the test.
            part: For types that ask several questions: which of the user's prompts it is, a place in a list
                or a key of an object.

        Raises:
            GradingError: It cannot be rendered.
        """
        ...

    async def ask(
        self, prompt: str, *, schema: Mapping[str, Any] | None = None, again: bool = False
    ) -> Answer:
        """What the text model says. A checkpoint.

        Args:
            prompt: Rendered; a list of messages is its JSON.
            schema: JSON schema of the wanted reply, which is asked for where the provider can.
            again: Whether it was asked before and the reply cannot be used: no stored reply then.

        Raises:
            GradingError: It failed, refused, or said nothing.
        """
        ...

    async def embed(self, text: str) -> Sequence[float]:
        """The vector of a text; equal texts of a row are one call. A checkpoint.

        Raises:
            GradingError: It failed, or gave no vector.
        """
        ...

    async def classify(self, text: str) -> Mapping[str, float]:
        """The score of each label. A checkpoint.

        Raises:
            GradingError: It failed, or gave no scores.
        """
        ...

    async def moderate(self, prompt: str, text: str) -> Sequence[Flag]:
        """The categories that a model's reply to a prompt falls into. A checkpoint.

        Raises:
            GradingError: It failed.
        """
        ...


class Code(Protocol):
    """Code of the user's, which runs in other processes with limits; each is called with output and context.

    Every method is a checkpoint and raises `ScriptError` where the code fails, which is the test's own
    affair, and `GradingError` where it has to be given up because it takes too long.
    """

    async def python(self, code: str, output: Any) -> Any:
        """What an expression, or the body of a function with `return`, gives."""
        ...

    async def javascript(self, code: str, output: Any) -> Any:
        """Likewise."""
        ...

    async def ruby(self, code: str, output: Any) -> Any:
        """Likewise."""
        ...

    async def file(
        self, file: Path, function: str | None, output: Any, told: Mapping[str, Any] | None = None
    ) -> Any:
        """What a function of a file gives; its name's ending tells the language.

        Args:
            file: Absolute.
            function: Its name; None is the one that such a file is expected to have.
            output: What is judged.
            told: What the context says besides what it always says.
        """
        ...


@attrs.frozen(kw_only=True)
class Ran:
    """What became of a command."""

    code: int | None
    """Its exit code, or minus the signal that ended it; None if it took too long, or is not there."""
    how: str
    """The same in words, such as "ended with exit code 1"."""
    output: str = ""
    """The end of what it wrote, without keys."""


MAX_PROCESSES = 256
"""Processes that what an agent starts, or wrote, may have at once where the suite says nothing."""


class Commands(Protocol):
    """Runs commands in workspaces."""

    async def __call__(
        self, command: Sequence[str], *, folder: Path, environ: Mapping[str, str], limit: float
    ) -> Ran:
        """Run a command to its end, with everything that it starts. A checkpoint.

        Args:
            command: The program and its arguments; no shell is involved.
            folder: Where it runs; absolute.
            environ: What its environment has besides that of the suite's code.
            limit: Seconds that it may take, > 0.

        Raises:
            GradingError: It cannot be started, for a reason that is none of the folder's.
        """
        ...


@attrs.frozen(kw_only=True)
class Outside:
    """What the judge of one assertion of one row may ask."""

    grader: Grader
    code: Code
    post: Callable[[str, Any], Awaitable[Any]]
    """Sends JSON to a URL and gives the JSON that comes back. Raises `GradingError`."""
    run: Commands
    """Runs a command of an assertion."""
    together: Callable[[Sequence[Callable[[], Awaitable[Any]]]], Awaitable[list[Any]]]
    """Runs several at once; their results in order. The first failure in that order is raised."""
    context: Any = None
    """What the assertion's `contextTransform` made of the output; None where there is none."""
    lenient: bool = False
    """Whether replies of judges are read as promptfoo reads them, and not strictly."""
    factuality: Mapping[str, float] = attrs.field(factory=dict)
    """The test's own scores of the categories of `factuality`."""
