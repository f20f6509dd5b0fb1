"""What a run was made of, as documents tell it: the suite as a file would say it, without secrets.

Tests are told one by one, as they may be many; those of a large file are told by its name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from trioeval.grading.webhook_kinds import WEBHOOK
from trioeval.providers.secrets import hide_in
from trioeval.report.json_text import shallow
from trioeval.report.redact import REDACTED, redacted, redacted_judges
from trioeval.report.results import Results
from trioeval.report.row import STRIPPED_PROMPT
from trioeval.suite import Suite, Test
from trioeval.suite.joined import Joined, SparseTests
from trioeval.suite.plain_form import plain_data, plain_prompt, plain_test
from trioeval.suite.strip import Strip

_OWN = ("TRIOEVAL_", "PROMPTFOO_")
"""What variables begin with that say how a run goes; all others may hold a key."""


def config_json(results: Results) -> dict[str, Any]:
    """The suite of a run; its tests stand in it as an iterator, for `json_chunks` and its like."""
    keys = results.keys
    return {
        name: map(partial(hide_in, secrets=keys), part)
        if isinstance(part, Iterator)
        else hide_in(part, keys)
        for name, part in _config_json(results).items()
    }


def _config_json(results: Results) -> dict[str, Any]:
    suite, strip = results.suite, results.info.strip
    default = None if suite.default_test is None else _test(suite.default_test, strip)
    said = plain_data(suite.command_line_options)
    rest = {
        "scenarios": _scenarios(suite, strip),
        "defaultTest": default,
        "env": _env(suite.env),
        "lanes": plain_data(suite.lanes),
        "nunjucksFilters": dict(suite.nunjucks_filters),
        "assertionTypes": dict(suite.assertion_types),
        "derivedMetrics": plain_data(suite.derived_metrics),
        "extensions": list(suite.extensions),
        "outputPath": list(suite.output_path),
        "metadata": {} if strip.metadata else plain_data(suite.metadata),
        "commandLineOptions": _left(said, {"var"} if strip.test_vars else set()),
    }
    return {
        "description": suite.description,
        "tags": dict(suite.tags),
        "providers": [_provider(plain_data(entry)) for entry in suite.providers],
        "prompts": [_prompt(plain_prompt(prompt), strip) for prompt in suite.prompts],
        "tests": _tests(suite.tests, strip),
        **{key: shallow(part) for key, part in rest.items() if part},
        "evaluateOptions": {**options_json(suite), **plain_data(suite.evaluate_options)},
    }


def options_json(suite: Suite) -> dict[str, Any]:
    """How a suite is run, as far as promptfoo says it as well."""
    options = suite.evaluate_options
    return {
        "maxConcurrency": options.max_concurrency,
        "repeat": options.repeat,
        "delay": options.delay,
        "timeoutMs": options.timeout_ms,
        "maxEvalTimeMs": options.max_eval_time_ms,
    }


def _tests(tests: Sequence[Test], strip: Strip) -> Iterator[Any]:
    if isinstance(tests, Joined):
        for part in tests.parts:
            yield from _tests(part, strip)
    elif isinstance(tests, SparseTests):
        yield f"file://{tests.file}"
    else:
        for test in tests:
            yield _test(test, strip)


def _test(test: Test, strip: Strip) -> dict[str, Any]:
    found: dict[str, Any] = shallow(plain_test(test))
    if "provider" in found:
        found["provider"] = _provider(found["provider"])
    if "options" in found:
        prompt = {"prefix", "suffix"} if strip.prompt_text else set()
        found["options"] = _left(redacted(_judged(found["options"])), prompt)
    if "assert" in found:
        found["assert"] = [_assertion(one) for one in found["assert"]]
    hidden = {
        "vars": strip.test_vars,
        "metadata": strip.metadata,
        "providerOutput": strip.response_output,
    }
    return _left(found, (key for key, hides in hidden.items() if hides))


def _assertion(found: Mapping[str, Any]) -> dict[str, Any]:
    members = [_assertion(one) for one in found.get("assert", ())]
    is_webhook = found["type"].endswith(WEBHOOK)
    value = {"value": redacted_judges(found["value"])} if is_webhook else {}
    return {**_judged(found), **value, **({"assert": members} if members else {})}


def _judged(found: Mapping[str, Any]) -> dict[str, Any]:
    """The same without credentials of those who judge."""
    said = {"provider": redacted_judges(found["provider"])} if "provider" in found else {}
    return {**found, **said}


def _scenarios(suite: Suite, strip: Strip) -> list[dict[str, Any]]:
    return [
        {
            **({"description": scenario.description} if scenario.description else {}),
            "config": [_test(test, strip) for test in scenario.config],
            "tests": [_test(test, strip) for test in scenario.tests],
        }
        for scenario in suite.scenarios or ()
    ]


def _prompt(prompt: Mapping[str, Any], strip: Strip) -> dict[str, Any]:
    hidden = dict.fromkeys(("raw", "label"), STRIPPED_PROMPT) if strip.prompt_text else {}
    config = {"config": redacted(shallow(prompt["config"]))} if "config" in prompt else {}
    return {**prompt, **hidden, **config}


def _provider(entry: Mapping[str, Any]) -> dict[str, Any]:
    config = redacted(shallow(entry.get("config", {})))
    env = {"env": _env(entry["env"])} if "env" in entry else {}
    return {"label": None, **entry, "config": config, **env}


def _env(env: Mapping[str, str]) -> dict[str, str]:
    return {
        name: redacted({name: value})[name] if name.startswith(_OWN) else REDACTED
        for name, value in env.items()
    }


def _left(found: Mapping[str, Any], hidden: Iterable[str]) -> dict[str, Any]:
    gone = set(hidden)
    return {key: part for key, part in found.items() if key not in gone}
