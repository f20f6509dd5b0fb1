"""Tests from other machines, fetched from real servers on loopback."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import attrs
import pytest
import trio
from file_server import TABLE, Files, Reply, serve_files

from trioeval import collect
from trioeval.errors import ProviderError, SuiteError
from trioeval.evaluation.status import Status
from trioeval.loading.load import load_suite, parse_suite
from trioeval.providers import remote_files
from trioeval.suite.model import Suite
from trioeval.suite.sources.remote_tests import sheet_export

pytestmark = pytest.mark.network

TOKEN = "hf_aTokenThatNobodyMaySee"  # noqa: S105 - not a real one


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    """A running server; the working folder is empty, and nothing waits before it tries again."""
    monkeypatch.chdir(tmp_path)
    bounds = attrs.evolve(remote_files.BOUNDS, first_wait=0.0, seconds=30.0)
    monkeypatch.setattr(remote_files, "BOUNDS", bounds)
    with serve_files() as found:
        yield found


def suite(tests: Any, files: Files | None = None, **more: Any) -> Suite:
    environ = {} if files is None else {"HF_ENDPOINT": files.url, "HF_TOKEN": TOKEN}
    document = {"providers": ["echo"], "prompts": ["{{q}}"], "tests": tests}
    return parse_suite({**document, **more.pop("keys", {})}, environ=environ, **more)


def problem(tests: Any, files: Files | None = None, **more: Any) -> str:
    with pytest.raises(SuiteError) as refused:
        suite(tests, files, **more)
    return str(refused.value)


def as_json(data: Any, status: int = 200, revision: str = "") -> Reply:
    headers = {"content-type": "application/json"}
    headers |= {"x-revision": revision} if revision else {}
    return Reply(json.dumps(data).encode(), status, headers)


def dataset(
    rows: int, most: int = 100, revision: str = ""
) -> Callable[[str, Mapping[str, str]], Reply]:
    """Return replies with rows, which refuse pages of more than `most`."""

    def reply(path: str, _headers: Mapping[str, str]) -> Reply:
        asked = parse_qs(urlsplit(path).query)
        first, length = int(asked["offset"][0]), int(asked["length"][0])
        if length > most:
            return as_json({"error": "too large"}, 422)
        row = {"q": "{{x}} file://f", "l": ["a", "b"], "o": {"n": None}}
        found = [
            {"row_idx": number, "row": {**row, "n": number}}
            for number in range(first, min(first + length, rows))
        ]
        return as_json({"rows": found, "num_rows_total": rows}, revision=revision)

    return reply


DATASET = "huggingface://datasets/owner/name"


def test_rows_of_a_dataset_are_tests(files: Files) -> None:
    """Split and configuration have defaults, pages follow each other, and rows are data, not templates."""
    files.replies = dataset(230)
    found = suite(DATASET, files)
    assert [test.vars["n"] for test in found.tests] == list(range(230))
    first = found.tests[0]
    assert first.vars == {"q": "{{x}} file://f", "l": ["a", "b"], "o": {"n": None}, "n": 0}
    assert (first.is_data, first.options.disable_var_expansion) == (True, True)
    query = parse_qs(urlsplit(files.seen[0][0]).query)
    assert query == {
        "dataset": ["owner/name"],
        "config": ["default"],
        "split": ["test"],
        "offset": ["0"],
        "length": ["100"],
    }
    assert [parse_qs(urlsplit(path).query)["length"] for path, _ in files.seen] == [["100"]] * 3
    assert all(urlsplit(path).path == "/rows" for path, _ in files.seen)
    assert all(headers["authorization"] == f"Bearer {TOKEN}" for _, headers in files.seen)
    again = suite(DATASET.replace("huggingface", "hf"), files)
    assert [test.vars["n"] for test in again.tests] == list(range(230))


def test_rows_of_a_dataset_are_sent_as_they_are(files: Files) -> None:
    """A prompt holds their text, and an assertion compares with it."""
    files.replies = dataset(3)
    check = {"assert": [{"type": "equals", "value": "{{q}}"}]}
    rows = trio.run(collect, suite(DATASET, files, keys={"defaultTest": check}))
    assert [row.output for row in rows] == ["{{x}} file://f"] * 3
    assert [row.status for row in rows] == [Status.PASS] * 3


@pytest.mark.parametrize(
    ("query", "rows", "lengths"),
    [("?limit=5", 5, ["5"]), ("?limit=150&split=train", 150, ["100", "50"]), ("?limit=0", 0, [])],
)
def test_a_limit_bounds_the_rows(files: Files, query: str, rows: int, lengths: list[str]) -> None:
    """No more rows are requested than are wanted."""
    files.replies = dataset(230)
    assert len(suite(DATASET + query, files, allow_empty=True).tests) == rows
    assert [parse_qs(urlsplit(path).query)["length"][0] for path, _ in files.seen] == lengths


def test_pages_shrink_if_their_rows_are_large(files: Files) -> None:
    """The server refuses a page; smaller ones follow until one is accepted."""
    files.replies = dataset(60, most=30)
    assert len(suite(DATASET, files).tests) == 60
    files.replies = dataset(60, most=0)
    assert "HTTP 422" in problem(f"{DATASET}?split=b", files)


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        ("huggingface://datasets/name", '"huggingface://datasets/name" names no dataset'),
        (f"{DATASET}?limit=few", 'limit must be a whole number, got "few"'),
        (f"{DATASET}?spilt=train", 'did you mean "split"?'),
        ([f"{DATASET}?limit=-1"], "$.tests[0]: limit must be a whole number"),
    ],
)
def test_invalid_names_of_datasets_are_reported(tests: Any, message: str) -> None:
    """Nothing is requested."""
    assert message in problem(tests)


def test_a_suite_cannot_send_the_token_elsewhere(files: Files) -> None:
    """The server is that of the user's environment, not one that the suite sets."""
    keys = {"env": {"HF_ENDPOINT": "http://127.0.0.1:1"}}
    files.replies = dataset(1)
    assert len(suite(DATASET, files, keys=keys).tests) == 1


