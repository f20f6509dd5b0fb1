"""Judges of retrieved contexts: their recall, their relevance, and the faithfulness of answers to them.

Definitions: RAGAS, arXiv 2309.15217.
"""

import functools
import re
from typing import Any, TypeAlias

import attrs

from trioeval.errors import GradingError
from trioeval.grading.judges.shapes import (
    EPSILON,
    NOT_LOOKED_AT,
    prompt_of,
    query_of,
    text_kind,
    text_output,
)
from trioeval.grading.kind import Finding, Kinds, is_anything
from trioeval.grading.model import Assertion
from trioeval.grading.services import ExternalServices, JudgeReply, own_prompt
from trioeval.grading.strict_reading import UnusableReplyError, ask, names_of, reading_metadata
from trioeval.grading.subject import Subject
from trioeval.text import number_text, quote, score_text

THRESHOLD = 0.5

Context: TypeAlias = str | list[str]
"""A text, or the retrieved chunks."""

_NOT_ATTRIBUTED = "[not attributed]"
_ATTRIBUTED = "[attributed]"
_INSUFFICIENT = "insufficient information"

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_NUMBERED = re.compile(r"\s*(?:\d+[.)]|[-*•])\s*")
_ONLY_NUMBER = re.compile(r"\d+[.)]")


def context_of(
    subject: Subject,
    assertion: Assertion,
    outside: ExternalServices,
    *,
    otherwise: str | None = None,
) -> Context:
    """Return the context: the result of `contextTransform`, or else the variable.

    Args:
        subject: Has the variable `context`.
        assertion: May have a `contextTransform`.
        outside: Has the result of `contextTransform`.
        otherwise: The context if there is neither.

    Raises:
        GradingError: The context is missing or not text.
    """
    if assertion.context_transform is not None:
        context, source = outside.context, "the result of contextTransform"
    else:
        context, source = subject.vars.get("context") or otherwise, "the variable context"
    if context is None:
        msg = "the context is missing: give the test a variable context, or the assertion a contextTransform"
        raise GradingError(msg)
    several = isinstance(context, list | tuple)
    parts = list(context) if several else [context]
    if not parts or not all(isinstance(part, str) and part for part in parts):
        msg = f"{source} must be text that is not empty, or a list of such texts, got {quote(context)}"
        raise GradingError(msg)
    return parts if several else parts[0]


def joined(context: Context) -> str:
    """Return a context as prompts show it, with a blank line between chunks."""
    return context if isinstance(context, str) else "\n\n".join(context)


def lines_of(text: str) -> list[str]:
    """Return the lines of a text that are not blank."""
    return [line for line in text.split("\n") if line.strip()]


def units_of(text: str) -> list[str]:
    r"""Return the lines of a text if there are several, or else its sentences.

    Example:
        >>> units_of("One. Two! 3. Three?"), units_of("One. Two.\nThree.")
        (['One.', 'Two!', 'Three?'], ['One. Two.', 'Three.'])
    """
    lines = lines_of(text)
    parts = [part.strip() for part in (lines if len(lines) > 1 else _SENTENCE_END.split(text))]
    return [part for part in parts if part and not _ONLY_NUMBER.fullmatch(part)]


@attrs.frozen
class Recalled:
    """The sentences of an answer, and whether a context supports them."""

    lines: tuple[tuple[str, bool], ...]
    """Each line of the judge, and whether it is attributed."""

    @property
    def score(self) -> float:
        """The share of attributed lines."""
        return sum(attributed for _, attributed in self.lines) / len(self.lines)


def read_attributions(answer: JudgeReply) -> Recalled:
    r"""Return the marked lines of a reply; lines without a mark are ignored.

    Raises:
        UnusableReplyError: No line is marked.

    Example:
        >>> reply = "Here:\n1. It is blue. [Attributed]\n2. It flies. [Not Attributed]"
        >>> read_attributions(JudgeReply(reply, reply)).score
        0.5
    """
    found = tuple(
        (line.strip(), _NOT_ATTRIBUTED not in line.lower())
        for line in lines_of(answer.text)
        if _ATTRIBUTED in line.lower() or _NOT_ATTRIBUTED in line.lower()
    )
    if not found:
        msg = "no line of it is marked [Attributed] or [Not Attributed]"
        raise UnusableReplyError(msg)
    return Recalled(found)


