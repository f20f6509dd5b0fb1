"""Results as logs of Inspect AI (`.eval`), for its own package and viewer.

A log is a zip of JSON files: one for each sample, one with summaries of all samples, and a header. A log has
one task and one model, so a run has one log for each column. Rows are written as they are read; the score of
each row and its entry in the directory of the zip stay in memory.

The format is version 2 of `inspect_ai`. Its compression is zstd, which not every Python has; readers accept
deflate as well.
"""

import itertools
import json
import math
import re
import shutil
import tempfile
import zipfile
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Any, TypeAlias

import attrs

from trioeval.errors import OutputError
from trioeval.report.formats.json import compact
from trioeval.report.records import RowRecord
from trioeval.report.results import Results
from trioeval.report.totals import place_of
from trioeval.report.usage import was_judged
from trioeval.run import Status

# Rows as samples of an Inspect log. Pure, one row at a time.
#
# Nothing is invented: a fact that a record lacks, such as the instants of a row, is left out, and readers use
# their defaults.


Json: TypeAlias = dict[str, Any]

VERDICT = "verdict"
"""The scorer of whether a row passed."""
SCORE = "score"
"""The scorer of the score of a row."""

UNBEGUN = frozenset({"not_run", "blocked"})
"""Outcomes of rows that never started: they have no samples."""

_CORRECT, _INCORRECT = "C", "I"  # as its metric `accuracy` reads them
_EXPECTED = frozenset(
    {
        "equals",
        "contains",
        "icontains",
        "contains-any",
        "contains-all",
        "icontains-any",
        "icontains-all",
        "starts-with",
        "similar",
        "factuality",
        "model-graded-factuality",
        "levenshtein",
        "rouge-n",
        "bleu",
        "gleu",
        "meteor",
    }
)
"""Assertions whose value is the expected answer."""
_ROLES = frozenset({"system", "user", "assistant"})
_STOPS = {
    "stop": "stop",
    "length": "max_tokens",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
}
_BRIEF = 1024  # characters of a text in a summary
_INPUT = 5120  # characters of an input or target in a summary


@attrs.frozen(kw_only=True)
class InspectSample:
    """A row as a sample."""

    id: str | int
    epoch: int
    """The number of the repeat, from 1."""
    scores: Mapping[str, float]
    """The scores by scorer, as numbers; empty without a verdict."""
    whole: Json
    summary: Json
    """Return the sample without large values."""


def sample_of(record: RowRecord, sample_id: str | int, epoch: int) -> InspectSample:
    """Return the sample of a row.

    Args:
        record: The row.
        sample_id: The id that its repeats share.
        epoch: The number of the repeat, from 1.
    """
    scores, numbers = _scores(record)
    messages_in = _messages(record.prompt)
    question, model = record.question, record.provider_id
    shared: Json = {
        "id": sample_id,
        "epoch": epoch,
        "input": question.get("question") or messages_in or "",
        "target": _target(record),
        "scores": scores or None,
        "metadata": _metadata(record),
        **_usages(record, model),
        "uuid": record.id,
    }
    if "answers" in question:
        shared["choices"] = [_text(answer) for answer in question["answers"]]
    if description := record.test.get("description"):
        shared["description"] = description
    if record.latency_ms is not None:
        shared["working_time"] = record.latency_ms / 1000
    messages = [*_as_messages(messages_in), *_answer(record, model)]
    error = record.error or "no reason given"
    failed = not record.status.has_verdict
    whole = {
        **shared,
        "messages": messages,
        "output": _output(record, model),
        "error": {"message": error, "traceback": "", "traceback_ansi": ""} if failed else None,
    }
    summary = {
        **shared,
        "input": _cut(shared["input"], _INPUT),
        "target": _cut(shared["target"], _INPUT),
        "scores": {name: _thin(score) for name, score in scores.items()} or None,
        "metadata": _thin(shared["metadata"]),
        "error": _cut(error, _BRIEF) if failed else None,
        "completed": True,
        "message_count": len(messages),
    }
    return InspectSample(id=sample_id, epoch=epoch, scores=numbers, whole=whole, summary=summary)


def model_usage(usage: Mapping[str, Any], cost: float | None) -> Json:
    """Return the token usage of calls from the result of `usage_json`."""
    details = usage["completionDetails"]
    read, written = details["cacheReadInputTokens"], details["cacheCreationInputTokens"]
    found = {
        "input_tokens": max(0, usage["prompt"] - read - written),  # at full price
        "output_tokens": usage["completion"],
        "total_tokens": usage["total"],
        "input_tokens_cache_read": read or None,
        "input_tokens_cache_write": written or None,
        "reasoning_tokens": details["reasoning"] or None,
        "total_cost": cost,
    }
    return {name: value for name, value in found.items() if value is not None}


