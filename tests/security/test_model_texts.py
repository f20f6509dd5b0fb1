"""The output of a model is data: it is never rendered, opened or run."""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from trioeval import Reply, Request, Row, Status, collect, parse_suite
from trioeval.errors import GradingError
from trioeval.evaluation.shared_data import SharedData
from trioeval.grading import KINDS, Assertion
from trioeval.grading.grade import rendered
from trioeval.providers.generic.request import CallVariables
from trioeval.suite.expand import expand
from trioeval.templates import Templates
from trioeval.testing import run_virtual
from trioeval.text import FromModel, from_model

pytestmark = pytest.mark.attack("texts of models")

PAYLOADS: Mapping[str, str] = {
    "sum": "{{ 40 + 2 }}",
    "environment": "a {{ env.WORD }} b",
    "environment_name": "{{env['WORD']}}",
    "variable": "{{ other }}",
    "itself": "{{ answer }}",
    "function": "{{ range(3) }}",
    "block": "{% if true %}yes{% endif %}",
    "set": "{% set other = 'x' %}{{ other }}",
    "raw": "{% raw %}{{ other }}",
    "raw_end": "{% endraw %}{{ env.WORD }}{% raw %}",
    "comment": "before{# gone #}after",
    "unclosed": "{{ other",
    "half": "{ env.WORD }}",
    "meanings": "$& $` $' $$",
    "file": "file:///etc/hostname",
    "program": "exec: touch hostile",
    "python": "' + str(open('/etc/hostname').read()) + '",
}


@attrs.frozen
class Used:
    """The row that used an output, and its requests."""

    row: Row
    requests: Sequence[Request]


def uses(
    second: Mapping[str, Any], *, says: Mapping[str, str] = PAYLOADS, **keys: Any
) -> Mapping[str, Used]:
    """Make, for each text, a row that stores it in a register, and one that uses it, in one run."""
    requests: list[Request] = []

    async def model(request: Request) -> Reply:
        requests.append(request)
        return Reply(output=says[request.vars["name"]] if request.vars["step"] == 1 else "done")

    async def judge(request: Request) -> Reply:
        requests.append(request)
        return Reply(output='{"pass": true, "score": 1, "reason": "ok"}')

    suite = {
        "env": {"WORD": "s3cret-word"},
        "providers": ["model"],
        "prompts": ["{{ x }}"],
        **keys,
        "tests": [
            test
            for name in says
            for test in (
                {
                    "vars": {"name": name, "step": 1, "x": "first"},
                    "options": {"storeOutputAs": "answer"},
                    "metadata": {"conversationId": name},
                },
                {
                    "vars": {"name": name, "step": 2, "other": "OTHER", "x": "", **second["vars"]},
                    "assert": second.get("assert", []),
                    "metadata": {"conversationId": name},
                },
            )
        ],
    }
    providers = {"model": model, "judge": judge}
    rows = run_virtual(lambda: collect(parse_suite(suite), providers=providers))
    return {
        name: Used(
            rows[2 * place + 1],
            [one for one in requests if one.vars["name"] == name and one.vars["step"] == 2],
        )
        for place, name in enumerate(says)
    }


PROMPTS: Mapping[str, tuple[Mapping[str, Any], str, Callable[[str], str]]] = {
    "prompt": ({}, "<{{ answer }}>", "<{}>".format),
    "prompt_of_json": (
        {},
        '["<{{ answer }}>"]',
        lambda text: json.dumps([f"<{text}>"], indent=2, ensure_ascii=False),
    ),
    "filter": ({}, "<{{ answer | default('') | trim }}>", "<{}>".format),
    "block": ({}, "{% if answer %}<{{ answer }}>{% endif %}", "<{}>".format),
    "variable": ({"x": "<{{ answer }}>"}, "{{ x }}", "<{}>".format),
    "variable_of_filter": ({"x": "<{{ answer | trim }}>"}, "{{ x }}", "<{}>".format),
    "variable_twice": ({"x": "{{ answer }}|{{answer}}"}, "{{ x }}", "{0}|{0}".format),
    "variable_of_variable": ({"x": "<{{ y }}>", "y": "{{ answer }}"}, "{{ x }}", "<{}>".format),
    "variable_beside_others": (
        {"x": "{{ other }} {{ answer }} {{ 1 + 1 }}"},
        "{{ x }}",
        "OTHER {} 2".format,
    ),
    "register_goes_over_a_variable": ({"answer": "{{ other }}"}, "<{{ answer }}>", "<{}>".format),
    "conversation": (
        {},
        "{% for turn in _conversation %}<{{ turn.output }}>{% endfor %}",
        "<{}>".format,
    ),
}


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("carrier", PROMPTS)
def test_an_output_is_sent_unchanged(carrier: str, payload: str) -> None:
    """This covers prompts, variables of prompts, and later turns; it names no file either."""
    *_, expected = PROMPTS[carrier]
    used = _by_prompt(carrier)[payload]
    assert used.row.error is None
    assert used.requests[0].prompt == used.row.prompt == expected(PAYLOADS[payload])
    assert "s3cret-word" not in json.dumps(dict(used.requests[0].vars))