@attrs.frozen
class Needed:
    """The units of a context that are needed to answer a question."""

    quoted: tuple[str, ...]
    units: int

    @property
    def score(self) -> float:
        """The share of needed units."""
        return min(len(self.quoted), self.units) / self.units


def read_quotes(answer: JudgeReply, context: Context) -> Needed:
    """Return what a reply quotes from a context.

    Raises:
        UnusableReplyError: It quotes nothing, and does not say that nothing helps either.

    Example:
        >>> reply = "The sea is salty."
        >>> read_quotes(JudgeReply(reply, reply), "The sea is salty. Cats purr.").score
        0.5
    """
    if isinstance(context, str):
        units = len(units_of(context))
        in_lines = len(lines_of(context)) > 1
    else:
        units, in_lines = sum(bool(chunk.strip()) for chunk in context), True
    if not units:
        msg = "the context is blank"
        raise GradingError(msg)
    parts = (lines_of if in_lines else units_of)(answer.text)
    context_text = _plain(joined(context))
    quoted = {part: None for part in map(_bare, parts) if part and _plain(part) in context_text}
    others = " ".join(part for part in map(_bare, parts) if part not in quoted)
    if _INSUFFICIENT in others.lower():
        return Needed((), units)
    if not quoted:
        msg = "it quotes nothing from the context"
        raise UnusableReplyError(msg)
    return Needed(tuple(quoted), units)


def _bare(line: str) -> str:
    """Return a line without its leading number or list mark, and without surrounding quotation marks."""
    bare = _NUMBERED.sub("", line, count=1) if _NUMBERED.match(line) else line
    bare = bare.strip()
    return bare[1:-1].strip() if bare[:1] + bare[-1:] in ('""', "''", "“”") and bare[1:] else bare


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


async def _recall(
    subject: Subject, value: Any, assertion: Assertion, outside: ExternalServices
) -> Finding:
    context = context_of(subject, assertion, outside, otherwise=prompt_of(subject))
    prompt = outside.grader.render(
        own_prompt("context_recall"), names_of(context=joined(context), groundTruth=value)
    )
    read = await ask(
        outside,
        prompt,
        read_attributions,
        expected="one line a sentence, each of which ends with [Attributed] or [Not Attributed]",
    )
    lines = read.value.lines
    metadata = {
        **reading_metadata(read),
        "context": context,
        "sentenceAttributions": [
            {"sentence": line, "attributed": attributed} for line, attributed in lines
        ],
    }
    return _finding("recall", read.value.score, assertion, metadata)


async def _relevance(
    subject: Subject, _value: Any, assertion: Assertion, outside: ExternalServices
) -> Finding:
    query, context = query_of(subject), context_of(subject, assertion, outside)
    prompt = outside.grader.render(
        own_prompt("context_relevance"), names_of(context=joined(context), query=query)
    )
    read = await ask(
        outside,
        prompt,
        functools.partial(read_quotes, context=context),
        expected="sentences copied from the context, or Insufficient Information,",
    )
    metadata = {
        **reading_metadata(read),
        "context": context,
        "extractedSentences": list(read.value.quoted),
        "totalContextUnits": read.value.units,
    }
    return _finding("relevance", read.value.score, assertion, metadata)


def _finding(measure: str, score: float, assertion: Assertion, metadata: dict[str, Any]) -> Finding:
    least = THRESHOLD if assertion.threshold is None else assertion.threshold
    shown = score_text(score, least)
    reason = f"the {measure} of the context is {shown}, the threshold {number_text(least)}"
    return Finding(score >= least - EPSILON, reason, score=score, metadata=metadata)


# Which of the statements of an answer its context supports.
#
# A judge splits the answer into statements, and then says of each whether it is supported; a statement that
# it omits is not supported. Definition: RAGAS, arXiv 2309.15217.


_FINAL = "final verdict for each statement in order:"
_VERDICT = re.compile(r"verdict:\s*(yes|no)\b")
_WORDS = re.compile(r"\b(?:yes|no)\b")
_SHOWN = 40  # characters


