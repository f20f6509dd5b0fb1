"""From plain data to a `Suite`, strictly, with everything that is wrong said at once.

Nothing is converted and nothing is ignored: `"5"` is not a number, `true` is not 1, a key that is not
known is a mistake. Each model has a structuring function made by cattrs; what is written in several ways
(a provider as text or object, keys in camelCase or snake_case) is brought into one form before it.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import attrs
import cattrs

from trioeval.errors import Problem, SuiteError
from trioeval.grading import Assertion, check_assertion
from trioeval.suite.documents import read_document
from trioeval.suite.mistakes import Mistake, Mistakes, kind, nearest, shown
from trioeval.suite.models import (
    EvaluateOptions,
    LaneSettings,
    Prompt,
    ProviderEntry,
    Suite,
    Test,
    TestOptions,
)
from trioeval.suite.paths import DocumentPath, show_path
from trioeval.suite.strict import find_mistakes, object_hook, strict_converter
from trioeval.suite.template import Templates

Locate = Callable[[DocumentPath, bool], tuple[int, int] | None]
"""Line and column of the value at a path, or of its key."""

WITHOUT_MEANING = frozenset({"$schema", "tags", "metadata", "sharing", "redteam", "tracing"})
"""Keys of promptfoo configurations that change nothing here."""

NOT_YET = frozenset(
    "commandLineOptions derivedMetrics env extensions nunjucksFilters outputPath scenarios tasks".split()
)
NOT_YET_IN_LANES = frozenset("tpm itpm otpm adaptive".split())
NOT_YET_IN_OPTIONS = frozenset("budget cache filterRange showProgressBar".split())
NOT_YET_IN_PROVIDERS = frozenset("env transform".split())
NOT_YET_IN_ASSERTIONS = frozenset(
    "assert config contextTransform provider rubricPrompt transform".split()
)
NOT_YET_IN_TESTS = frozenset(
    "assertScoringFunction prompts provider providerOutput providers".split()
)
NOT_YET_IN_TEST_OPTIONS = frozenset(
    (
        "disableConversationVar disableDefaultAsserts disableVarExpansion factuality postprocess prefix"
        " provider rubricPrompt storeOutputAs suffix transform transformVars"
    ).split()
)
"""Keys that mean something and are not supported yet: refused, because ignoring them would lie."""


def load_suite(path: str | PathLike[str]) -> Suite:
    """Load a suite file.

    Args:
        path: A `.json`, `.yaml` or `.yml` file.

    Raises:
        SuiteError: Everything that is wrong with it, with file, line and column.
    """
    document = read_document(Path(path))
    suite = _parse(
        document.data, document.file, lambda where, key: document.place(where, key=key)
    )
    return attrs.evolve(suite, directory=Path(path).absolute().parent, file=Path(path))


def parse_suite(document: Any, *, directory: Path | None = None) -> Suite:
    """A suite from data of the shape of a suite file.

    Args:
        document: What `json.load` would give.
        directory: What relative paths are relative to; the working directory if None.

    Raises:
        SuiteError: Everything that is wrong with it.

    Example:
        >>> suite = parse_suite({"providers": ["echo"], "prompts": ["Hello"]})
        >>> suite.providers[0].id, suite.evaluate_options.max_concurrency
        ('echo', 4)
    """
    suite = _parse(document, None, lambda _where, _key: None)
    return attrs.evolve(suite, directory=Path.cwd() if directory is None else directory)


def _parse(document: Any, file: Path | None, locate: Locate) -> Suite:
    if not isinstance(document, dict):
        mistake = Mistake(f"a suite must be an object, got {kind(document)}")
        raise SuiteError([_problem(mistake, file, locate)])
    known, mistakes = _top(document)
    suite: Suite | None = None
    try:
        suite = make_converter().structure(known, Suite)
    except (cattrs.BaseValidationError, Mistake, Mistakes) as error:
        mistakes += find_mistakes(error)
    mistakes += _lane_mistakes(known)
    if suite is not None and not mistakes:
        return suite
    if "targets" in document:
        mistakes = [_respelled(mistake) for mistake in mistakes]
    problems = [_problem(mistake, file, locate) for mistake in mistakes]
    raise SuiteError(sorted(problems, key=lambda p: (p.line or 0, p.column or 0)))


def make_converter() -> cattrs.Converter:
    """The converter whose `structure(document, Suite)` is the meaning of a suite file."""
    converter, templates = strict_converter(), Templates()

    def register(model: Any, hook: Callable[[Any], Any]) -> None:
        converter.register_structure_hook_func(lambda wanted: wanted == model, lambda v, _: hook(v))

    register(LaneSettings, object_hook(converter, LaneSettings, not_yet=NOT_YET_IN_LANES))
    register(LaneSettings | str | None, lambda value: _lane_or_name(value, converter))
    register(EvaluateOptions, object_hook(converter, EvaluateOptions, not_yet=NOT_YET_IN_OPTIONS))
    register(TestOptions, object_hook(converter, TestOptions, not_yet=NOT_YET_IN_TEST_OPTIONS))
    plain_assertion = object_hook(converter, Assertion, not_yet=NOT_YET_IN_ASSERTIONS)
    register(Assertion, lambda value: _assertion(value, plain_assertion))
    plain_prompt = object_hook(converter, _PromptObject, not_yet=("config",))
    register(Prompt, lambda value: _prompt(value, plain_prompt, templates))
    plain_provider = object_hook(converter, ProviderEntry, not_yet=NOT_YET_IN_PROVIDERS)
    register(ProviderEntry, lambda value: _provider(value, plain_provider))
    renamed = {"assertions": "assert"}
    register(Test, object_hook(converter, Test, renamed, NOT_YET_IN_TESTS))
    register(Suite, object_hook(converter, Suite, {"directory": None, "file": None}))
    return converter


def _top(document: dict[str, Any]) -> tuple[dict[str, Any], list[Mistake]]:
    """The top of a file without what has no meaning here, and with what it means to leave out."""
    mistakes = [
        Mistake(f"{key} is not supported yet", at=(key,), key=True)
        for key in document
        if key in NOT_YET
    ]
    known = {
        key: part
        for key, part in document.items()
        if not (key in WITHOUT_MEANING or key in NOT_YET or key.startswith("x-"))
    }
    if "targets" in known:
        if "providers" in known:
            message = "providers and targets are the same key: write one of them"
            mistakes.append(Mistake(message, at=("targets",), key=True))
        known["providers"] = known.pop("targets")
    if not known.get("providers"):
        at = ("providers",) if "providers" in known else ()
        mistakes.append(Mistake("there are no providers", 'for example "providers": ["echo"]', at=at))
        known["providers"] = []
    if isinstance(tests := known.get("tests"), str):
        message, hint = f"tests from {shown(tests)} are not supported yet", "write them as a list here"
        mistakes.append(Mistake(message, hint, at=("tests",)))
        del known["tests"]
    return {"prompts": ["{{prompt}}"], **known}, mistakes


def _lane_mistakes(document: Mapping[str, Any]) -> Iterator[Mistake]:
    """Providers that name a lane which there is not, or give a delay twice."""
    lanes, providers = document.get("lanes", {}), document["providers"]
    for place, provider in enumerate(providers if isinstance(providers, list) else ()):
        match provider:
            case {"lane": str(name)} if isinstance(lanes, dict) and name not in lanes:
                at = ("providers", place, "lane")
                yield Mistake(f"there is no lane {shown(name)} in $.lanes", nearest(name, lanes), at=at)
            case {"lane": str() | {"delay": _}, "delay": _}:
                message, hint = "the lane has its own delay", "write the delay there"
                yield Mistake(message, hint, at=("providers", place, "delay"), key=True)
            case _:
                pass


def _lane_or_name(value: Any, converter: cattrs.Converter) -> LaneSettings | str | None:
    if value is None or isinstance(value, str):
        return value
    return converter.structure(value, LaneSettings)


def _assertion(value: Any, structure: Callable[[Any], Assertion]) -> Assertion:
    if isinstance(value, str):
        hint = f'write {{"type": "contains", "value": {shown(value)}}}'
        raise Mistake(f"must be an object, got {kind(value)}", hint)
    if isinstance(value, dict) and value.get("type") == "assert-set":
        raise Mistake("assert-set is not supported yet", at=("type",))
    assertion = structure(value)
    # Their paths are `.type` and `.value`: one key each.
    if parts := [
        Mistake(problem.message, problem.hint, at=(problem.path.removeprefix("."),))
        for problem in check_assertion(assertion)
    ]:
        raise Mistakes(parts)
    return assertion


@attrs.frozen
class _PromptObject:
    raw: str
    label: str | None = None
    id: str | None = None


def _prompt(
    value: Any, structure: Callable[[Any], _PromptObject], templates: Templates
) -> Prompt:
    given = structure({"raw": value} if isinstance(value, str) else value)
    at = () if isinstance(value, str) else ("raw",)
    if given.raw.startswith("file://"):
        hint = "write the text of the prompt here"
        raise Mistake("prompts from files are not supported yet", hint, at=at)
    if error := templates.syntax_error(given.raw):
        raise Mistake(error, at=at)
    name = given.label or given.id or given.raw
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return Prompt(raw=given.raw, label=given.label or given.raw, id=digest)


def _provider(value: Any, structure: Callable[[Any], ProviderEntry]) -> ProviderEntry:
    match value:
        case str():
            return structure({"id": value})
        case dict() if "id" not in value and len(value) == 1:
            (name, rest), *_ = value.items()
            if not isinstance(rest, dict):
                raise Mistake(f"must be an object, got {kind(rest)}", at=(name,))
            try:
                return structure({"id": name, **rest})
            except Mistakes as mistakes:
                raise Mistakes(mistake.below(name) for mistake in mistakes.parts) from None
        case _:
            return structure(value)


def _respelled(mistake: Mistake) -> Mistake:
    """The same mistake in a file that says `targets` for `providers`."""
    match mistake.at:
        case ("providers", *rest):
            return Mistake(mistake.message, mistake.hint, at=("targets", *rest), key=mistake.key)
        case _:
            return mistake


def _problem(mistake: Mistake, file: Path | None, locate: Locate) -> Problem:
    line, column = locate(mistake.at, mistake.key) or (None, None)
    path = show_path(mistake.at)
    return Problem(path, mistake.message, mistake.hint, str(file) if file else None, line, column)