@functools.cache
def _by_prompt(carrier: str) -> Mapping[str, Used]:
    variables, prompt, _ = PROMPTS[carrier]
    return uses({"vars": variables}, prompts=[prompt])


@pytest.mark.parametrize("payload", PAYLOADS)
def test_an_output_in_an_assertion_is_compared_unchanged(payload: str) -> None:
    """This covers values, metrics, and prompts of judges."""
    says, used = PAYLOADS[payload], _judged()[payload]
    verdict = used.row.verdict
    assert verdict is not None
    assert list(verdict.named_scores) == [says]
    (judged,) = [one.prompt for one in used.requests if "as good as" in one.prompt]
    assert json.dumps(f"<{says}>")[1:-1] in judged or f"<{says}>" in judged
    assert "s3cret-word" not in json.dumps([[one.reason for one in verdict.parts], judged])


@functools.cache
def _judged() -> Mapping[str, Used]:
    checks = [
        {"type": "equals", "value": "{{ answer }}", "metric": "{{ answer }}"},
        {"type": "equals", "value": "{{ y }}"},
        {"type": "llm-rubric", "value": "as good as <{{ answer }}>", "provider": "judge"},
    ]
    return uses({"vars": {"y": "<{{ answer }}>"}, "assert": checks})


@pytest.mark.parametrize("kind", ["javascript", "python"])
@pytest.mark.parametrize(
    "value", ["'{{ answer }}' == ''", "{{ y }}", "{% if answer %}{{ answer }}{% endif %}"]
)
def test_an_output_never_becomes_code(kind: str, value: str, tmp_path: Path) -> None:
    """The row is an error that names the right way to read it."""
    mark = tmp_path / "hostile"
    says = f"open('{mark}', 'w')"
    second = {"vars": {"y": "{{ answer }}"}, "assert": [{"type": kind, "value": value}]}
    row = uses(second, says={"code": says})["code"].row
    assert row.status is Status.ERROR
    assert "would contain text of a model" in str(row.error)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("value", "is_refused"),
    [
        ("{{ answer }}", True),
        ("grep {{ answer }}", True),
        (["{{ answer }}"], True),
        ({"command": "grep {{ answer }}"}, True),
        ({"command": ["{{ answer }}", "x"]}, True),
        (["test", "{{ answer }}", "=", "a"], False),
        ({"command": ["test", "{{ answer }}"]}, False),
    ],
    ids=str,
)
def test_an_output_is_an_argument_of_a_command_and_never_its_name(
    value: Any, *, is_refused: bool
) -> None:
    """After the program it is one word, whatever its contents."""
    templates = Templates()

    def fill(text: str) -> str:
        return templates.fill(text, {"answer": from_model("a b; touch hostile")})

    with pytest.raises(GradingError, match="text of a model") if is_refused else nullcontext():
        ready = rendered(Assertion(type="command", value=value), fill, KINDS)
        words = ready.value["command"] if isinstance(ready.value, dict) else ready.value
        assert words[1] == "a b; touch hostile"


REQUESTS: Mapping[str, Any] = {
    "whole": "{{ answer }}",
    "within": "<{{ answer }}>",
    "prompt": "<{{ prompt }}>",
    "nested": {"a": ["<{{ y }}>"]},
    "filter": "<{{ answer | trim }}>",
}


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("carrier", REQUESTS)
def test_an_output_in_a_request_is_sent_unchanged(carrier: str, payload: str) -> None:
    """Bodies, headers and URLs of the suite are templates; the inserted values are not."""
    says = PAYLOADS[payload]
    templates = Templates(env={"WORD": "s3cret-word"})
    given = {"answer": from_model(says), "y": "{{ answer }}", "other": "OTHER"}
    filling = CallVariables.of(templates, given, says)
    made = json.dumps(filling.data(REQUESTS[carrier], "body"), ensure_ascii=False)
    assert json.dumps(says, ensure_ascii=False)[1:-1] in made


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("carrier", ["prompt", "variable", "request"])
def test_a_cell_of_a_dataset_is_sent_unchanged(carrier: str, payload: str) -> None:
    """Rows of another task contain no templates, references or files."""
    says, request = PAYLOADS[payload], _of_cells(carrier)[payload]
    if carrier == "request":
        filling = CallVariables.of(Templates(env={"WORD": "s"}), request.vars, request.prompt)
        assert filling.text("{{ cell }} {{ prompt }}", "body") == f"{says} <{says}>"
    else:
        assert request.prompt == f"<{says}>"