def test_a_token_is_hidden_in_messages(files: Files) -> None:
    """The server repeats it; the message names the variable instead."""
    files.replies = lambda _path, headers: as_json({"error": headers["authorization"]}, 401)
    message = problem(DATASET, files)
    assert TOKEN not in message
    assert "HTTP 401" in message
    assert "HF_TOKEN" in message
    assert TOKEN not in repr(remote_files.RemoteFile(url="u", copy=Path(), wanted="x", token=TOKEN))


def test_a_table_by_its_url_is_graded(files: Files) -> None:
    """Redirects are followed; neither query nor password is shown."""

    def reply(path: str, _headers: Mapping[str, str]) -> Reply:
        moved = path.startswith("/old")
        return Reply(status=302, headers={"location": "/new.csv"}) if moved else Reply(TABLE)

    files.replies = reply
    url = f"{files.url}/old?key=secret"
    loaded = suite([url, {"path": f"{files.url}/x.csv"}])
    assert [path for path, _ in files.seen] == ["/old?key=secret", "/new.csv", "/x.csv"]
    rows = trio.run(collect, loaded)
    assert [row.status for row in rows] == [Status.PASS] * 4
    files.replies = lambda _path, _headers: Reply(status=404)
    assert "secret" not in problem(url.replace("http://", "http://u:secret@"))


Answers = Callable[[str, Mapping[str, str]], Reply]


def always(reply: Reply) -> Answers:
    return lambda _path, _headers: reply


