"""Rendering of an entry's templates to a request, without a network."""

import datetime as dt
import email
import email.policy
import json
import urllib.parse
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trioeval.errors import ProviderError
from trioeval.providers.generic.auth import Auth
from trioeval.providers.generic.request import (
    CallVariables,
    FieldPart,
    FilePart,
    FormFile,
    JsonBody,
    MultipartBody,
    RequestTemplate,
    text_body,
)
from trioeval.providers.generic.urls import has_dot_segments
from trioeval.providers.http.wire import HttpRequest
from trioeval.templates import Templates

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('{}%#"\\\n\r'))
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
)


def render(prompt: Any = "hi", variables: Any = None, **parts: Any) -> HttpRequest:
    template = RequestTemplate(**{"url": "http://a.example/x", **parts})
    return template.render(CallVariables.of(Templates(strict=True), variables or {}, prompt), {})


def sent(body: Any, prompt: Any = "hi", **variables: Any) -> Any:
    content = render(prompt, variables, body=body).body
    assert content is not None
    return json.loads(content)


def refusal(**parts: Any) -> str:
    with pytest.raises(ProviderError) as caught:
        render(**parts)
    return str(caught.value)


@pytest.mark.slow
@given(ANY_TEXT)
@example("{{ 7 * 7 }}{% raw %}\r\n")
@example('x", "admin": "true')
@example("\n")
def test_a_prompt_is_plain_text_in_every_position(prompt: str) -> None:
    """A prompt cannot end a string, is not a template, and is not changed."""
    for body in (JsonBody({"q": "{{ prompt }}"}), text_body('{"q": "{{prompt}}"}', None)):
        assert sent(body, prompt) == {"q": prompt}


@pytest.mark.slow
@given(ANY_TEXT)
@example("{{ 7 * 7 }}")
@example("a{{{%b")
@example("{{ x \r\n")
def test_a_prompt_beside_other_text_is_unchanged(prompt: str) -> None:
    """The line feed at its end is kept, which templates otherwise remove."""
    assert sent(JsonBody(["<{{prompt}}>"]), prompt) == [f"<{prompt}>"]


@pytest.mark.slow
@given(DATA)
def test_a_variable_alone_in_a_text_keeps_its_type(value: Any) -> None:
    """Lists stay lists and numbers stay numbers, in JSON."""
    assert sent(JsonBody({"a": ["{{ v }}"]}), v=value) == {"a": [value]}


@pytest.mark.slow
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{}")))
def test_a_text_variable_stays_text(value: str) -> None:
    """JSON inside the text is not parsed."""
    assert sent(JsonBody("{{ v }}"), v=value) == value.removesuffix("\n")


CAPTURED = '{% set all %}<{{prompt}}>{% endset %}{"q": "{{ all }}"}'


@pytest.mark.slow
@given(ANY_TEXT)
@example('x", "admin": "true')
@example('"')
@example("1")
@example("a\n")
def test_a_prompt_between_quotes_changes_nothing_else(prompt: str) -> None:
    """This also holds if another value outside of quotes makes the template invalid JSON."""
    for written, expected in (
        ('{"n": {{n}}, "q": "{{prompt}}"}', {"n": 1, "q": prompt}),
        ('{"q": "a{{prompt}}b{{ prompt }}", "n": {{n}}}', {"n": 1, "q": f"a{prompt}b{prompt}"}),
        ('{"q": "{% if n %}<{{- prompt -}}>{% else %}"{% endif %}"}', {"q": f"<{prompt}>"}),
        ('{"q": {% if n %}"\\\\{{prompt}}"{% else %}1{% endif %}}', {"q": f"\\{prompt}"}),
        (CAPTURED + "{# #}", {"q": f"<{prompt}>"}),
        ('{"q": {{prompt | dump}}, "n": {{n}}}', {"n": 1, "q": prompt}),
    ):
        assert sent(text_body(written, "application/json"), prompt, n=1) == expected


@pytest.mark.slow
@given(ANY_TEXT)
@example('1, "admin": true')
@example('"a", "b"')
@example("[1]")
@example("}")
def test_a_prompt_outside_of_quotes_must_be_one_value(prompt: str) -> None:
    """It cannot add a member."""
    try:
        expected = json.loads(prompt, parse_constant=lambda _: 1 / 0)
    except (ValueError, ZeroDivisionError):
        if not prompt.strip(" \t\r\n,"):
            return
        message = refusal(
            prompt=prompt, body=text_body('{"n": {{prompt}}, "q": "{{prompt}}"}', None)
        )
        assert message.startswith("bad_request: the body has a template outside of quotes")
    else:
        data = sent(text_body('{"n": {{prompt}}, "q": "{{prompt}}"}', None), prompt)
        assert data == {"n": expected, "q": prompt}


