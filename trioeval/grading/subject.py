"""The subject of grading: an output, and the data of its reply."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from trioeval.errors import GradingError
from trioeval.text import output_text


@attrs.frozen
class FunctionCall:
    """A call of a function by a model."""

    name: str
    arguments: Any
    """JSON data, or its text."""


@attrs.frozen(kw_only=True)
class Subject:
    """An output, and the data of its reply."""

    output: Any
    """Text or JSON data, after all transforms."""
    text: str
    """The output as text; see `output_text`."""
    vars: Mapping[str, Any] = attrs.field(factory=dict)
    """The variables of the test, rendered."""
    prompt: str = ""
    """The prompt as it was sent."""
    latency_ms: float | None = None
    """The latency of the provider's call; None if it was not measured."""
    cost: float | None = None
    """US dollars; None for an unknown price."""
    log_probs: tuple[float, ...] | None = None
    """Natural logarithms of the probabilities of the reply's tokens."""
    finish_reason: str | None = None
    """`stop`, `length`, `tool_calls`, `content_filter`, or the provider's word in lower case."""
    is_refusal: bool = False
    """True if the provider itself reports a refusal."""
    flagged: bool | None = None
    """The verdict of the provider's filters; None without one."""
    calls: Sequence[FunctionCall] = ()
    """The tool calls of the reply, in one form for all providers; empty if a transform has replaced them."""
    tools: Sequence[Any] = ()
    """The tools that the provider's config offers."""
    functions: Sequence[Any] = ()
    """The functions that the provider's config offers."""
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    """The metadata of the reply."""
    workspace: Path | None = None
    """The absolute path of an agent's workspace; None for other outputs."""

    @classmethod
    def of(cls, output: Any, **known: Any) -> "Subject":
        """Make a subject of an output and of further fields.

        Raises:
            GradingError: The output is not JSON data.

        Example:
            >>> Subject.of({"a": 1}, cost=0.5).text
            '{"a":1}'
        """
        return cls(output=output, text=text_of(output), **known)

    def with_output(self, output: Any) -> "Subject":
        """Return the subject with another output.

        Raises:
            GradingError: The output is not JSON data.
        """
        if output is self.output:
            return self
        return attrs.evolve(self, output=output, text=text_of(output), calls=())


def text_of(output: Any) -> str:
    """Return an output as text.

    Raises:
        GradingError: It is not JSON data.
    """
    try:
        return output_text(output)
    except (TypeError, ValueError) as error:
        msg = f"the output cannot be graded: {error}"
        raise GradingError(msg) from error
    except RecursionError as error:
        msg = "the output cannot be graded: it is nested too deeply"
        raise GradingError(msg) from error
