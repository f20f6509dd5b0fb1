"""Selection of the output in a reply."""

import builtins
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.providers.generic.reply import (
    NOTHING,
    Transform,
    TransformError,
    TransformInput,
    read_transform,
    script_output,
)
from trioeval.scripting.engine import program
from trioeval.scripting.javascript import Script

DATA = {
    "choices": [{"message": {"content": "hello"}}, {"message": {"content": "bye"}}],
    "a-b": {"it's": 1},
    "n": None,
    "zero": 0,
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def transform(text: str) -> Transform:
    read = read_transform(text)
    assert not isinstance(read, str | Script), read
    return read


def output_of(text: str, of: TransformInput) -> Any:
    read = read_transform(text)
    if isinstance(read, Script):
        return script_output(read, program.run(read.source, of.arguments()))
    assert not isinstance(read, str), read
    return read.apply(of)


def answer(data: Any = DATA, text: str = "raw") -> TransformInput:
    context = {"response": {"status": 200, "headers": {"x-id": "7"}}, "vars": {"v": 1}}
    return TransformInput(json=data, text=text, context=context)


@pytest.mark.parametrize(
    ("written", "output"),
    [
        ("json.choices[0].message.content", "hello"),
        (" json?.choices?.[1]?.message['content'] ", "bye"),
        ('json["a-b"]["it\'s"]', 1),
        ("json", DATA),
        ("json.zero", 0),
        ("text", "raw"),
        ("context.response.headers['x-id']", "7"),
        ("context.vars.v", 1),
        ("$.choices[0].message.content", "hello"),
        ("$.choices[*].message.content", ["hello", "bye"]),
        ("$..content", ["hello", "bye"]),
        ("$['zero']", 0),
        ("jmespath: choices[-1].message.content", "bye"),
        ("jmespath:choices[].message.content | join(' ', @)", "hello bye"),
        ("json.choices.map(c => c.message.content).join('+')", "hello+bye"),
        (
            "(json, text, context) => ({ output: text + context.response.status })",
            {"output": "raw200"},
        ),
        ("function read(json) { return json.zero; }", 0),
        ("json.choices.length", 2),
        ("`${text}!`", "raw!"),
        ("({json}) => 1", 1),
    ],
)
def test_each_form_of_a_transform_finds_its_value(written: str, output: Any) -> None:
    """The form determines the language."""
    assert output_of(written, answer()) == output


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("json.choices[2].message", "json.choices[2].message finds nothing in the reply"),
        ("json.n", "json.n finds nothing in the reply"),
        ("json.zero.more", "json.zero.more finds nothing in the reply"),
        ("$.missing", "$.missing finds nothing in the reply"),
        ("$.n", "$.n finds nothing in the reply"),
        ("$..missing", "$..missing finds nothing in the reply"),
        ("jmespath:missing", "missing finds nothing in the reply"),
        (
            "jmespath:length(zero)",
            (
                "length(zero) fails: In function length(), invalid type for value: 0, expected one of: "
                "['string', 'array', 'object'], received: \"number\""
            ),
        ),
        ("json.n + null || undefined", '"json.n + null || undefined" finds nothing in the reply'),
        (
            "json.missing.more()",
            "\"json.missing.more()\" fails: TypeError: cannot read property 'more' of undefined",
        ),
        (
            "async () => { throw 1 }",
            '"async () => { throw 1 }" fails: 1',
        ),
        (
            "() => { throw new Error('no') }",
            "\"() => { throw new Error('no') }\" fails: Error: no",
        ),
    ],
)
def test_a_transform_that_finds_nothing_is_reported(written: str, message: str) -> None:
    """No output is invented."""
    with pytest.raises(TransformError) as caught:
        output_of(written, answer())
    assert str(caught.value) == message


def test_a_reply_that_is_too_deep_for_a_path_is_reported() -> None:
    """The message is one line, like every message."""
    data: Any = 1
    for _ in range(300):
        data = {"a": data}
    with pytest.raises(TransformError) as caught:
        transform("$..b").apply(answer(data))
    assert str(caught.value) == "$..b fails: recursion limit exceeded"


@pytest.mark.parametrize("written", ["json.a", "$.a", "jmespath:a"])
def test_paths_into_json_need_json(written: str) -> None:
    """An error page is reported as such."""
    with pytest.raises(TransformError, match=r"the reply is not JSON, which .*a needs"):
        transform(written).apply(answer(NOTHING))


def test_code_gets_null_for_a_reply_that_is_not_json() -> None:
    """Code may use the text instead."""
    assert output_of("json ?? text", answer(NOTHING)) == "raw"


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        ("$.a[", "is not a valid JSONPath: unexpected end of query"),
        ("jmespath:a[", "is not a valid JMESPath: "),
        ("jmespath:", "is not a valid JMESPath: "),
        ("json.a +", "is not JavaScript: SyntaxError: "),
        ("file://read.go", "names a file that is neither Python nor JavaScript; "),
    ],
)
def test_an_invalid_transform_is_reported_before_the_first_call(written: str, fault: str) -> None:
    """The problem has the language's reason."""
    read = read_transform(written)
    assert isinstance(read, str)
    assert read.startswith(fault)


@pytest.mark.slow
def test_code_has_limited_memory_and_recursion() -> None:
    """Both end only the call."""
    for code in ("() => { let a = []; while (true) a.push('x'.repeat(1e5)); }", "(f = () => f())"):
        with pytest.raises(TransformError, match=r"out of memory|Maximum call stack"):
            output_of(code, answer())


def test_calls_share_no_state() -> None:
    """Every call has a separate engine, without access to the machine."""
    count = "globalThis.n = (globalThis.n ?? 0) + 1"
    assert [output_of(count, answer()), output_of(count, answer())] == [1, 1]
    names = ["std", "os", "scriptArgs", "require", "process", "fetch"]
    seen = "+".join(f"typeof globalThis.{name}" for name in names)
    assert output_of(seen, answer()) == "undefined" * len(names)


@pytest.mark.slow
@given(JSON, st.sampled_from(["json.a[0]", "$..a", "$.a.b[0]", "jmespath:a.b[0]", "jmespath:a"]))
def test_a_path_returns_a_value_or_fails(data: Any, written: str) -> None:
    """This holds for any reply."""
    try:
        value = transform(written).apply(answer(data))
    except TransformError:
        return
    assert value is not None
    assert value is not NOTHING


@pytest.mark.slow
@given(st.text())
def test_every_text_is_a_transform_or_has_a_problem(text: str) -> None:
    """No text raises another exception."""
    read = read_transform(text)
    assert isinstance(read, str | Script) or callable(read.apply)


def test_only_the_used_languages_are_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member path needs no library."""
    real = builtins.__import__

    def refuse(name: str, *args: Any) -> Any:
        assert name not in ("jmespath", "jsonpath", "quickjs")
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", refuse)
    assert transform("json.zero").apply(answer()) == 0