def _scores(record: RowRecord) -> tuple[dict[str, Json], dict[str, float]]:
    """Return the scores of a row, and their values as numbers."""
    if not record.status.is_graded:
        return {}, {}
    passed = record.status is Status.PASS
    details: Json = {"answer": _text(record.shown)}
    if record.verdict is not None:
        details["explanation"] = record.reason
    named = {f"metric:{name}": value for name, value in record.named_scores.items()}
    numbers = {VERDICT: float(passed), SCORE: record.score, **named}
    scores: dict[str, Json] = {VERDICT: {"value": _CORRECT if passed else _INCORRECT, **details}}
    scores |= {name: {"value": numbers[name]} for name in (SCORE, *named)}
    return scores, numbers


def _target(record: RowRecord) -> str | list[str]:
    """Return the expected answer if the test states one; otherwise an empty text."""
    found = [_text(answer) for answer in record.question.get("correctAnswers", ())]
    if not found:
        for assertion in record.test.get("assert", ()):
            value = assertion.get("value")
            if assertion["type"] in _EXPECTED and value is not None:
                found += map(_text, value if isinstance(value, list) else [value])
    return found[0] if len(found) == 1 else found or ""


def _messages(prompt: str | None) -> str | list[Json] | None:
    """Return a prompt as its messages, or as one text."""
    if prompt is None or not prompt.lstrip().startswith("["):
        return prompt
    try:
        found = json.loads(prompt)
    except (ValueError, RecursionError):
        return prompt
    messages: list[Json] = []
    for one in found:
        match one:
            case {"role": str(role), "content": str(content)} if role in _ROLES:
                messages.append({"role": role, "content": content})
            case _:
                return prompt
    return messages or prompt


def _as_messages(prompt: str | list[Json] | None) -> list[Json]:
    if isinstance(prompt, list):
        return prompt
    return [] if prompt is None else [{"role": "user", "content": prompt, "source": "input"}]


def _answer(record: RowRecord, model: str) -> Iterator[Json]:
    if record.response is None:
        return
    content: str | list[Json] = _visible(record)
    thought = record.response.get("reasoning")
    if thought and isinstance(thought, str):
        content = [{"type": "reasoning", "reasoning": thought}, {"type": "text", "text": content}]
    message = {"role": "assistant", "content": content, "source": "generate", "model": model}
    calls = [*_tool_calls(record.response.get("toolCalls"))]
    yield {**message, "tool_calls": calls} if calls else message


def _visible(record: RowRecord) -> str:
    """Return the visible text of a reply: its output, or what is beside reasoning and tool calls in it."""
    response = record.response or {}
    if "raw" not in response:  # no transform has replaced the reply
        if isinstance(text := response.get("text"), str):
            return text
        if response.get("toolCalls") and not isinstance(record.output, str):
            return ""
    return _text(record.output)


def _tool_calls(calls: Any) -> Iterator[Json]:
    """Yield tool calls; each has an id there, and arguments that are an object."""
    for place, call in enumerate(calls if isinstance(calls, list) else (), 1):
        match call:
            case {"name": str(name), "arguments": dict(arguments)}:
                found: Json = {"function": name, "arguments": arguments}
            case {"name": str(name), **rest}:
                text = _text(rest.get("arguments"))
                fault = "the arguments are not a JSON object"
                found = {"function": name, "arguments": {"input": text}, "parse_error": fault}
            case _:
                continue
        id_ = call.get("id")
        yield {"id": id_ if isinstance(id_, str) else f"call_{place}", "type": "function", **found}


def _output(record: RowRecord, model: str) -> Json:
    response = record.response
    if response is None:
        return {"model": model}
    found: Json = {
        "model": model,
        "choices": [
            {"message": message, "stop_reason": _STOPS.get(response["finishReason"], "unknown")}
            for message in _answer(record, model)
        ],
        "completion": _visible(record),
        "usage": model_usage(response["tokenUsage"], response["cost"]),
    }
    if record.latency_ms is not None:
        found["time"] = record.latency_ms / 1000
    return found


def _usages(record: RowRecord, model: str) -> Json:
    found = {}
    if record.response is not None or record.usage["numRequests"]:
        found["model_usage"] = {model: model_usage(record.usage, record.cost)}
    if was_judged(record.usage):
        used = model_usage(record.usage["assertions"], record.grading_cost)
        found["role_usage"] = {"grader": used}
    return found


def _metadata(record: RowRecord) -> Json:
    return {"vars": record.vars, **record.json["metadata"]}


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else compact(value)