def read_statements(answer: JudgeReply) -> list[str]:
    """Return the statements in a reply, one per line."""
    return [line.strip() for line in lines_of(answer.text)]


def read_verdicts(answer: JudgeReply, statements: int, *, lenient: bool = False) -> list[bool]:
    """Return whether each statement is supported, from the last line of a reply or from single verdicts.

    Args:
        answer: The reply.
        statements: The number of statements; there may be fewer verdicts.
        lenient: True if there may also be more verdicts, and each part of the last line is one that contains
            a yes or a no.

    Raises:
        UnusableReplyError: Verdicts are missing or too many, or one is neither yes nor no.

    Example:
        >>> reply = "Final verdict for each statement in order: Yes. No. Yes."
        >>> read_verdicts(JudgeReply(reply, reply), 3)
        [True, False, True]
    """
    if lenient:
        return _read_leniently(answer.text.lower())
    text = answer.text.lower()
    before, final, behind = text.partition(_FINAL)
    if final:
        parts = [part for part in behind.replace("\n", ".").split(".") if part.strip(" *_`")]
        words = [_WORDS.findall(part) for part in parts]
        for part, answers in zip(parts, words, strict=True):
            if len(answers) != 1:
                msg = f"a verdict must be Yes or No, got {quote(part.strip(), _SHOWN)}"
                raise UnusableReplyError(msg)
        found = [answers == ["yes"] for answers in words]
    else:
        found = [answers == "yes" for answers in _VERDICT.findall(before)]
    if not found:
        msg = "it has no verdicts"
        raise UnusableReplyError(msg)
    if len(found) > statements:
        msg = f"it has {len(found)} verdicts for {statements} statements"
        raise UnusableReplyError(msg)
    return found


def _read_leniently(text: str) -> list[bool]:
    _, final, behind = text.partition(_FINAL)
    if final:
        parts = [part for part in behind.split(".") if part.strip()]
        found = ["yes" in part for part in parts] if all(map(_WORDS.search, parts)) else []
    else:
        found = [True] * text.count("verdict: yes") + [False] * text.count("verdict: no")
    if not found:
        msg = "it has no verdicts"
        raise UnusableReplyError(msg)
    return found


def _supported(verdicts: list[bool], statements: int) -> int:
    """Return the number of supported statements: all without a no, and without a missing verdict."""
    without = max(0, statements - len(verdicts))
    return max(0, statements - without - verdicts.count(False))


async def _judge(
    subject: Subject, _value: Any, assertion: Assertion, outside: ExternalServices
) -> Finding:
    query, output = query_of(subject), text_output(subject)
    context = context_of(subject, assertion, outside)
    grader = outside.grader
    statements = await ask(
        outside,
        grader.render(
            own_prompt("faithfulness_statements"),
            names_of(question=query, answer=output),
            part=0,
        ),
        read_statements,
        expected="one statement a line",
    )
    total = len(statements.value)
    names = names_of(context=joined(context), statements=statements.value)
    verdicts = await ask(
        outside,
        grader.render(own_prompt("faithfulness_verdicts"), names, part=1),
        functools.partial(read_verdicts, statements=total, lenient=outside.lenient),
        expected='an explanation a statement, and a last line that begins with "Final verdict for each'
        ' statement in order:"',
    )
    supported = _supported(verdicts.value, total)
    score = supported / total
    least = THRESHOLD if assertion.threshold is None else assertion.threshold
    reason = (
        f"the context supports {supported} of {total} statements;"
        f" the threshold is {number_text(least)}"
    )
    metadata = {
        **reading_metadata(statements, verdicts),
        "context": context,
        "statements": statements.value,
    }
    return Finding(score >= least - EPSILON, reason, score=score, metadata=metadata)


KINDS: Kinds = {
    "context-recall": text_kind(_recall, right="the right answer: text that is not empty"),
    "context-relevance": text_kind(_relevance, right=NOT_LOOKED_AT, accepts=is_anything, bare=True),
    "context-faithfulness": text_kind(_judge, right=NOT_LOOKED_AT, accepts=is_anything, bare=True),
}
"""By name."""