@functools.cache
def _of_cells(carrier: str) -> Mapping[str, Request]:
    requests: dict[str, Request] = {}

    async def model(request: Request) -> Reply:
        requests[request.vars["name"]] = request
        return Reply(output="done")

    suite = parse_suite(
        {
            "env": {"WORD": "s3cret-word"},
            "providers": ["model"],
            "prompts": ["<{{ cell }}>" if carrier == "prompt" else "<{{ x.y[0] }}>"],
            "tests": [{"vars": {}}],
        }
    )
    (test,) = suite.tests
    tests = (
        attrs.evolve(
            test,
            vars={"name": name, "cell": says, "x": {"y": [says]}, "other": "OTHER"},
            is_data=True,
        )
        for name, says in PAYLOADS.items()
    )
    suite = attrs.evolve(suite, tests=tuple(tests))
    run_virtual(lambda: collect(suite, providers={"model": model}))
    return requests


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("carrier", ["prompt", "answer"])
def test_a_simulated_model_returns_an_output_unchanged(carrier: str, payload: str) -> None:
    """Its own text is a template; the prompt and the register in it are not."""
    assert _simulated(carrier)[payload].output == f"<{PAYLOADS[payload]}>"


@functools.cache
def _simulated(carrier: str) -> Mapping[str, Row]:
    suite = {
        "env": {"WORD": "s3cret-word"},
        "providers": [{"id": "sim:m", "config": {"answer": f"<{{{{ {carrier} }}}}>"}}],
        "prompts": ["{{ answer }}"],
        "tests": [
            test
            for says in PAYLOADS.values()
            for test in (
                {"providerOutput": says, "options": {"storeOutputAs": "answer"}},
                {"vars": {"other": "OTHER"}},
            )
        ],
    }
    rows = run_virtual(lambda: collect(parse_suite(suite)))
    return dict(zip(PAYLOADS, rows[1::2], strict=True))


@pytest.mark.parametrize("payload", ["environment", "half"])  # each starts a process
def test_the_result_of_a_function_of_an_output_is_the_prompt(payload: str, tmp_path: Path) -> None:
    """The result of a function is a template, unless the function got outputs of models."""
    (tmp_path / "made.py").write_text(
        "def make(context):\n    return '{' + context['vars'].get('answer', '') + '}'\n"
    )
    says, requests = PAYLOADS[payload], []

    async def model(request: Request) -> Reply:
        requests.append(request.prompt)
        return Reply(output=says)

    suite = parse_suite(
        {
            "env": {"WORD": "s3cret-word"},
            "providers": ["model"],
            "prompts": ["file://made.py:make"],
            "tests": [{"options": {"storeOutputAs": "answer"}}, {"vars": {"x": 1}}],
        },
        directory=tmp_path,
    )
    trio.run(lambda: collect(suite, providers={"model": model}))
    assert requests[1] == "{" + says + "}"


@pytest.mark.parametrize(
    "value", ["{{ x }}", {"a": ["{{ x }}"]}, ["{{ x }}"], {"a": {"b": "{{ x }}"}}], ids=repr
)
def test_registers_mark_their_values_as_outputs(value: Any) -> None:
    """This holds at any depth, for any structure."""
    suite = parse_suite(
        {"providers": ["echo"], "prompts": ["a"], "tests": [{"vars": {"a": 1}}, {"vars": {"a": 2}}]}
    )
    first, second = expand(suite)[0], expand(suite)[1]
    history = SharedData()
    history.store(first, "answer", value)
    history.add_turn(first, "c", {"output": value})
    found: list[Any] = [history.registers(second)["answer"], history.turns(second, "c")]
    while found:
        one = found.pop()
        assert isinstance(one, FromModel)
        found += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
