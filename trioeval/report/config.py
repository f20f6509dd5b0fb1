"""What a run was made of, as documents tell it: the suite as a file would say it, without secrets.

Tests are told one by one, as they may be many; those of a large file are told by its name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from trioeval.grading.command_kinds import COMMAND
from trioeval.grading.webhook_kinds import WEBHOOK
from trioeval.providers.secrets import hide_in
from trioeval.report.json_text import shallow
from trioeval.report.records import STRIPPED_PROMPT, left
from trioeval.report.redact import REDACTED, redacted, redacted_command, redacted_judges
from trioeval.suite import Suite, Test
from trioeval.suite.joined import Joined, SparseTests
from trioeval.suite.models import WIDTH
from trioeval.suite.plain_form import plain_data, plain_prompt, plain_test
from trioeval.suite.strip import KEEP_ALL, Strip

_OWN = ("TRIOEVAL_", "PROMPTFOO_")
"""What variables begin with that say how a run goes; all others may hold a key."""


def config_json(suite: Suite, keys: Sequence[str] = ()) -> dict[str, Any]:
    """The suite of a run without its tests.

    Args:
        suite: Any suite.
        keys: Texts that must not stand in it; see `keys_of`.
    """
    default = None if suite.default_test is None else _test(suite.default_test)
    rest = {
        "scenarios": _scenarios(suite),
        "defaultTest": default,
        "env": _env(suite.env),
        "lanes": plain_data(suite.lanes),
        "nunjucksFilters": dict(suite.nunjucks_filters),
        "assertionTypes": dict(suite.assertion_types),
        "derivedMetrics": plain_data(suite.derived_metrics),
        "extensions": list(suite.extensions),
        "outputPath": list(suite.output_path),
        "metadata": plain_data(suite.metadata),
        "commandLineOptions": plain_data(suite.command_line_options),
    }
    found: dict[str, Any] = hide_in(
        {
            "description": suite.description,
            "tags": dict(suite.tags),
            "providers": [_provider(plain_data(entry)) for entry in suite.providers],
            "prompts": [_prompt(plain_prompt(prompt)) for prompt in suite.prompts],
            **{key: shallow(part) for key, part in rest.items() if part},
            "evaluateOptions": {**options_json(suite), **plain_data(suite.evaluate_options)},
        },
        keys,
    )
    return found


def config_tests(suite: Suite, keys: Sequence[str] = ()) -> Iterator[Any]:
    """The tests of a suite, one by one; those of a large file are its name.

    Args:
        suite: Any suite.
        keys: Texts that must not stand in them.
    """
    return (hide_in(test, keys) for test in _tests(suite.tests))


def stripped_config(config: Mapping[str, Any], strip: Strip) -> dict[str, Any]:
    """What `config_json` made, without what is left out."""
    if strip == KEEP_ALL:
        return dict(config)
    found = {
        **config,
        "prompts": [_stripped_prompt(prompt, strip) for prompt in config["prompts"]],
    }
    if "scenarios" in config:
        found["scenarios"] = [
            {
                **scenario,
                "config": [stripped_test(test, strip) for test in scenario["config"]],
                "tests": [stripped_test(test, strip) for test in scenario["tests"]],
            }
            for scenario in config["scenarios"]
        ]
    rest = {
        "defaultTest": stripped_test(config.get("defaultTest", {}), strip),
        "metadata": {} if strip.metadata else config.get("metadata"),
        "commandLineOptions": _without(
            config.get("commandLineOptions", {}), {"var"} if strip.test_vars else ()
        ),
    }
    return {name: rest.get(name, part) for name, part in found.items() if rest.get(name, True)}


def stripped_test(test: Any, strip: Strip) -> Any:
    """One of what `config_tests` made, without what is left out."""
    if not isinstance(test, Mapping):
        return test
    hidden = {
        "vars": strip.test_vars,
        "metadata": strip.metadata,
        "providerOutput": strip.response_output,
    }
    found = left(test, (key for key, hides in hidden.items() if hides))
    # Files of others may say anything.
    if strip.prompt_text and isinstance(found.get("options"), Mapping):
        found["options"] = left(found["options"], ("prefix", "suffix"))
    return found


def _without(found: Any, hidden: Iterable[str]) -> Any:
    return left(found, hidden) if isinstance(found, Mapping) else found


def _stripped_prompt(prompt: Any, strip: Strip) -> Any:
    hidden = dict.fromkeys(("raw", "label"), STRIPPED_PROMPT) if strip.prompt_text else {}
    return {**prompt, **hidden} if isinstance(prompt, Mapping) else hidden or prompt


def options_json(suite: Suite) -> dict[str, Any]:
    """How a suite is run, as far as promptfoo says it as well."""
    options = suite.evaluate_options
    return {
        "maxConcurrency": options.max_concurrency or WIDTH,
        "repeat": options.repeat,
        "delay": options.delay,
        "timeoutMs": options.timeout_ms,
        "maxEvalTimeMs": options.max_eval_time_ms,
    }


def _tests(tests: Sequence[Test]) -> Iterator[Any]:
    if isinstance(tests, Joined):
        for part in tests.parts:
            yield from _tests(part)
    elif isinstance(tests, SparseTests):
        yield f"file://{tests.file}"
    else:
        for test in tests:
            yield _test(test)


def _test(test: Test) -> dict[str, Any]:
    found: dict[str, Any] = shallow(plain_test(test))
    if "provider" in found:
        found["provider"] = _provider(found["provider"])
    if "options" in found:
        found["options"] = redacted(_judged(found["options"]))
    if "assert" in found:
        found["assert"] = [_assertion(one) for one in found["assert"]]
    return found


def _assertion(found: Mapping[str, Any]) -> dict[str, Any]:
    members = [_assertion(one) for one in found.get("assert", ())]
    is_webhook = found["type"].endswith(WEBHOOK)
    value = {"value": redacted_judges(found["value"])} if is_webhook else {}
    if found["type"].endswith(COMMAND) and "value" in found:
        value = {"value": redacted_command(found["value"])}
    return {**_judged(found), **value, **({"assert": members} if members else {})}


def _judged(found: Mapping[str, Any]) -> dict[str, Any]:
    """The same without credentials of those who judge."""
    said = {"provider": redacted_judges(found["provider"])} if "provider" in found else {}
    return {**found, **said}


def _scenarios(suite: Suite) -> list[dict[str, Any]]:
    return [
        {
            **({"description": scenario.description} if scenario.description else {}),
            "config": [_test(test) for test in scenario.config],
            "tests": [_test(test) for test in scenario.tests],
        }
        for scenario in suite.scenarios or ()
    ]


def _prompt(prompt: Mapping[str, Any]) -> dict[str, Any]:
    config = {"config": redacted(shallow(prompt["config"]))} if "config" in prompt else {}
    return {**prompt, **config}


def _provider(entry: Mapping[str, Any]) -> dict[str, Any]:
    config = redacted(shallow(entry.get("config", {})))
    env = {"env": _env(entry["env"])} if "env" in entry else {}
    return {"label": None, **entry, "config": config, **env}


def _env(env: Mapping[str, str]) -> dict[str, str]:
    return {
        name: redacted({name: value})[name] if name.startswith(_OWN) else REDACTED
        for name, value in env.items()
    }