FAILURES: dict[str, tuple[Answers, str, int]] = {
    "not found": (always(Reply(status=404)), "not_found: HTTP 404 from GET http://127.0.0.1", 1),
    "not allowed": (always(Reply(status=403)), "permission: HTTP 403", 1),
    "server fails": (always(Reply(status=500)), "server: HTTP 500", 4),
    "busy": (always(Reply(status=429, headers={"retry-after": "0"})), "rate_limited: HTTP 429", 4),
    "busy for long": (
        always(Reply(status=429, headers={"retry-after": "900"})),
        "rate_limited: HTTP 429",
        1,
    ),
    "truncated": (always(Reply(TABLE, length=500)), "connection: ", 4),
    "a login": (
        always(
            Reply(b"<html>Sign in</html>", headers={"content-type": "text/html; charset=utf-8"})
        ),
        "a web page from",
        1,
    ),
    "a login that is not named": (always(Reply(b"\n<!DOCTYPE html>")), "a web page from", 1),
    "redirected for ever": (
        always(Reply(status=307, headers={"location": "/again"})),
        "more than 5 redirects",
        6,
    ),
    "redirected to a file": (
        always(Reply(status=302, headers={"location": "file:///etc/passwd"})),
        "refused a redirect of GET http://127.0.0.1",
        1,
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_file_that_cannot_be_fetched_is_reported(files: Files, name: str) -> None:
    """The message has the place, the URL and the reason; only transient failures are tried again."""
    files.replies, message, requests = FAILURES[name]
    found = problem([f"{files.url}/t.csv"])
    assert found.startswith(f'$.tests[0]: "{files.url}/t.csv" cannot be fetched: ')
    assert message in found
    assert len(files.seen) == requests


BROKEN: dict[str, tuple[Reply, str]] = {
    "text": (Reply(b"rows"), "not JSON from"),
    "another object": (as_json({"row": []}), "no rows of a dataset from"),
    "rows of another form": (as_json({"rows": [1], "num_rows_total": 1}), "no rows of a dataset"),
    "an empty page": (as_json({"rows": [], "num_rows_total": 7}), "after row 0 of 7"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_reply_that_is_no_dataset_is_reported(files: Files, name: str) -> None:
    """It is not tried again."""
    reply, message = BROKEN[name]
    files.replies = always(reply)
    assert message in problem(DATASET, files)
    assert len(files.seen) == 1


def test_a_failure_that_passes_is_not_seen(files: Files) -> None:
    """A busy server is asked again."""
    replies = [Reply(status=429, headers={"retry-after": "0"}), Reply(status=503), Reply(TABLE)]
    files.replies = lambda _path, _headers: replies.pop(0)
    assert len(suite(f"{files.url}/t.csv").tests) == 2


def test_size_and_time_are_bounded(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of all pages together, and the time until the last of them."""
    bounds = remote_files.BOUNDS
    monkeypatch.setattr(remote_files, "BOUNDS", attrs.evolve(bounds, bytes=5000))
    files.replies = dataset(230)
    assert "the reply is larger than" in problem(DATASET, files)
    assert not list(Path(".trioeval/remote").glob("*.jsonl"))

    def wait(_path: str, _headers: Mapping[str, str]) -> Reply:
        files.released.wait()
        return Reply(TABLE)

    files.replies = wait
    monkeypatch.setattr(remote_files, "BOUNDS", attrs.evolve(bounds, seconds=0.2))
    assert "no complete reply" in problem(f"{files.url}/t.csv")


def test_the_copy_is_kept_and_compared(files: Files) -> None:
    """A server that knows the copy sends nothing; a changed file replaces it."""
    state = {"etag": '"1"', "body": TABLE}

    def reply(_path: str, headers: Mapping[str, str]) -> Reply:
        if headers.get("if-none-match") == state["etag"]:
            return Reply(status=304)
        return Reply(state["body"], headers={"etag": state["etag"]})  # type: ignore[arg-type,dict-item] # by key

    files.replies = reply
    url = f"{files.url}/t.csv"
    (copy,) = suite(url).files
    assert copy.read_bytes() == TABLE
    before = copy.stat().st_mtime_ns
    assert len(suite(url).tests) == 2
    assert files.seen[1][1]["if-none-match"] == '"1"'
    assert copy.stat().st_mtime_ns == before
    copy.write_text("q\nchanged by hand\n")
    assert suite(url).tests[0].vars == {"q": "hello"}
    assert "if-none-match" not in files.seen[2][1]
    state |= {"etag": '"2"', "body": b"q\nnew\n"}
    assert [test.vars for test in suite(url).tests] == [{"q": "new"}]


def test_a_dataset_of_the_same_revision_is_fetched_once(files: Files) -> None:
    """Its first page is enough to see this; without a revision all pages are fetched."""
    files.replies = dataset(230, revision="abc")
    suite(DATASET, files)
    suite(DATASET, files)
    assert len(files.seen) == 4
    files.replies = dataset(230, revision="def")
    suite(DATASET, files)
    assert len(files.seen) == 7


def test_a_server_that_is_down_leaves_the_copy(files: Files) -> None:
    """A warning says so; a file that is gone is an error all the same."""
    url = f"{files.url}/t.csv"
    assert not suite(url).warnings
    files.replies = always(Reply(status=503))
    found = suite(url)
    assert len(found.tests) == 2
    (warning,) = found.warnings
    assert "cannot be fetched, so the last copy" in warning.message
    files.replies = always(Reply(status=404))
    assert "HTTP 404" in problem(url)


def test_only_the_suite_file_itself_names_urls(files: Files) -> None:
    """Another file that it names needs the permission of the user, and so does an untrusted suite."""
    url = f"{files.url}/t.csv"
    scenario = {"config": [{}], "tests": url}
    Path("s.json").write_text(json.dumps([scenario]))
    nested = {"providers": ["echo"], "prompts": ["{{q}}"], "scenarios": ["file://s.json"]}
    Path("suite.json").write_text(json.dumps(nested))
    with pytest.raises(SuiteError) as refused:
        load_suite("suite.json", environ={})
    assert str(refused.value) == (
        f's.json:1:28: $[0].tests: "{url}" is not named by the suite file itself\n'
        "  allow it with --allow-network"
    )
    assert problem(url, trusted=False) == (
        f'$.tests: an untrusted suite fetches no tests, got "{url}"\n  allow it with --allow-network'
    )
    assert not files.seen
    assert load_suite("suite.json", environ={}, allow_network=True).scenarios
    assert suite(url, trusted=False, allow_network=True).tests
    assert suite([], keys={"scenarios": [scenario]}).scenarios
    task = {"type": "prompt_eval", "prompts": ["a"], "tests": [url]}
    assert parse_suite({"providers": ["echo"], "tasks": [task]}, environ={}).tasks
    assert parse_suite({"providers": ["echo"]}, given={"tests": url}, environ={}).tests


ROWS = {
    "code": ("q,__expected\nx,\"python: __import__('os')\"\n", "is code"),
    "a script": ("q,__expected\nx,javascript: true\n", "is code"),
    "a file": ("q,__expected\nx,contains: file:///etc/passwd\n", "is outside of"),
    "the environment": (
        "q,__expected\nx,contains: {{ env.HOME }}\n",
        "does not see the environment",
    ),
    "a file in a variable": ("q\nfile:///etc/passwd\n", "is outside of"),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_contain_neither_code_nor_files(files: Files, name: str) -> None:
    """The place is that in the copy."""
    text, message = ROWS[name]
    files.replies = always(Reply(text.encode()))
    found = problem(f"{files.url}/t.csv")
    assert message in found
    assert ".csv:2:" in found
    assert "save the file beside the suite" in found


@pytest.mark.parametrize(
    ("url", "export"),
    [
        ("d/1a/edit?usp=sharing", ("d/1a/export?format=csv", None)),
        ("d/1a/edit", ("d/1a/export?format=csv", None)),
        ("d/1a", ("d/1a/export?format=csv", None)),
        ("d/1a/edit?gid=7#gid=7", ("d/1a/export?format=csv&gid=7", None)),
        ("d/1a/edit#gid=0", ("d/1a/export?format=csv", None)),
        ("d/1a/edit#gid=7", ("d/1a/export?format=csv", "7")),
        ("d/e/2PACX-1/pub?output=csv", ("d/e/2PACX-1/pub?output=csv", None)),
    ],
)
def test_sheets_are_exported_as_csv(url: str, export: tuple[str, str | None]) -> None:
    """The number of the sheet is that in the query, as promptfoo takes it."""
    start = "https://docs.google.com/spreadsheets/"
    assert sheet_export(start + url) == (start + export[0], export[1])


@pytest.mark.parametrize(
    ("before", "after", "is_allowed"),
    [
        ("https://a.example/x", "https://b.example/y", True),
        ("https://a.example/x", "/y", True),
        ("https://a.example/x", "http://a.example/x", False),
        ("http://a.example/x", "http://127.0.0.1/x", False),
        ("http://a.example/x", "http://localhost/x", False),
        ("http://a.example/x", "http://169.254.169.254/latest", False),
        ("http://a.example/x", "http://[::1]/x", False),
        ("http://127.0.0.1/x", "http://127.0.0.1:8080/x", True),
    ],
)
def test_redirects_stay_outside_of_private_networks(
    before: str,
    after: str,
    is_allowed: bool,  # noqa: FBT001 - a case
) -> None:
    """They never leave TLS either."""
    if is_allowed:
        assert remote_files._redirected(before, after)
    else:
        with pytest.raises(ProviderError, match="refused a redirect"):
            remote_files._redirected(before, after)


def test_a_cancelled_load_ends_its_request(files: Files) -> None:
    """The thread that fetches ends as well, although the server never answers."""

    def wait(_path: str, _headers: Mapping[str, str]) -> Reply:
        files.released.wait()
        return Reply(TABLE)

    async def cancelled() -> None:
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(collect, "suite.json")
                await trio.to_thread.run_sync(files.arrived.wait, abandon_on_cancel=True)
                nursery.cancel_scope.cancel()

    files.replies = wait
    document = {"providers": ["echo"], "tests": f"{files.url}/t.csv"}
    Path("suite.json").write_text(json.dumps(document))
    trio.run(cancelled)
    for thread in threading.enumerate():
        if thread.name == "remote file":
            thread.join(10)
            assert not thread.is_alive()
    assert [path.name for path in Path().iterdir()] == ["suite.json"]


def test_a_load_inside_of_a_loop_fetches_as_well(files: Files) -> None:
    """A program that loads a suite in an async function needs no thread for it."""

    async def loaded() -> Suite:
        await trio.lowlevel.checkpoint()
        return suite(f"{files.url}/t.csv")

    assert len(trio.run(loaded).tests) == 2


def test_hooks_make_no_templates_of_remote_rows(files: Files) -> None:
    """A hook that changes the tests leaves them data: nothing is read or rendered."""
    Path("secret.txt").write_text("a secret")
    Path("hooks.py").write_text(
        "def beforeAll(context, named):\n"
        "    for test in context['suite']['tests']:\n"
        "        test['metadata'] = {'seen': True}\n"
        "    return context\n"
        "def beforeEach(context, named):\n"
        "    context['test']['metadata'] = {'seen': 'twice'}\n"
        "    return context\n"
    )
    row = {"q": "{{ 1 + 1 }}", "f": "file://secret.txt"}
    files.replies = always(as_json({"rows": [{"row": row}], "num_rows_total": 1}))
    extensions = ["file://hooks.py:beforeAll", "file://hooks.py:beforeEach"]
    keys = {"extensions": extensions, "prompts": ["{{q}} {{f}}"]}
    (found,) = trio.run(collect, suite(DATASET, files, keys=keys))
    assert found.output == "{{ 1 + 1 }} file://secret.txt"
    assert found.step.test.metadata["seen"] == "twice"