def test_a_json_template_may_contain_loops_and_blocks() -> None:
    """Loops may print commas; captured blocks may be printed again."""
    body = text_body(
        '[{% for x in xs %}{"q": "{{x}}", "p": "{{prompt}}"}{{ ", " if not loop.last }}{% endfor %}]',
        "application/json",
    )
    quoted = 'say "hi"'
    assert sent(body, quoted, xs=['"', 1]) == [
        {"q": '"', "p": quoted},
        {"q": "1", "p": quoted},
    ]
    whole = '{% set all %}{"q": "{{prompt}}"}{% endset %}[{{ all }}, {{ n }}]'
    assert sent(text_body(whole, "application/json"), quoted, n=1) == [{"q": quoted}, 1]
    loud = '{% set all %}<{{prompt}}>{% endset %}{"q": "{{ all | upper }}"}'
    assert sent(text_body(loud, "application/json"), quoted) == {"q": '<SAY "HI">'}
    raw = '{"q": "{{prompt}}", "r": "{% raw %}{{prompt}}{% endraw %}", "n": {{n}}}'
    assert sent(text_body(raw, None), quoted, n=1) == {"q": quoted, "r": "{{prompt}}", "n": 1}


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        (
            '{"n": {{n}}{% set all %}<{{prompt}}>{% endset %}, "q": "{{ all.slice(0, 35) }}"}',
            "prints a part of a captured block; print the whole block",
        ),
        ('{"n": {{n}}, "q": "\\{{prompt}}"}', "has a backslash before a template"),
        ('{"n": {{n}}, "q": }', "is not JSON when its variables are filled in"),
        (
            '{"n": {{n}}{% set all %}<{{prompt}}>{% endset %}, "q": "{{ all.slice(21) }}"}',
            "prints a part of a captured block; print the whole block",
        ),
        (
            '{"n": {{n}}, "m": {{prompt}}}',
            "has a template outside of quotes that does not print a JSON value",
        ),
    ],
)
def test_a_body_that_is_invalid_json_is_reported(written: str, fault: str) -> None:
    """The message does not show the value."""
    message = refusal(prompt='x", "admin": true', variables={"n": 1}, body=text_body(written, None))
    assert message == f"bad_request: the body {fault}"


def test_an_invalid_template_in_a_body_is_reported() -> None:
    """The entry's reader reports it; here rendering fails."""
    assert "not a template" in refusal(variables={"n": 1}, body=text_body('{"q": {% nix %}}', None))


def test_escaping_applies_inside_variables() -> None:
    """Escaping also applies to variables with templates or structured values."""
    body = text_body('{"n": {{n}}, "q": "{{a}} {{b.c}} {{d[0]}}"}', None)
    values = {"n": 1, "a": 'say "{{e}}"', "e": 'x"', "b": {"c": 'y"'}, "d": ['"z', 5]}
    assert sent(body, **values) == {"n": 1, "q": 'say "x"" y" "z'}
    assert sent(body, **{**values, "e": "{{nowhere}}"})["q"] == 'say "{{nowhere}}" y" "z'
    assert sent(body, **{**values, "a": '"{{nowhere}}'})["q"] == '"{{nowhere}} y" "z'


@pytest.mark.parametrize(
    ("written", "content_type", "prompt", "data", "declared"),
    [
        ("q={{prompt}}", None, "a", b"q=a", "text/plain; charset=utf-8"),
        ("{{prompt}}", None, "{a", b"{a", "text/plain; charset=utf-8"),
        ("{% if 1 %}é{% endif %}", None, "a", "é".encode(), "text/plain; charset=utf-8"),
        ("{{prompt}}", "application/json", "[1]", b"[1]", "application/json"),
        ("[1, {{prompt}}]", None, "2", b"[1, 2]", "application/json"),
        ('["{{prompt}}"]', "text/plain", 'a"', b'["a""]', "text/plain; charset=utf-8"),
    ],
)
def test_a_text_is_json_if_it_looks_like_it_or_is_declared(
    written: str, content_type: str | None, prompt: str, data: bytes, declared: str
) -> None:
    """A text that starts with a template does not count as JSON."""
    request = render(prompt, body=text_body(written, content_type))
    assert (request.body, request.headers["content-type"]) == (data, declared)


