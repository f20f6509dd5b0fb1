"""Restrictions on the tests of an untrusted suite that depend on its providers: other servers, code."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from trioeval.documents.trust import LEAVE_OUT
from trioeval.errors import Problem
from trioeval.grading import Assertion, quote
from trioeval.grading.algebra import leaves
from trioeval.grading.registry import WEBHOOK, split_type
from trioeval.providers.config import to_snake
from trioeval.providers.generic.reply import read_transform
from trioeval.providers.generic.urls import fixed_host
from trioeval.scripting.javascript import Script, is_function
from trioeval.suite.expand import Expansion
from trioeval.suite.model import Test
from trioeval.suite.tests import checked_places

_FILE = "file://"


def foreign_webhooks(steps: Expansion, hosts: Collection[str | None]) -> Iterator[Problem]:
    """Yield webhooks on hosts that no provider uses.

    Args:
        steps: The steps with the tests to check.
        hosts: The hosts of the providers.
    """
    for path, test in _tests(steps):
        for below, url in _webhooks(test.assertions):
            host = fixed_host(url)
            if host is None or host not in hosts:
                named = (
                    "the host of this webhook is a template"
                    if host is None
                    else f"{host} is not one of them"
                )
                message = (
                    f"an untrusted suite may only call the hosts of its providers, and {named}"
                )
                hint = "name the server among the providers, or leave the webhook out"
                yield Problem(f"{path}{below}.value", message, hint)


def code_of_calls(steps: Expansion) -> Iterator[Problem]:
    """Yield options of prompts and tests that are code of a provider's call."""
    for place, prompt in enumerate(steps.suite.prompts):
        yield from _code(f"$.prompts[{place}].config", prompt.config)
    for path, test in _tests(steps):
        yield from _code(f"{path}.options", test.options.overrides)


def _tests(steps: Expansion) -> Iterator[tuple[str, Test]]:
    if steps.suite.default_test is not None:
        yield "$.defaultTest", steps.suite.default_test
    for place in checked_places(steps.tests):
        yield steps.path_of(place), steps.tests[place]


def _webhooks(assertions: Sequence[Assertion]) -> Iterator[tuple[str, str]]:
    for place, assertion in leaves(assertions):
        if split_type(assertion.type)[0] == WEBHOOK and isinstance(assertion.value, str):
            yield "".join(f".assert[{number}]" for number in place), assertion.value


def _code(path: str, options: Mapping[str, Any]) -> Iterator[Problem]:
    for key, text in options.items():
        if isinstance(text, str) and _is_code(to_snake(key), text):
            message = f"{quote(text)} is code, and an untrusted suite runs none"
            yield Problem(f"{path}.{key}", message, LEAVE_OUT)


def _is_code(key: str, text: str) -> bool:
    match key:
        case "transform_request":
            return text.startswith(_FILE) or is_function(text)
        case "transform_response" | "response_parser":
            return text.startswith(_FILE) or isinstance(read_transform(text), Script)
        case "stream_response":
            return True
        case _:
            return False
