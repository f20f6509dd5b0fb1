"""A judge for tests: renders prompts normally, returns given replies, and records its requests."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, cast

import attrs
import jinja2
import trio

from trioeval.errors import GradingError
from trioeval.evaluation.grader_calls import gather_in_order
from trioeval.grading import KINDS, Assertion, Finding, Subject, Verdict
from trioeval.grading.grade import make_ready, verdict_of
from trioeval.grading.kind import ExternalJudge
from trioeval.grading.services import Commands, ExternalServices, Flag, JudgeReply, ScriptRunner

PROSE = "I think that the output is quite good, all in all."
HTML = "<!doctype html><html><body><h1>502 Bad Gateway</h1></body></html>"
NO_VERDICTS = {
    "prose": PROSE,
    "html": HTML,
    "list": "[1, 2, 3]",
    "empty object": "{}",
    "cut off": '{"pass": true, "score": 1',
    "null": "null",
    "a megabyte": "x{" * 500_000,
    "deep": '{"a":' * 5000,
}
"""Replies from which no object can be read."""


@attrs.frozen
class JudgeRequest:
    """A request to a judge."""

    prompt: str
    schema: Mapping[str, Any] | None
    again: bool


@attrs.define(eq=False)
class Judge:
    """Answers requests one after another, or each by a function; a reply that is an error is raised."""

    replies: Sequence[Any] | Callable[[str], Any] = ()
    vectors: Mapping[str, Sequence[float]] = attrs.field(factory=dict)
    scores: Mapping[str, float] = attrs.field(factory=dict)
    flags: Sequence[Flag] = ()
    prompts: Mapping[int | str | None, str] = attrs.field(factory=dict)
    """The prompts of the user, by part."""
    requests: list[JudgeRequest] = attrs.field(factory=list)
    embedded: list[str] = attrs.field(factory=list)
    moderated: list[tuple[str, str]] = attrs.field(factory=list)
    rendered: list[Mapping[str, Any]] = attrs.field(factory=list)

    def render(self, own: str, names: Mapping[str, Any], *, part: int | str | None = None) -> str:
        self.rendered.append(names)
        template = self.prompts.get(part, own)
        environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)  # noqa: S701 - text

        def fill(text: str) -> str:
            return environment.from_string(text).render(names)

        if not template.startswith("["):
            return fill(template)
        messages = json.loads(template)
        return json.dumps([{**one, "content": fill(one["content"])} for one in messages])

    async def ask(
        self, prompt: str, *, schema: Mapping[str, Any] | None = None, again: bool = False
    ) -> JudgeReply:
        await trio.lowlevel.checkpoint()
        place = len(self.requests)
        self.requests.append(JudgeRequest(prompt, schema, again))
        reply = self.replies(prompt) if callable(self.replies) else self.replies[place]
        if isinstance(reply, Exception):
            raise reply
        return JudgeReply(reply if isinstance(reply, str) else json.dumps(reply), reply)

    async def embed(self, text: str) -> Sequence[float]:
        await trio.lowlevel.checkpoint()
        self.embedded.append(text)
        if text not in self.vectors:
            raise GradingError("no vector")
        return self.vectors[text]

    async def classify(self, text: str) -> Mapping[str, float]:
        del text
        await trio.lowlevel.checkpoint()
        return self.scores

    async def moderate(self, prompt: str, text: str) -> Sequence[Flag]:
        await trio.lowlevel.checkpoint()
        self.moderated.append((prompt, text))
        return self.flags


async def _nobody(*_args: Any) -> NoReturn:  # noqa: ASYNC124 - it never gets so far
    raise AssertionError("nothing is sent anywhere")


def outside_of(judge: Judge, **settings: Any) -> ExternalServices:
    """Return the services of a judge: only this judge."""
    return ExternalServices(
        grader=judge,
        code=cast("ScriptRunner", None),
        post=_nobody,
        run=cast("Commands", _nobody),
        together=gather_in_order,
        **settings,
    )


def find(
    judge: Judge,
    type_name: str,
    value: Any = None,
    *,
    subject: Subject | str = "the output",
    settings: Mapping[str, Any] | None = None,
    **assertion: Any,
) -> Finding:
    """Return the finding of a type with this judge."""
    if isinstance(subject, str):
        subject = Subject.of(subject, prompt="the prompt")
    wanted = Assertion(type=type_name, value=value, **assertion)
    kind = KINDS[type_name.removeprefix("not-")].judge
    assert isinstance(kind, ExternalJudge)
    outside = outside_of(judge, **(settings or {}))
    return trio.run(kind.judge, subject, value, wanted, outside)


def verdict(finding: Finding, type_name: str, value: Any = None, **assertion: Any) -> Verdict:
    """Return the verdict of a finding."""
    wanted = Assertion(type=type_name, value=value, **assertion)
    return verdict_of(make_ready(wanted, str, KINDS), finding)