def test_requests_that_cannot_be_sent_name_the_place() -> None:
    """The message does not show the value, which may be secret."""
    assert refusal(body=JsonBody("{{ x }}")) == (
        "bad_request: the body: {{ x }} is not defined; the test has prompt"
    )
    assert refusal(variables={"d": dt.date(2026, 1, 1)}, body=JsonBody("{{d}}")) == (
        "bad_request: the body is not JSON: Object of type date is not JSON serializable"
    )
    assert refusal(variables={"d": float("nan")}, body=JsonBody("{{d}}")).startswith(
        "bad_request: the body is not JSON: "
    )
    assert refusal(prompt="[", body=text_body("{{prompt}}", "application/json")) == (
        "bad_request: the body has a template outside of quotes that does not print a JSON value"
    )
    assert refusal(prompt="a\nb: c", headers={"x": "{{prompt}}"}) == (
        'bad_request: the header "x" is not printable ASCII text'
    )
    assert refusal(prompt="x", url="{{prompt}}/chat") == (
        "bad_request: the url must be an http or https URL with a host when its variables are filled in"
    )
    assert refusal(prompt="[", url="http://{{prompt}}") == (
        "bad_request: the url must be an http or https URL with a host when its variables are filled in"
    )
    assert refusal(prompt={"a": 1}, body=text_body("text", None)) == (
        "bad_request: transformRequest returned an object, but the body is text"
    )


@pytest.mark.parametrize(
    ("method", "body", "prompt", "sent_method"),
    [
        (None, None, "a", "GET"),
        (None, JsonBody(1), "a", "POST"),
        ("GET", JsonBody(1), "a", "GET"),
        ("PUT", None, "a", "PUT"),
        (None, None, {"made": "by code"}, "POST"),
    ],
)
def test_a_request_with_a_body_is_a_post_by_default(
    method: str | None, body: Any, prompt: Any, sent_method: str
) -> None:
    """A body is never dropped."""
    request = render(prompt, method=method, body=body)
    assert request.method == sent_method
    assert (request.body is None) == (body is None and isinstance(prompt, str))


@pytest.mark.slow
@given(ANY_TEXT.filter(lambda text: not text.endswith("\n")))
def test_a_parameter_is_decoded_unchanged(prompt: str) -> None:
    """No value can end its parameter."""
    auth = Auth(query={"key": "a&b"})
    url = render(prompt, url="http://a.example?x=1", query={"q": "{{prompt}}"}, auth=auth).url
    pairs = urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query, keep_blank_values=True)
    assert pairs == [("x", "1"), ("q", prompt), ("key", "a&b")]


@pytest.mark.slow
@given(ANY_TEXT.filter(lambda text: not has_dot_segments(f"http://a.example/{text}")))
def test_any_value_gives_a_url_that_can_be_sent(prompt: str) -> None:
    """Invalid characters are encoded; the host is unchanged."""
    url = render(prompt, url="http://a.example/say/{{prompt}}").url
    assert url.startswith("http://a.example/say/")
    assert url.isascii()
    assert url.isprintable()
    assert " " not in url


@pytest.mark.slow
@given(
    st.lists(
        st.builds(FieldPart, st.text('ab"\r\nö', min_size=1), st.text("ab-\r\n"))
        | st.builds(FilePart, st.just("f"), st.sampled_from("xyz"), st.just('a"\n.txt')),
        min_size=1,
    ),
    st.binary(),
)
def test_a_form_is_parsed_into_its_parts(parts: list[FieldPart | FilePart], data: bytes) -> None:
    """No part can end another one, as the standard library's parser shows."""
    files = {part: FormFile(Path("p"), data) for part in parts if isinstance(part, FilePart)}
    template = RequestTemplate(url="http://a.example", body=MultipartBody(tuple(parts)))
    assert set(template.files) == set(files)
    request = template.render(CallVariables.of(Templates(strict=True), {}, "hi"), files)
    assert request.body is not None
    boundary = request.headers["content-type"].partition("boundary=")[2].encode()
    assert request.body.count(b"--" + boundary) == len(parts) + 1
    head = f"content-type: {request.headers['content-type']}\r\n\r\n".encode()
    message = email.message_from_bytes(head + request.body, policy=email.policy.HTTP)
    read = list(message.iter_parts())
    assert len(read) == len(parts)
    assert [one.get_filename() is not None for one in read] == [
        isinstance(part, FilePart) for part in parts
    ]


@pytest.mark.parametrize(
    "climb", ["..", ".", "x/../y", "%2e%2E", "..%2fadmin", "..\\admin", "..;a=b", "/.."]
)
def test_a_value_cannot_leave_its_path(climb: str) -> None:
    """Plain and encoded dot segments are refused."""
    message = refusal(prompt=climb, url="http://a.example/chat/{{prompt}}/x")
    assert message == (
        'bad_request: the url has a path with "." or ".." when its variables are filled in'
    )


@pytest.mark.parametrize("name", ["a..b", "...", ".hidden", "v1.2"])
def test_dots_in_names_are_literal(name: str) -> None:
    """Dots in names and queries, and paths of the suite itself, are unchanged."""
    request = render(name, url="http://a.example/{{prompt}}?p=../{{prompt}}")
    assert request.url == f"http://a.example/{name}?p=../{name}"
    assert render(url="http://a.example/x/../y").url == "http://a.example/x/../y"
