"""The external services of judges: models, code, servers.

Only protocols. The tasks that run rows implement them, with lanes, workers and time limits; judges are
independent of that, and so can be tested without Trio and without a network.
"""

import functools
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol, TypeVar

import attrs

from trioeval.text import json_text

# The default prompts of judges: data, in files beside this module.
#
# Each has the judge's instructions, and the material. Everything that others wrote is fenced by lines with a
# mark that they cannot know; see `names_of`.


@functools.cache
def own_prompt(name: str) -> str:
    """Return the template of a prompt: a list of messages as JSON."""
    import tomllib

    file = files("trioeval.grading").joinpath("prompts", f"{name}.toml")
    found = tomllib.loads(file.read_text("utf-8"))
    return json_text(
        [{"role": role, "content": found[role].strip()} for role in ("system", "user")]
    )


T = TypeVar("T")

CUT_OFF = "it was cut off (finish reason length): raise max_tokens"
"""The note on a reply that was truncated."""


@attrs.frozen
class JudgeReply:
    """The reply of a judge's model."""

    text: str
    """As text; not blank when it was received."""
    output: Any
    """As the provider returned it: text, or parsed JSON."""
    is_cut_off: bool = False
    """True if it ended at its length limit."""


_THOUGHTS = re.compile(r"\s*+<think>.*?(?:</think>\s*+|\Z)", re.DOTALL)


def without_thoughts(answer: JudgeReply) -> JudgeReply:
    """Return an answer without the thoughts of a reasoning model, which are only a draft.

    Example:
        >>> reply = '<think>{"pass": false}?</think> {"pass": true}'
        >>> without_thoughts(JudgeReply(reply, reply)).text
        '{"pass": true}'
    """
    thoughts = _THOUGHTS.match(answer.text)
    if thoughts is None or not isinstance(answer.output, str):
        return answer
    text = answer.text[thoughts.end() :]
    return attrs.evolve(answer, text=text, output=text)


@attrs.frozen
class Flag:
    """One category that a moderation reported."""

    category: str
    description: str = ""
    confidence: float | None = None


class Grader(Protocol):
    """The models that judge one assertion of one row."""

    def render(self, own: str, names: Mapping[str, Any], *, part: int | str | None = None) -> str:
        """Return the prompt of a judge: the user's, or else the type's own.

        Args:
            own: The type's own prompt, a template.
            names: Its variables, besides those of the test.
            part: For types with several questions: selects one of the user's prompts, by position in a list
                or by key of an object.

        Raises:
            GradingError: It cannot be rendered.
        """
        ...

    async def ask(
        self, prompt: str, *, schema: Mapping[str, Any] | None = None, again: bool = False
    ) -> JudgeReply:
        """Return the reply of the text model. A checkpoint.

        Args:
            prompt: The rendered prompt; a list of messages as JSON.
            schema: JSON schema of the reply, sent to providers that support it.
            again: True if an earlier reply was unusable: no recorded reply is used then.

        Raises:
            GradingError: The model failed, refused, or replied nothing.
        """
        ...

    async def embed(self, text: str) -> Sequence[float]:
        """Return the vector of a text; equal texts of a row are one call. A checkpoint.

        Raises:
            GradingError: The call failed, or returned no vector.
        """
        ...

    async def classify(self, text: str) -> Mapping[str, float]:
        """Return the score of each label. A checkpoint.

        Raises:
            GradingError: The call failed, or returned no scores.
        """
        ...

    async def moderate(self, prompt: str, text: str) -> Sequence[Flag]:
        """Return the categories of a model's reply to a prompt. A checkpoint.

        Raises:
            GradingError: The call failed.
        """
        ...


class ScriptRunner(Protocol):
    """The user's code, which runs in other processes with limits, and gets the output and the context.

    Every method is a checkpoint. It raises `ScriptError` if the code fails, which is a failure of the test,
    and `GradingError` if the code is aborted because it takes too long.
    """

    async def python(self, code: str, output: Any) -> Any:
        """Return the value of an expression, or of a function body with `return`."""
        ...

    async def javascript(self, code: str, output: Any) -> Any:
        """Return the value of an expression, or of a function body with `return`."""
        ...

    async def ruby(self, code: str, output: Any) -> Any:
        """Return the value of an expression, or of a function body with `return`."""
        ...

    async def file(
        self,
        file: Path,
        function: str | None,
        output: Any,
        context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the result of a function in a file, whose suffix determines the language.

        Args:
            file: Absolute path.
            function: Its name; None for the default name of such files.
            output: The output.
            context: Additional entries of the context.
        """
        ...


@attrs.frozen(kw_only=True)
class CommandEnd:
    """The end of a command."""

    code: int | None
    """Its exit code, or the negative signal that ended it; None if it took too long, or was not found."""
    how: str
    """The same as text, such as "ended with exit code 1"."""
    output: str = ""
    """The end of its output, without secrets."""


MAX_PROCESSES = 256
"""Most processes at once of an agent, and of programs that it wrote, unless the suite says otherwise."""


class Commands(Protocol):
    """Runs commands in workspaces."""

    async def __call__(
        self, command: Sequence[str], *, folder: Path, environ: Mapping[str, str], limit: float
    ) -> CommandEnd:
        """Run a command, with everything that it starts, to its end. A checkpoint.

        Args:
            command: The program and its arguments; no shell is involved.
            folder: Its working directory; absolute.
            environ: Its environment, in addition to that of the suite's code.
            limit: Seconds that it may take, > 0.

        Raises:
            GradingError: It cannot be started, for a reason independent of the folder.
        """
        ...


@attrs.frozen(kw_only=True)
class ExternalServices:
    """The external services for the judge of one assertion of one row."""

    grader: Grader
    code: ScriptRunner
    post: Callable[[str, Any], Awaitable[Any]]
    """Sends JSON to a URL and returns the JSON of the response. Raises `GradingError`."""
    run: Commands
    """Runs a command of an assertion."""
    together: Callable[[Sequence[Callable[[], Awaitable[Any]]]], Awaitable[list[Any]]]
    """Runs several at once; returns their results in order. Raises the first failure in that order."""
    context: Any = None
    """The result of the assertion's `contextTransform`; None without one."""
    lenient: bool = False
    """True if judges' replies are read as promptfoo reads them, and not strictly."""
    factuality: Mapping[str, float] = attrs.field(factory=dict)
    """The test's own scores of the categories of `factuality`."""
