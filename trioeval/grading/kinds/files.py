"""Types that check the workspace of an agent, and the end of its work.

Files are read in a thread. A file that the agent did not make is a failure, and so is one that must not or
cannot be read, such as a link out of the workspace: that is the agent's work as well. Only a mistake in the
suite makes an assertion that cannot be evaluated.
"""

import functools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from trioeval.errors import GradingError, Problem
from trioeval.grading.kind import Finding, Judge, Kind, Kinds, SlowError, is_anything, is_text
from trioeval.grading.kinds.text import pattern_problems, usable_pattern
from trioeval.grading.kinds.workspace_files import NoFileError, find_file, path_fault, read_file
from trioeval.grading.model import Assertion
from trioeval.grading.patterns import found_in_time
from trioeval.grading.schemas import rules_of, schema_of, schema_problems
from trioeval.grading.subject import Subject
from trioeval.scripting.queries import program
from trioeval.text import is_template, parse_json, quote, same_json

_PATHS = (
    'the path of a file in the workspace, in which "*" may stand for any text, or a list of these'
)
_CONTAINS = "{file, text}, {file, texts} or {file, pattern}"
_JSON = (
    "the path of a file in the workspace, or {file} with path, equals and schema as far as wanted"
)


def workspace_of(subject: Subject) -> Path:
    """Return the workspace of a subject.

    Raises:
        GradingError: It has none.
    """
    if subject.workspace is None:
        msg = "only outputs of tasks of type agent have a workspace"
        raise GradingError(msg)
    return subject.workspace


def _agent_done(subject: Subject, _value: Any, _assertion: Assertion) -> Finding:
    match subject.metadata.get("agent"):
        case {"outcome": str(outcome), "message": str(message)}:
            return Finding(holds=outcome == "done", reason=message)
        case _:
            msg = "only outputs of tasks of type agent have an agent that can be done"
            raise GradingError(msg)


_Look: TypeAlias = Callable[[Path, Any, Assertion], Finding]


def _reading(look: _Look) -> Judge:
    """Make a judge that reads files in a thread, which may take long."""

    def judge(subject: Subject, value: Any, assertion: Assertion) -> Finding:
        workspace = workspace_of(subject)

        def finish() -> Finding:
            try:
                return look(workspace, value, assertion)
            except NoFileError as error:  # a misspelt name must not pass under `not-`
                return Finding(holds=False, reason=str(error), invertible=False)

        raise SlowError(finish)

    return judge


def _exists(workspace: Path, value: Any, assertion: Assertion) -> Finding:
    # Every one of several files is required, or forbidden under `not-`.
    inverted = assertion.type.startswith("not-")
    for named in [value] if isinstance(value, str) else value:
        is_there = find_file(workspace, named) is not None
        if is_there is inverted:
            reason = f"file {quote(named)} {'exists' if is_there else 'not found'}"
            return Finding(holds=is_there, reason=reason)
    several = not isinstance(value, str)
    verb = "not found" if inverted else "exist" if several else "exists"
    reason = f"file{'s' if several else ''} {quote(value)} {verb}"
    return Finding(holds=not inverted, reason=reason)


def _contains(workspace: Path, value: Mapping[str, Any], _assertion: Assertion) -> Finding:
    named = value["file"]
    text = read_file(workspace, named).decode("utf-8-sig", "replace")
    if "pattern" in value:
        pattern = value["pattern"]
        compiled = usable_pattern(pattern)
        if isinstance(compiled, Finding):
            return compiled
        holds = found_in_time(compiled, text)
        verb = "matches" if holds else "does not match"
        return Finding(holds=holds, reason=f"{quote(named)} {verb} {quote(pattern)}")
    texts = [value["text"]] if "text" in value else value["texts"]
    missing = next((one for one in texts if one not in text), None)
    if missing is not None:
        return Finding(holds=False, reason=f"{quote(named)} does not contain {quote(missing)}")
    contained = quote(texts[0]) if len(texts) == 1 else f"all of {quote(texts)}"
    return Finding(holds=True, reason=f"{quote(named)} contains {contained}")


def _json(workspace: Path, value: Any, _assertion: Assertion) -> Finding:
    settings = {"file": value} if isinstance(value, str) else value
    named = settings["file"]
    try:
        text = read_file(workspace, named).decode("utf-8-sig")
        found = parse_json(text)
    except UnicodeDecodeError:
        return Finding(holds=False, reason=f"{quote(named)} is not JSON: it is not UTF-8")
    except ValueError as error:
        return Finding(holds=False, reason=f"{quote(named)} is not JSON: {error}")
    place = quote(named)
    if "path" in settings:
        values = values_at(settings["path"], found, len(text))
        if not values:
            return Finding(holds=False, reason=f"{settings['path']} not found in {place}")
        found, place = values[0], f"{settings['path']} in {place}"
    if "equals" in settings and not same_json(found, settings["equals"]):
        reason = f"{place} is {quote(found)}, not {quote(settings['equals'])}"
        return Finding(holds=False, reason=reason)
    if "schema" in settings:
        try:
            rules = rules_of(schema_of(settings["schema"]))
        except ValueError as error:
            msg = f"the schema is not usable: {error}"
            raise GradingError(msg) from None
        if not rules.hold(found):
            faults = "; ".join(rules.faults(found))
            return Finding(holds=False, reason=f"{place} does not match the schema: {faults}")
    if "equals" in settings:
        return Finding(holds=True, reason=f"{place} is {quote(found)}")
    matches = (
        "matches the schema" if "schema" in settings else "exists" if "path" in settings else ""
    )
    return Finding(holds=True, reason=f"{place} {matches or 'is JSON'}")