def _cut(value: Any, most: int) -> Any:
    match value:
        case str():
            return value if len(value) <= most else value[:most] + "..."
        case list():
            return [_cut(part, most) for part in value]
        case {"content": str(content)}:
            return {**value, "content": _cut(content, most)}
        case _:
            return value


def _thin(found: Json) -> Json:
    """Return the sample with short texts, and without large values."""
    thin: Json = {}
    for name, value in found.items():
        if value is None or isinstance(value, str | int | float):
            thin[name] = _cut(value, _BRIEF)
        elif len(compact(value)) <= _BRIEF:
            thin[name] = value
    return thin


_VERSION = 2
_UNSAFE = re.compile(r"[^\w.:+@ -]")
_UNSAFE_IN_FILES = re.compile(r"[^A-Za-z0-9._-]+")
_NAME = 60  # characters of a model in the name of a file
_ID = 100  # characters of the id of a sample that is a text


@attrs.frozen
class LogColumn:
    """The contents of one log."""

    part: Results
    prompt_idx: int


def logs_of(path: Path, parts: Sequence[Results]) -> Mapping[Path, LogColumn]:
    """Return the logs of a run by path: the requested file, or several beside it.

    Args:
        path: The requested file.
        parts: One run, or its tasks.

    Raises:
        OutputError: No task has rows.
    """
    found = [
        LogColumn(part, column)
        for part in parts
        if part.dataset is None
        for column in range(len(part.columns))
        if part.totals.columns[column].rows
    ]
    if not found:
        raise OutputError("no task has rows, which an Inspect log needs")
    if len(found) == 1:
        return {path: found[0]}
    width = len(str(len(found)))
    names = {}
    for number, one in enumerate(found, 1):
        model = one.part.columns[one.prompt_idx].provider
        plain = _UNSAFE_IN_FILES.sub("-", model).strip("-.")[:_NAME]
        end = f"-{plain}" if plain else ""
        names[path.with_name(f"{path.stem}-{number:0{width}}{end}{path.suffix}")] = one
    return names


def write_log(path: Path, column: LogColumn) -> None:
    """Write the log of one column.

    Raises:
        StoreError: The rows cannot be read.
        OSError: The file cannot be written.
    """
    sums = _SampleSums()
    with (
        tempfile.TemporaryFile() as summaries,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as log,
    ):
        between = b"["
        for sample in _samples(column, sums):
            name = f"samples/{sample.id}_epoch_{sample.epoch}.json"
            log.writestr(name, _bytes(sample.whole))
            summaries.write(between + _bytes(sample.summary))
            between = b","
        summaries.write(b"[]" if between == b"[" else b"]")
        _copy(summaries, log, "summaries.json")
        log.writestr("reductions.json", _bytes([*sums.reductions()]))
        log.writestr("header.json", _bytes(_header(column, sums)))


@attrs.define
class _Scores:
    """The values of one scorer."""

    sums: dict[str | int, float] = attrs.field(factory=dict)
    counts: Counter[str | int] = attrs.field(factory=Counter)

    def add(self, sample: str | int, value: float) -> None:
        self.sums[sample] = self.sums.get(sample, 0.0) + value
        self.counts[sample] += 1

    def means(self) -> Iterator[tuple[str | int, float]]:
        """Return the mean of each sample over its epochs."""
        return ((sample, total / self.counts[sample]) for sample, total in self.sums.items())

    def mean_and_error(self) -> tuple[float, float]:
        """Return the mean over samples and its standard error, as Inspect's metrics define them."""
        values = [value for _, value in self.means()]
        mean = math.fsum(values) / len(values)
        if len(values) == 1:
            return mean, 0.0
        spread = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
        return mean, math.sqrt(spread / len(values))


@attrs.define
class _SampleSums:
    """The counts and entries of all samples, collected while they are written."""

    ids: dict[str, str | int] = attrs.field(factory=dict)
    """The numbers of samples by the safe form of their ids in file names."""
    epochs: int = 1
    samples: int = 0
    unscored: int = 0
    cut: int = 0
    """Rows that did not end."""
    model: str | None = None
    scores: dict[str, _Scores] = attrs.field(factory=dict)

    def add(self, sample: InspectSample, record: RowRecord) -> None:
        self.ids[str(sample.id)] = sample.id
        self.epochs = max(self.epochs, sample.epoch)
        self.samples += 1
        self.unscored += not sample.scores
        self.model = self.model or record.provider_id
        for name, value in sample.scores.items():
            self.scores.setdefault(name, _Scores()).add(sample.id, value)

    def reductions(self) -> Iterator[Json]:
        for name, scores in self.scores.items():
            means = [{"sample_id": sample, "value": value} for sample, value in scores.means()]
            yield {"scorer": name, "reducer": "mean", "samples": means}


