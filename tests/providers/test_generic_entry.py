"""Entries of HTTP providers, and the problems of wrong ones."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st
from loopback import generic, problems

from trioeval.providers.generic.entry import GenericSettings
from trioeval.providers.generic.keys import KEYS
from trioeval.providers.http.wire import TlsSettings
from trioeval.providers.prices import Price
from trioeval.templates import unclosed_tag

URL = "https://a.example/x"
IN_QUERY = {"type": "api_key", "value": "k-12", "placement": "query"}
SCHEME = ".config.useHttps: the URL already has a scheme\n  leave it out"
HERE = """
from json import dumps
other = lambda json, text, context: [inner := 1]
try:
    def maybe(json, text, context): inner = 2
    class Reader: inner = 3
except ImportError:
    pass
"""
BEARER = {"type": "bearer", "token": "sk-very-secret"}


@pytest.mark.parametrize(
    ("entry_id", "config", "expected"),
    [
        (
            "http",
            {},
            [".id: missing URL\n  write it as the id, or set url or request in the config"],
        ),
        ("https:a.example", {}, [".id: must be an http or https URL with a host"]),
        (
            "http://me:pw@a.example",
            {},
            [".id: must not hold a user or a password; use auth: {type: basic, …}"],
        ),
        (
            "http",
            {"url": "http://me:pw@{{host}}/x"},
            [".config.url: must not hold a user or a password; use auth: {type: basic, …}"],
        ),
        (
            URL,
            {"url": "http://b.example"},
            ['.config.url: the id already has a URL\n  keep one of them; the id may be "http"'],
        ),
        (
            URL,
            {
                "headers": {"x": "{{ a b }}"},
                "body": [{"c": "{% if %}"}],
                "queryParams": {"q": "{{ +"},
            },
            [
                ".config.headers.x: not a template: line 1: expected variable end, got b",
                f".config.queryParams.q: {unclosed_tag('{{ +')}",
                ".config.body[0].c: not a template: line 1: unexpected token: %}",
            ],
        ),
        (
            URL,
            {"headers": {"Authorization": "x", "Content-Length": 3}, "auth": BEARER},
            [
                ".config.headers: auth already sets the header authorization\n  keep one of them",
                ".config.headers: the header content-length belongs to the connection\n  leave it out",
            ],
        ),
        (
            "http",
            {
                "request": "GET /\nHost: b.example\nAuthorization: me",
                "auth": {
                    "type": "oauth",
                    "tokenUrl": "https://a.example",
                    "clientId": "a",
                    "clientSecret": "b",
                },
            },
            [".config.request: auth already sets the header authorization\n  keep one of them"],
        ),
        (
            URL,
            {"headers": {"x\n": "a"}},
            [
                (
                    ".config.headers: must be an object of header names and printable ASCII texts "
                    "(its value is not shown)"
                ),
            ],
        ),
        (
            URL,
            {"body": {"a": 1}, "headers": {"Content-Type": "text/plain"}},
            [
                (
                    ".config.body: an object is sent as JSON, but the headers have another content-type\n"
                    "  write the body as text, or leave the header out"
                ),
            ],
        ),
        (
            URL,
            {"request": "GET /\nHost: b.example", "method": "GET", "query_params": {"a": 1}},
            [
                ".config.method: the request sets it already\n  keep one of them",
                ".config.query_params: the request sets it already\n  keep one of them",
                '.id: the request already has a URL\n  write "https"',
            ],
        ),
        (
            "http",
            {"request": "GET /"},
            ['.config.request: has no Host header; write "Host: example.com"'],
        ),
        (
            "http",
            {"request": "GET ftp://b/"},
            ['.config.request: has no Host header; write "Host: example.com"'],
        ),
        (
            "http",
            {"request": "GET /\nHost: me@b"},
            [
                ".config.request: its URL must not hold a user or a password; use auth: {type: basic, …}"
            ],
        ),
        (
            "http",
            {"request": "file://raw\0"},
            ['.config.request: "raw\\u0000" is not a valid path: embedded null byte'],
        ),
        (
            URL,
            {"transformRequest": "{{ +}}", "tls": {"cert": "here.pem", "certPath": "here.pem"}},
            [
                ".config.transformRequest: not a template: line 1: unexpected token: }}",
                ".config.tls.certPath: is set twice\n  keep one of them",
            ],
        ),
        ("http", {"request": "file://raw.txt"}, ['.config.request: file "raw.txt" not found']),
        (
            URL,
            {"body": "file://latin.txt"},
            [
                (
                    ".config.body: the file cannot be read: 'utf-8' codec can't decode byte 0xff in "
                    "position 0: invalid start byte"
                )
            ],
        ),
        (
            URL,
            {"body": "file://../up.json"},
            ['.config.body: "../up.json" is outside of the suite\'s folder HERE'],
        ),
        (
            URL,
            {"validateStatus": "fine"},
            [
                (
                    '.config.validateStatus: must be "200-299, 404", a status, a list of statuses or a '
                    'comparison such as "status < 500", got "fine"'
                ),
            ],
        ),
        (
            URL,
            {"transformResponse": "$.a[", "transformRequest": "() => {"},
            [
                (
                    ".config.transformRequest: is not JavaScript: SyntaxError: unexpected token in "
                    "expression: ')'"
                ),
                ".config.transformResponse: is not a valid JSONPath: unexpected end of query",
            ],
        ),
        (
            URL,
            {"transformResponse": "file://none.py", "transformRequest": "file://a.js"},
            [
                '.config.transformRequest: file "a.js" not found',
                '.config.transformResponse: file "none.py" not found',
            ],
        ),
        (
            URL,
            {"session": {}, "tokenEstimation": {}, "tls": {"ca": "no.pem", "key": "-----BEGIN"}},
            [
                '.config.session: "session" is not supported',
                '.config.tokenEstimation: "tokenEstimation" is not supported',
                '.config.tls.ca: file "no.pem" not found',
                ".config.tls.key: must name a file, not contain the certificate itself",
                ".config.tls.key: a key requires its certificate\n  set cert as well",
            ],
        ),
        (
            URL,
            {"auth": {"type": "digest"}},
            [
                (
                    '.config.auth.type: "digest" is not a valid type of auth\n'
                    "  use bearer, basic, api_key or oauth"
                ),
            ],
        ),
        (
            URL,
            {"auth": {"type": "file", "path": "x"}},
            [
                (
                    '.config.auth.type: "file" is not supported\n'
                    "  use bearer, basic, api_key or oauth"
                ),
            ],
        ),
        (
            URL,
            {"auth": {"type": "api_key", "keyname": "x", "value": "é"}},
            [
                '.config.auth.keyname: "keyname" is not a key\n  did you mean "keyName"?',
                ".config.auth.value: must be printable ASCII text (its value is not shown)",
                ".config.auth.keyName: missing; auth of type api_key requires it",
            ],
        ),
        (
            URL,
            {
                "auth": {
                    "type": "oauth",
                    "tokenUrl": "x",
                    "clientId": "a",
                    "clientSecret": "b",
                    "grantType": "password",
                }
            },
            [
                '.config.auth.grantType: must be "client_credentials", got "password"',
                ".config.auth.tokenUrl: must be an http or https URL with a host",
            ],
        ),
        (
            URL,
            {"multipart": {"parts": []}},
            [".config.multipart: must be an object with parts, a list of at least one part"],
        ),
        (
            URL,
            {
                "body": "x",
                "headers": {"content-type": "text/plain"},
                "multipart": {
                    "parts": [
                        {"kind": "fild"},
                        {"kind": "field", "name": "a", "valu": "b"},
                        {"kind": "file", "name": "a"},
                        {"kind": "file", "name": "a", "source": {"type": "generated"}},
                        {"kind": "file", "name": "a", "source": {"type": "path", "path": "none"}},
                        {"kind": "file", "name": "a", "source": {"type": "path"}},
                        {"kind": "field", "name": "a", "value": "{{ +}}"},
                    ]
                },
            },
            [
                (
                    '.config.multipart.parts[0]: must be an object whose kind is "field" or "file", '
                    'got {"kind": "fild"}'
                ),
                '.config.multipart.parts[1].valu: "valu" is not a key\n  did you mean "value"?',
                ".config.multipart.parts[1].value: missing; a field requires it",
                ".config.multipart.parts[2].source: missing; a file requires it",
                (
                    ".config.multipart.parts[3].source.type: generated files are not supported\n"
                    "  use path"
                ),
                '.config.multipart.parts[4].source.path: file "none" not found',
                ".config.multipart.parts[5].source.path: missing",
                (".config.multipart.parts[6].value: not a template: line 1: unexpected token: }}"),
                ".config.body: multipart is already the body\n  keep one of them",
                ".config.headers: multipart sets its own content-type\n  leave it out",
            ],
        ),
        (
            f"{URL}/{{{{promt",
            {
                "headers": {"x": "{{ promt }"},
                "body": '{"n": {{n}}, "q": "{% if x "}',
                "transformRequest": "{{ promt",
                "multipart": {"parts": [{"kind": "field", "name": "a", "value": "{{ b"}]},
            },
            [
                f".config.multipart.parts[0].value: {unclosed_tag('{{ b')}",
                ".config.body: multipart is already the body\n  keep one of them",
                f".id: {unclosed_tag(URL + '/{{promt')}",
                (".config.headers.x: not a template: line 1: expected variable end, got }"),
                f".config.transformRequest: {unclosed_tag('{{ promt')}",
            ],
        ),
        (URL, {"body": "q={{ q"}, [f".config.body: {unclosed_tag('q={{ q')}"]),
        (URL, {"body": "{% raw %}{{{% endraw %}"}, []),
        (URL, {"useHttps": True}, [SCHEME]),
        ("http", {"url": URL, "useHttps": False}, [SCHEME]),
        ("http", {"request": f"GET {URL}", "useHttps": True}, [SCHEME]),
        (
            "https",
            {"request": "GET /x\nHost: a.example", "useHttps": False},
            ['.config.useHttps: the id "https" has another scheme\n  keep one of them'],
        ),
        ("http", {"request": "GET /x\nHost: a.example", "useHttps": True}, []),
        (
            URL,
            {"headers": {"X-A": "1", "x-a": "2"}},
            [".config.headers: the header x-a is set twice\n  keep one of them"],
        ),
        (
            URL,
            {"auth": {"type": "api_key", "keyName": "Content-Length", "value": "k"}},
            [
                (
                    ".config.auth.keyName: the header content-length belongs to the connection\n"
                    "  use another header"
                ),
            ],
        ),
        (
            URL,
            {"auth": {"type": "api_key", "keyName": "a(b", "value": "k"}},
            ['.config.auth.keyName: "a(b" is not a valid header name'],
        ),
        (
            f"{URL}?key=a",
            {"auth": {**IN_QUERY, "keyName": "key"}},
            ['.config.auth.keyName: the request already has a parameter "key"\n  keep one of them'],
        ),
        (
            URL,
            {"auth": {**IN_QUERY, "keyName": "Host"}, "queryParams": {"Host": 1}},
            [
                '.config.auth.keyName: the request already has a parameter "Host"\n  keep one of them'
            ],
        ),
        (URL, {"auth": {**IN_QUERY, "keyName": "host"}}, []),
        (
            URL,
            {"transformResponse": "file://here.py:none"},
            ['.config.transformResponse: function none not found in "here.py"'],
        ),
        (URL, {"transformResponse": "file://here.py:other"}, []),
        (URL, {"transformResponse": "file://here.py:dumps"}, []),
        (URL, {"transformResponse": "file://here.py:maybe"}, []),
        (URL, {"transformResponse": "file://here.py:Reader"}, []),
        (
            URL,
            {"transformResponse": "file://here.py:inner"},
            ['.config.transformResponse: function inner not found in "here.py"'],
        ),
        (URL, {"transformResponse": "file://stars.py:anything"}, []),
        (URL, {"transformResponse": "file://dynamic.py:anything"}, []),
        (
            "https://a.example/{{env.NOT_SET}}",
            {},
            [".id: the environment variable NOT_SET is not set\n  set NOT_SET"],
        ),
    ],
)
def test_all_mistakes_of_an_http_entry_are_reported_at_once(
    tmp_path: Path, entry_id: str, config: dict[str, Any], expected: list[str]
) -> None:
    """A problem has the place and the requirement; no secret is shown."""
    (tmp_path / "here.pem").write_text("")
    (tmp_path / "here.py").write_text(HERE)
    (tmp_path / "stars.py").write_text("from json import *")
    (tmp_path / "dynamic.py").write_text("globals()['anything'] = print")
    (tmp_path / "latin.txt").write_bytes(b"\xff")
    found = problems(entry_id, tmp_path, **config)
    assert [
        line.replace(f"{tmp_path} (allow it with --allow-outside)", "HERE") for line in found
    ] == expected


def settings(entry_id: str, directory: Path | None = None, **config: Any) -> GenericSettings:
    read = generic(entry_id, directory, **config).settings
    assert isinstance(read, GenericSettings)
    return read


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@pytest.mark.parametrize(
    ("entry_id", "config", "key"),
    [
        ("https://A.example/x?y=1", {}, "http|https://a.example:443/x|-"),
        ("http", {"url": "http://a.example"}, "http|http://a.example:80/|-"),
        ("https://{{host}}/x?y={{z}}", {}, "http|https://{{host}}/x|-"),
        ("https://{{ h['@'] }}?mail=a@b", {}, "http|https://{{ h['@'] }}|-"),
        (URL, {"auth": BEARER}, f"http|https://a.example:443/x|{sha('sk-very-secret')}"),
        (
            "https://a.example/{{env.MY_TOKEN}}/x",
            {},
            f"http|https://a.example:443/{sha('tok-from-env')}/x|-",
        ),
        (
            "http",
            {"request": "GET /x HTTP/1.1\nHost: a.example\nX-Api-Key: k", "useHttps": True},
            f"http|https://a.example:443/x|{sha('k')}",
        ),
    ],
)
def test_a_lane_is_an_origin_and_an_account(
    entry_id: str, config: dict[str, Any], key: str
) -> None:
    """Queries, bodies and other headers do not change the lane."""
    assert settings(entry_id, body={"a": 1} if not config else None, **config).lane_key == key


def test_accounts_have_separate_lanes() -> None:
    """Any credential distinguishes accounts."""
    configs: list[dict[str, Any]] = [
        {"auth": BEARER},
        {"auth": {"type": "basic", "username": "a", "password": "b"}},
        {"auth": {"type": "basic", "username": "a", "password": "c"}},
        {"headers": {"Authorization": "x"}},
        {"queryParams": {"api_key": "0123456789"}},
        {"headers": {"X-Team": "x"}},
    ]
    keys = {settings(URL, **config).lane_key for config in configs}
    assert len(keys) == 6


def test_secrets_are_found_everywhere() -> None:
    """Headers, parameters and auth contain secrets; templates and short parameters are not secrets."""
    read = settings(
        f"{URL}?signature=abc/defgh&key=short",
        headers={"X-Api-Key": "key-0", "Cookie": "session=1", "Authorization": "Bearer {{x}}"},
        queryParams={"accessToken": "tok-12345", "max_tokens": 12345678},
        auth={"type": "api_key", "keyName": "who", "value": "key-1"},
    )
    assert set(read.secrets) == {
        *("abc/defgh", "abc%2Fdefgh", "key-0", "session=1", "tok-12345", "key-1")
    }
    assert list(read.secrets) == sorted(read.secrets, key=len, reverse=True)


def test_keys_without_an_effect_are_warnings() -> None:
    """Configurations of promptfoo have some; `timeout` is `timeoutMs`."""
    found = settings(URL, body="{{prompt}}", timeout=65000, note=1)
    assert found.timeout == 65
    assert [str(one) for one in found.warnings] == [
        '.config.note: "note" is not a key, and is not sent'
    ]


def test_a_price_is_known_before_the_first_call() -> None:
    """Budgets need the price."""
    spec = generic(URL, price={"input": 2, "output": 8})
    assert spec.metering.price == Price(input=2, output=8)
    assert settings(URL).price is None


def test_files_of_the_suite_are_read_once(tmp_path: Path) -> None:
    """A request, a body, certificates and functions are files beside the suite."""
    (tmp_path / "raw.txt").write_text("POST /x HTTP/1.1\nHost: a.example\n\n{{prompt}}")
    (tmp_path / "body.json").write_text('{"q": "{{prompt}}"}')
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    (tmp_path / "bad.py").write_text("def (")
    assert settings("http", tmp_path, request="file://raw.txt").request.url == (
        "http://a.example/x"
    )
    entry = settings(URL, tmp_path, body="file://body.json", tls={"caPath": "ca.pem"})
    assert entry.request.body == settings(URL, body={"q": "{{prompt}}"}).request.body
    assert entry.tls == TlsSettings(tmp_path / "ca.pem")
    (fault,) = problems(URL, tmp_path, transformResponse="file://bad.py:fn")
    assert fault.startswith('.config.transformResponse: "bad.py" is not Python: invalid syntax')


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from([key.name for key in KEYS]), ANY, max_size=4))
def test_every_config_is_valid_or_has_a_problem(config: dict[str, Any]) -> None:
    """No config raises another exception."""
    assert isinstance(problems("http", **config), list)
