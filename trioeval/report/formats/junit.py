"""Results as JUnit XML for continuous integration: a suite for each column, a case for each row."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from trioeval.report.columns import dataset_lines, failure_line, trouble
from trioeval.report.records import RowRecord, agent_lines, shown_output
from trioeval.report.results import Results
from trioeval.report.totals import ColumnTotals
from trioeval.run import Status
from trioeval.text import score_text
from trioeval.text_safety import escape_control_characters

# XML text and documents.
#
# XML cannot represent most control characters, escaped or not: they are left out.


HEADER = '<?xml version="1.0" encoding="UTF-8"?>\n'

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_XML_TEXT_NAME = re.compile(r"(?!(?i:xml))[A-Za-z_][\w.-]*\Z", re.ASCII)


def xml_text(text: object) -> str:
    r"""Return text that is valid between tags.

    Example:
        >>> xml_text("a < b \x1b[1m& c")
        'a &lt; b [1m&amp; c'
    """
    plain = str(text)
    if not plain.isprintable():  # a quick test that holds for most texts
        plain = _FORBIDDEN.sub("", plain)
    return (
        plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\r", "&#13;")
    )


def xml_attributes(attributes: Mapping[str, object]) -> str:
    r"""Return attributes that are valid in a tag, with a space before each.

    Example:
        >>> xml_attributes({"name": 'say "hi"\n', "tests": 2})
        ' name="say &quot;hi&quot;&#10;" tests="2"'
    """
    found = ((name, xml_text(value).replace('"', "&quot;")) for name, value in attributes.items())
    return "".join(
        f' {name}="{text}"'.replace("\n", "&#10;").replace("\t", "&#9;") for name, text in found
    )


def xml_chunks(name: str, value: Any, margin: str = "") -> Iterator[str]:
    """Yield a value as an element, piece by piece; the members of a list are elements of the same name.

    Args:
        name: The name of the element; one that is not valid in XML becomes `entry` with an attribute.
        value: The value; iterators are treated as lists.
        margin: The beginning of each line at this level.

    Example:
        >>> print(
        ...     "".join(xml_chunks("row", {"ok": True, "tags": ["a", "b"], "my var": None})), end=""
        ... )
        <row>
          <ok>true</ok>
          <tags>a</tags>
          <tags>b</tags>
          <entry name="my var"></entry>
        </row>
    """
    if isinstance(value, list | tuple | Iterator):
        yield from _members(name, value, margin)
        return
    tag = name if _XML_TEXT_NAME.match(name) else "entry"
    opening = tag if tag is name else tag + xml_attributes({"name": name})
    if not isinstance(value, Mapping):
        yield f"{margin}<{opening}>{xml_text(_scalar(value))}</{tag}>\n"
        return
    yield f"{margin}<{opening}>\n"
    for key, part in value.items():
        yield from xml_chunks(str(key), part, margin + "  ")
    yield f"{margin}</{tag}>\n"


def _members(name: str, values: Iterable[Any], margin: str) -> Iterator[str]:
    for value in values:
        # A nested list would otherwise lose its bounds.
        inner = {"item": value} if isinstance(value, list | tuple) else value
        yield from xml_chunks(name, inner, margin)


def _scalar(value: Any) -> object:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case _:
            return value


_NAME = 512  # characters of a name
_MESSAGE = 1024  # characters of a message, which is an attribute


def junit_chunks(*parts: Results) -> Iterator[str]:
    """Yield the XML text of all rows, case by case."""
    counts = _counts([column for part in parts for column in part.totals.columns], parts)
    yield HEADER
    yield f"<testsuites{xml_attributes({'name': 'trioeval', **counts})}>\n"
    for results in parts:
        yield from _dataset(results)
        for prompt_idx, name in enumerate(_names(results)):
            counts = _counts([results.totals.columns[prompt_idx]])
            about = {"name": name, **counts, "timestamp": results.head.utc_created}
            yield f"  <testsuite{xml_attributes(about)}>\n"
            for row in results.shown(prompt_idx):
                yield "".join(f"    {line}\n" for line in _case(row, name))
            yield "  </testsuite>\n"
    yield "</testsuites>\n"


def _names(results: Results) -> Iterator[str]:
    """Yield each column as `[provider] prompt N`; N counts the columns of a provider name."""
    task = "" if results.task is None else f"{escape_control_characters(results.task, _NAME)}: "
    seen: Counter[str] = Counter()
    for column in results.columns:
        name = escape_control_characters(column.provider, _NAME)
        seen[name] += 1
        yield f"{task}[{name}] prompt {seen[name]}"


def _dataset(results: Results) -> Iterator[str]:
    """Yield the suite of a task that makes a dataset, with one case; nothing for any other task."""
    dataset = results.shown_dataset()
    if dataset is None:
        return
    name = escape_control_characters(results.task or "", _NAME)
    about = {"name": name, **_counts((), (results,)), "timestamp": results.head.utc_created}
    yield f"  <testsuite{xml_attributes(about)}>\n"
    case = {"classname": name, "name": "dataset", "time": _seconds(1000 * dataset.duration_s)}
    yield f"    <testcase{xml_attributes(case)}>\n"
    if (why := trouble(dataset)) is not None:
        attributes = {"message": escape_control_characters(why, _MESSAGE), "type": "dataset"}
        rows = xml_text("\n".join(map(failure_line, dataset.failures)))
        yield f"      <failure{xml_attributes(attributes)}>{rows}</failure>\n"
    text = xml_text("\n".join(dataset_lines(dataset)))
    yield f"      <system-out>{text}</system-out>\n    </testcase>\n  </testsuite>\n"


def _counts(columns: Sequence[ColumnTotals], parts: Sequence[Results] = ()) -> dict[str, object]:
    """Return the number of cases of each kind in columns, and in the datasets of parts."""
    datasets = [part.dataset for part in parts if part.dataset is not None]
    return {
        "tests": sum(column.rows for column in columns) + len(datasets),
        "failures": sum(column.statuses[Status.FAIL] for column in columns)
        + sum(trouble(dataset) is not None for dataset in datasets),
        "errors": sum(column.statuses[Status.ERROR] for column in columns),
        "skipped": sum(column.left for column in columns),
        "time": _seconds(
            sum(column.latency_ms for column in columns)
            + sum(1000 * dataset.duration_s for dataset in datasets)
        ),
    }


def _case(row: RowRecord, suite_name: str) -> Iterator[str]:
    name = escape_control_characters(row.name, _NAME)
    about = {
        "classname": suite_name,
        "name": f"row {row.number} ({name})" if name else f"row {row.number}",
        "time": _seconds(row.latency_ms or 0),
    }
    yield f"<testcase{xml_attributes(about)}>"
    yield "  <properties>"
    for key, value in _properties(row).items():
        yield f"    <property{xml_attributes({'name': key, 'value': value})}/>"
    yield "  </properties>"
    if not row.status.is_success:
        yield "  " + _trouble(row)
    if row.agent is not None:
        yield f"  <system-out>{xml_text(chr(10).join(agent_lines(row.agent)))}</system-out>"
    yield "</testcase>"


def _properties(row: RowRecord) -> dict[str, object]:
    facts = {
        "score": row.score,
        **{f"score.{name}": score for name, score in row.named_scores.items()},
        "tokens": row.tokens,
        "cost": row.cost,
        "grading.tokens": row.judge_tokens,
        "grading.cost": row.grading_cost,
        "outcome": row.question.get("outcome"),
        "answer": row.question.get("agentAnswer"),
        "graded": "false" if row.status is Status.NOT_GRADED else None,
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def _trouble(row: RowRecord) -> str:
    reason = row.error or "assertion failed"
    attributes = {"message": escape_control_characters(reason, _MESSAGE)}
    if row.status is Status.FAIL:
        failed = [part.type or "assertion" for part in row.parts if not part.passed]
        excerpt = row.output_excerpt
        if excerpt is not None:
            reason += shown_output(excerpt)
            attributes["message"] += shown_output(excerpt)
        lines = [f"Score: {score_text(row.score)}", f"Reason: {reason}"]
        lines += ["Failed assertions:", *(f"- {name}" for name in failed)] if failed else []
        text = xml_text("\n".join(lines))
        kind = row.question.get("outcome", "assertion")
        return f"<failure{xml_attributes({**attributes, 'type': kind})}>{text}</failure>"
    if row.status is Status.NOT_RUN:
        return f"<skipped{xml_attributes(attributes)}/>"
    text = xml_text(reason)
    return f"<error{xml_attributes({**attributes, 'type': 'error'})}>{text}</error>"


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.3f}"
