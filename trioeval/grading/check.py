"""What is wrong with an assertion, found before anything is asked of a provider."""

import difflib
import math
from collections.abc import Iterator, Mapping

from trioeval.errors import Problem
from trioeval.grading.kinds import ASSERTION_TYPES, KINDS, regex_fault, split_type
from trioeval.grading.model import HEAVIEST, Assertion
from trioeval.grading.regex import compile_javascript
from trioeval.grading.text import number_text, quote

NOT_YET = frozenset(
    """
    agent-rubric answer-relevance assert-set bleu classifier contains-all contains-any contains-html
    contains-json contains-sql contains-xml context-faithfulness context-recall context-relevance
    conversation-relevance cost factuality finish-reason g-eval gleu guardrails human icontains-all
    icontains-any is-html is-refusal is-sql is-valid-function-call is-valid-openai-function-call
    is-valid-openai-tools-call is-xml javascript latency levenshtein llm-rubric max-score meteor
    model-graded-closedqa model-graded-factuality moderation perplexity perplexity-score pi python
    rouge-n ruby search-rubric select-best similar similar:cosine similar:dot similar:euclidean
    skill-used tool-call-f1 trace-error-spans trace-span-count trace-span-duration
    trajectory:goal-success trajectory:step-count trajectory:tool-args-match
    trajectory:tool-sequence trajectory:tool-used webhook word-count
    """.split()  # noqa: SIM905 - a list would be seventy lines
)
"""Types of promptfoo that are refused for now: ignoring them would let rows pass unseen."""

INSTEAD: Mapping[str, str] = {
    "not-empty": r'write {"type": "regex", "value": "\\S"}',
    "min-length": 'write {"type": "regex", "value": "^[^]{10,}$"} for at least 10 characters',
    "max-length": 'write {"type": "regex", "value": "^[^]{0,10}$"} for at most 10 characters',
    "json-schema-valid": 'use "is-json"',
    "contains-json-property": 'use "is-json" and a "regex" for the property',
}
"""What to write in place of types that are often guessed."""


def check_assertion(assertion: Assertion, *, value_given: bool = True) -> Iterator[Problem]:
    """Everything that is wrong with an assertion, as far as it can be known before a run.

    Args:
        assertion: What to check. A value that is a template is checked again when it is rendered.
        value_given: False where the file has no key `value`; a value of null is given.

    Yields:
        Problems without a file. Their paths are one key of the assertion (`.type`, `.value`, `.weight`,
        `.threshold`), or empty where a key is missing.

    Example:
        >>> for problem in check_assertion(Assertion(type="contians", value="x")):
        ...     print(problem)
        .type: "contians" is not an assertion type
          did you mean "contains"?
    """
    base, _ = split_type(assertion.type)
    if base not in KINDS:
        yield _unknown(assertion.type, base)
    elif not value_given and not KINDS[base].bare:
        yield Problem("", '"value" is missing', f"it must be {KINDS[base].right}")
    else:
        yield from _value_problems(base, assertion.value)
    if not 0 <= assertion.weight <= HEAVIEST:
        most = number_text(HEAVIEST)
        yield Problem(".weight", f"must be from 0 to {most}, got {quote(assertion.weight)}")
    if assertion.threshold is not None and not math.isfinite(assertion.threshold):
        yield Problem(".threshold", f"must be a finite number, got {quote(assertion.threshold)}")


def _unknown(name: str, base: str) -> Problem:
    if name in INSTEAD:
        return Problem(".type", f"{quote(name)} is not an assertion type", INSTEAD[name])
    if base in NOT_YET:
        return Problem(".type", f"{quote(name)} is not supported yet", _known())
    both = [*ASSERTION_TYPES, *(f"not-{known}" for known in ASSERTION_TYPES)]
    close = difflib.get_close_matches(name.lower(), sorted(both), n=1)
    hint = f'did you mean "{close[0]}"?' if close else _known()
    return Problem(".type", f"{quote(name)} is not an assertion type", hint)


def _known() -> str:
    return f"known are {', '.join(sorted(ASSERTION_TYPES))}, each also with not-"


def _value_problems(base: str, value: object) -> Iterator[Problem]:
    if isinstance(value, str) and value.startswith("file://"):
        message = "values from files are not supported yet"
        yield Problem(".value", message, "write the value here")
    elif base == "is-json" and value is not None:
        message = f"{base} with a schema is not supported yet, got {quote(value)}"
        yield Problem(".value", message, "leave the value out to accept any JSON")
    elif not KINDS[base].accepts(value):
        yield Problem(".value", f"must be {KINDS[base].right}, got {quote(value)}")
    elif base == "regex" and isinstance(value, str) and not _has_template(value):
        try:
            compile_javascript(value)
        except ValueError as error:
            hint = "patterns are those of JavaScript, without flags"
            yield Problem(".value", regex_fault(value, error), hint)


def _has_template(value: str) -> bool:
    return any(mark in value for mark in ("{{", "{%", "{#"))