def values_at(path: str, document: Any, size: int) -> list[Any]:
    """Return the values of a JSONPath: at most one; if it may have several, their list. Blocks.

    Expensive paths are evaluated in a separate process, which is killed when its time is up.

    Args:
        path: The JSONPath.
        document: The document.
        size: Characters of the document, as JSON.

    Raises:
        GradingError: The path is invalid.
        NoFileError: It fails on the document, or takes too long; the message says which.
    """
    _check_path(path)
    if size <= program.CHEAP and program.is_cheap("jsonpath", path):
        answer = program.run("jsonpath", path, document)
    else:
        answer = _run_apart(path, document)
    if "error" in answer:
        msg = f"{quote(path)} fails: {answer['error']}"
        if answer["error"].startswith("it "):
            msg = f"{quote(path)} {answer['error'].removeprefix('it ')}"
        raise NoFileError(msg)
    values: list[Any] = answer["values"]
    return values if answer["singular"] or not values else [values]


def _run_apart(path: str, document: Any) -> dict[str, Any]:
    try:
        request = json.dumps(["jsonpath", path, document])
        done = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, program.__file__],
            input=request,
            capture_output=True,
            text=True,
            timeout=program.TIME_LIMIT,
            check=False,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"error": f"it takes longer than {program.TIME_LIMIT:g} seconds"}
    except RecursionError:
        return {"error": "the document is nested too deeply"}
    except ValueError:
        return {"error": f"its process ended with code {done.returncode}"}
    return answer


def _check_path(path: str) -> None:
    """Raise if a text is not a JSONPath.

    Raises:
        GradingError: It is not a JSONPath.
    """
    try:
        _json_paths().compile(path)
    except Exception as error:  # noqa: BLE001 - the library's own types, imported late
        reason = str(error).partition("\n")[0]
        msg = f"{quote(path)} is not a JSONPath: {reason}"
        raise GradingError(msg) from None


@functools.cache
def _json_paths() -> Any:
    import jsonpath

    environment = jsonpath.JSONPathEnvironment(strict=True)
    for name in ("match", "search"):  # patterns that may never end, on an agent's text
        environment.function_extensions.pop(name, None)
    return environment


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(map(is_text, value))


def _are_paths(value: Any) -> bool:
    return is_text(value) or _are_texts(value)


def _says_contents(value: Any) -> bool:
    match value:
        case {"file": file, "text": text, **rest}:
            return not rest and is_text(file) and is_text(text)
        case {"file": file, "texts": texts, **rest}:
            return not rest and is_text(file) and _are_texts(texts)
        case {"file": file, "pattern": pattern, **rest}:
            return not rest and is_text(file) and is_text(pattern)
        case _:
            return False


def _says_json(value: Any) -> bool:
    match value:
        case {"file": file, **rest}:
            return (
                is_text(file)
                and not rest.keys() - {"path", "equals", "schema"}
                and is_text(rest.get("path", "$"))
                and isinstance(rest.get("schema", {}), str | Mapping)
            )
        case _:
            return is_text(value)


def _check_paths(assertion: Assertion) -> Iterator[Problem]:
    value = assertion.value
    if isinstance(value, list | tuple):
        for place, named in enumerate(value):
            yield from _path_problems(f".value[{place}]", named)
    else:
        yield from _path_problems(".value", value)


def _check_contents(assertion: Assertion) -> Iterator[Problem]:
    value = assertion.value
    if is_template(value):
        return
    yield from _path_problems(".value.file", value["file"])
    if value.get("pattern") is not None:
        yield from pattern_problems(".value.pattern", value["pattern"])


def _check_json(assertion: Assertion) -> Iterator[Problem]:
    value = assertion.value
    if not isinstance(value, Mapping):
        yield from _path_problems(".value", value)
        return
    yield from _path_problems(".value.file", value["file"])
    path = value.get("path", "$")
    if not is_template(path):
        try:
            _check_path(path)
        except GradingError as error:
            yield Problem(".value.path", str(error), 'write one such as "$.scores[0]"')
    if "schema" in value and not is_template(value["schema"]):
        yield from schema_problems(".value.schema", value["schema"])


def _path_problems(at: str, named: Any) -> Iterator[Problem]:
    if is_template(named):
        return
    fault = path_fault(named)
    if fault is not None:
        hint = "write a path that is relative to the workspace"
        yield Problem(at, f"{quote(named)} {fault}", hint)


KINDS: Kinds = {
    "agent-done": Kind("left out", is_anything, _agent_done, bare=True),
    "file-contains": Kind(
        _CONTAINS, _says_contents, _reading(_contains), check=_check_contents, fills_objects=True
    ),
    "file-exists": Kind(_PATHS, _are_paths, _reading(_exists), check=_check_paths),
    "file-json": Kind(_JSON, _says_json, _reading(_json), check=_check_json, fills_objects=True),
}
