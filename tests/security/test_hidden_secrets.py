"""Secrets of command lines, short ones, and those in other spellings are not written."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from trioeval.cli.app import run_command_line
from trioeval.providers.command_secrets import hide_in_command, secrets_of_command
from trioeval.providers.secrets import hide, hide_in, is_surely_key
from trioeval.report.redact import redacted, redacted_judges

pytestmark = pytest.mark.attack("secrets")

COMMANDS = [
    "echo hi --token {}",
    "echo hi --token={}",
    "echo hi --api-key '{}'",
    'echo hi --api-key="{}"',
    "echo hi -password {}",
    "echo hi --client-secret {} --max-tokens 5",
    "env MY_TOKEN={} echo hi",
    "env OPENAI_API_KEY='{}' PATH=/bin:/usr/bin echo hi",
    "echo -H 'Authorization: Bearer {}'",
    'echo --header "x-api-key: {}"',
    "echo -H Authorization:{}",
    "echo --header='Cookie: sid={}'",
    "echo https://me:{}@host.example/path",
    "echo https://{}@host.example/path",
    "echo 'https://host.example/path?a=1&api_key={}'",
    "echo curl -u me:{} https://host.example",
    "echo curl --user=me:{}",
    "docker run -e HF_TOKEN={} image",
]
SECRETS = ["abc", "hunter", "hunter2", "sk-0123456789abcdef", "p%ss-w0rd+="]
IN_URLS = [
    *("p/ss", "p@ss", "p?s#s", "1p/2", "a/b/c"),
    *("p@ss/w", "p@s@s/w", "p/s@s", "a@b/c@d/e", "p@ss?w", "p@ss#w", "@/", "p@h:1/w", "1@2/3"),
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_line_is_shown_without_its_secrets(command: str, secret: str) -> None:
    """This holds for any length; the rest stays, and the secrets are known."""
    line = command.format(secret)
    assert hide_in_command(line) in {
        command.format(blank) for blank in ("[hidden]", "Bearer [hidden]")
    } | {command.replace("Bearer {}", "[hidden]").replace("sid={}", "[hidden]")}
    assert secret in "\n".join(secrets_of_command(line))


@pytest.mark.parametrize("secret", IN_URLS)
def test_an_unescaped_password_is_hidden_in_urls(secret: str) -> None:
    """It may contain the characters at which a URL would end."""
    assert hide_in_command(f"ask http://me:{secret}@host/x?a=b c") == (
        "ask http://me:[hidden]@host/x?a=b c"
    )
    assert redacted_judges(f"http://me:{secret}@host/x") == "http://host/x"
    both = f"ask redis://me:{secret}@a.example,redis://:{secret}@b.example/0"
    assert hide_in_command(both) == (
        "ask redis://me:[hidden]@a.example,redis://:[hidden]@b.example/0"
    )


@pytest.mark.parametrize("secret", ["hunter", "p@ss", "p@ss/w", "a/b@c"])
def test_a_password_is_hidden_even_if_the_path_contains_an_at_sign(secret: str) -> None:
    """Its end is ambiguous: both the first and the last sign are tried."""
    known = secrets_of_command(f"ask http://me:{secret}@host/@scope/x")
    assert secret.partition("@")[0] in known
    assert any(secret in text for text in known)


@pytest.mark.parametrize(
    "command",
    [
        "ask https://host:8080/a@b",
        "ask https://[::1]:8080/a@b",
        "ask https://host/a:b@c",
        "python ask.py --max-tokens 5 --model gpt --verbose",
        "ask --token $TOKEN --key ${KEY} --api-key={{env.KEY}}",
        "ask --no-auth --style dry",
        "PATH=/bin ask https://host.example:8080/a?b=c",
        "python -u me:main user@host",
        "git clone git@host.example:a/b",
    ],
)
def test_a_command_line_without_secrets_is_shown_unchanged(command: str) -> None:
    """This covers names of variables, numbers of tokens, hosts with ports."""
    assert hide_in_command(command) == command


@pytest.mark.parametrize(
    "config",
    [
        {"command": ["ask", "--token", "hunter"]},
        {"command": ["curl", "-H", "Authorization: Bearer hunter"]},
        {"command": "TOKEN=hunter ask"},
        {"mcp": {"server": {"command": "npx", "args": ["x", "--api-key=hunter"]}}},
        {"password": "hunter"},
        {"auth": {"clientSecret": "hunter"}},
    ],
    ids=str,
)
def test_a_config_is_shown_without_secrets(config: Mapping[str, Any]) -> None:
    """This includes short ones, and those of command lines in it."""
    assert "hunter" not in json.dumps(redacted(config))


KEYS = ["sk-very-secret-1234", "hunter-two-three", "p@ss w0rd/+with=signs", "ünïcödé-këy-12"]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("before", ["", "u:", "me:", "user:", ":", "Bearer "])
@pytest.mark.parametrize("after", ["", "!", "@x", ": more text"])
def test_a_key_in_base64_is_hidden(key: str, before: str, after: str) -> None:
    """This holds for any offset in the encoded text, both alphabets, with and without padding."""
    data = f"{before}{key}{after}".encode()
    for coded in (base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()):
        for spelling in (coded, coded.rstrip("=")):
            assert hide(f"Basic {spelling} said", [key]) == "Basic [hidden] said"
            assert hide_in({"a": [spelling]}, [key]) == {"a": ["[hidden]"]}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    "how", [quote, quote_plus, lambda text: quote(text, safe="")], ids=range(3)
)
def test_a_key_in_a_url_is_hidden(key: str, how: Any) -> None:
    """It may be encoded once or twice."""
    for spelling in (how(key), how(how(key))):
        assert hide(f"https://h/?k={spelling}&x=1", [key]) == "https://h/?k=[hidden]&x=1"


@pytest.mark.parametrize(
    ("text", "is_key"),
    [
        ("correct-horse-battery", True),
        ("CorrectHorseBattery", True),
        ("abcdefghijklmnopqrstuvw", True),
        ("hunter", False),
        ("misunderstood", False),
        ("Misunderstanding", False),
        ("internationalization", False),
        ("0" * 30, False),
        ("/home/me/.config/credentials.json", False),
        ("~/.config/credentials.json", False),
        ("https://auth.example.com/realms/main", False),
        ("https://me:hunter@auth.example.com/", True),
        ("https://auth.example.com/?code=abcdef", True),
        ("/abcdefghijklmnopqrstuvwxyz+0=", True),
    ],
)
def test_long_phrases_are_treated_as_keys_and_words_are_not(text: str, *, is_key: bool) -> None:
    """This also holds without a digit; words that an output may contain by chance stay."""
    assert is_surely_key(text) is is_key


@pytest.mark.parametrize("secret", ["abc", "hunter", "sk-0123456789abcdef"])
@pytest.mark.parametrize("name", ["--token {}", "--api-key={}", "MY_TOKEN={}", "https://me:{}@h"])
def test_no_result_contains_a_secret_of_a_command(
    name: str, secret: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """This covers files, tables, logs and the store; the program gets the secret."""
    suite = {
        "providers": [{"id": f"exec:sh -c true {name.format(secret)}"}],
        "prompts": ["a"],
        "tests": [{"vars": {"x": "1"}}],
    }
    (tmp_path / "s.json").write_text(json.dumps(suite))
    names = [tmp_path / f"o.{suffix}" for suffix in ("json", "csv", "html", "md", "junit.xml")]
    outputs = [part for name in names for part in ("-o", str(name))]
    db = tmp_path / "runs.db"
    trace = ["--trace", str(tmp_path / "t.jsonl")]
    run_command_line([str(tmp_path / "s.json"), "--db", str(db), *outputs, *trace])
    printed = capsys.readouterr()
    written = [
        path.read_bytes().decode("utf-8", "replace") for path in (*names, db, Path(trace[1]))
    ]
    spelt = name.format(secret)
    assert all(spelt not in text for text in (printed.out, printed.err, *written))