def _samples(column: LogColumn, sums: _SampleSums) -> Iterator[InspectSample]:
    """Yield the rows that started. Repeats of a test are epochs of one sample."""
    ids: dict[int, list[str | int]] = {}
    seen: Counter[tuple[int, int]] = Counter()
    for record in column.part.shown(column.prompt_idx):
        sums.cut += record.outcome in UNBEGUN or record.outcome == "interrupted"
        if record.outcome in UNBEGUN:
            continue
        epoch = record.repeat + 1
        test = place_of(record).test
        alike, place = ids.setdefault(test, []), seen[test, epoch]
        seen[test, epoch] += 1
        if place == len(alike):
            alike.append(_sample_id(record, sums.ids))
        sample = sample_of(record, alike[place], epoch)
        sums.add(sample, record)
        yield sample


def _sample_id(record: RowRecord, taken: Container[str]) -> str | int:
    """Return the id of the question or case, or else the number of the test."""
    name = record.question.get("id") or record.test.get("case")
    plain = _UNSAFE.sub("_", name)[:_ID] if isinstance(name, str) else ""
    number = record.test_idx
    if plain.strip(" .") and plain not in taken:
        return plain
    if str(number) not in taken:
        return number
    others = (f"{number}-{place}" for place in itertools.count(2))
    return next(other for other in others if other not in taken)


def _header(column: LogColumn, sums: _SampleSums) -> Json:
    part = column.part
    head, totals = part.head, part.totals.columns[column.prompt_idx]
    head_column = head.columns[column.prompt_idx]
    name = head.task or head.config.get("description") or "suite"
    own_id = f"{head.eval_id}-{name}-{column.prompt_idx}"
    model = sums.model or head_column.provider
    prompt = {
        "label": part.prompt_text(head_column.label),
        "raw": part.prompt_text(head_column.raw),
    }
    usages: Json = {"model_usage": {model: model_usage(totals.usage.own_json(), totals.cost)}}
    if totals.usage.judges is not None:
        judges = totals.usage.judges.own_json()
        usages["role_usage"] = {"grader": model_usage(judges, totals.grading_cost)}
    return {
        "version": _VERSION,
        "status": "cancelled" if sums.cut else "success",
        "eval": {
            "eval_id": own_id,
            "run_id": head.eval_id,
            "created": head.utc_created,
            "task": str(name),
            "task_id": own_id,
            "dataset": {
                "name": str(name),
                "samples": len(sums.ids),
                "sample_ids": list(sums.ids.values()),
                "shuffled": False,
            },
            "model": model,
            "config": {"epochs": sums.epochs, "epochs_reducer": ["mean"], "fail_on_error": False},
            "packages": {"trioeval": head.versions.get("trioevalVersion", "")},
            "metadata": {
                "provider": head_column.provider,
                "prompt": prompt,
                "promptIdx": column.prompt_idx,
            },
            "scorers": [{"name": scorer} for scorer in sums.scores],
        },
        "plan": {"name": "plan", "steps": [{"solver": "trioeval", "params": prompt}]},
        "results": {
            "total_samples": totals.rows,
            "completed_samples": sums.samples - sums.unscored,
            "scores": [*_results(sums)],
        },
        "stats": {**_instants(head.utc_created, part.info.duration_ms), **usages},
    }


def _results(sums: _SampleSums) -> Iterator[Json]:
    for name, scores in sums.scores.items():
        mean, error = scores.mean_and_error()
        first = "accuracy" if name == VERDICT else "mean"
        scored = scores.counts.total()
        yield {
            "name": name,
            "scorer": name,
            "reducer": "mean",
            "scored_samples": scored,
            "unscored_samples": sums.unscored
            if name in (VERDICT, SCORE)
            else sums.samples - scored,
            "metrics": {
                first: {"name": first, "value": mean},
                "stderr": {"name": "stderr", "value": error},
            },
        }


def _instants(began: str, duration_ms: float) -> Json:
    """Return the start, and the start plus the duration; a resumed run had breaks in between."""
    try:
        ended = datetime.fromisoformat(began) + timedelta(milliseconds=duration_ms)
    except (ValueError, OverflowError):
        return {}
    return {"started_at": began, "completed_at": ended.isoformat(timespec="milliseconds")}


def _copy(source: IO[bytes], log: zipfile.ZipFile, name: str) -> None:
    source.seek(0)
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_DEFLATED
    with log.open(info, "w", force_zip64=True) as target:
        shutil.copyfileobj(source, target)


def _bytes(value: Any) -> bytes:
    # Lone surrogates, which JSON may hold but UTF-8 cannot, become question marks.
    return compact(value).encode("utf-8", "replace")
