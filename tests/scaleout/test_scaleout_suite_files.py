"""The files of a suite for workers: which are listed and sent, and where a worker has them."""

import functools
import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
import own_models
import pytest
from own_models import Prefixer, reverse

from trioeval.errors import ProviderError, UsageError
from trioeval.providers import Provider
from trioeval.run import PreparedSuite, prepare
from trioeval.scaleout import suite_files
from trioeval.scaleout.facts import coordinator_facts, differences, suite_digest
from trioeval.scaleout.messages import FileList, ListedFile, WorkerFacts
from trioeval.scaleout.needs import needs_of, versions
from trioeval.scaleout.private_files import Location, WorkerFiles, with_texts
from trioeval.scaleout.run_keys import NO_KEYS, RunKeys
from trioeval.scaleout.suite_files import MOST_BYTES, SuiteFiles, list_files

KEY = "sk-scaleout-0123456789abcdef"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a file below the folder of the test, and return its path."""

    def written(name: str, content: str | bytes = "") -> Path:
        path = tmp_path / "evals" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return written


def listed(files: SuiteFiles) -> set[str]:
    return {Path(one.path).name for one in files.listed.files}


def prepared(path: Path, **environ: str) -> PreparedSuite:
    return prepare(path, environ=environ)


def a_suite(write: Callable[..., Path], **more: Any) -> Path:
    base = {"providers": ["echo"], "prompts": ["{{word}}"], "tests": [{"vars": {"word": "a"}}]}
    return write("s.json", json.dumps(base | more))


# What is listed.


def test_files_that_a_user_names_are_listed_with_their_folders(write: Callable[..., Path]) -> None:
    """By name, folder and pattern, relative to the suite's folder; without keys."""
    for name in ("a.txt", "d/e/f.json", "d/.hidden", "d/.env", "g/1.csv", "g/2.csv", "g/3.txt"):
        write(name, name)
    (write("d/e/f.json").parent / "empty").mkdir()
    (write("d/link").parent / "around").symlink_to("../g")
    found = list_files(
        prepared(a_suite(write)), send=("a.txt", "d", "g/*.csv", "g/1.csv", str(write("g/4.md")))
    )
    assert listed(found) == {
        "s.json",
        "a.txt",
        "f.json",
        ".hidden",
        "link",
        "1.csv",
        "2.csv",
        "4.md",
    }
    assert {Path(one).name for one in found.listed.folders} == {"d", "e", "empty"}
    assert {Path(one).name for one in found.listed.withheld} == {".env"}


def test_files_that_cannot_be_sent_are_refused_by_the_name_that_the_user_gave(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but their sizes is read before."""
    outside = write("../outside.txt", "x")
    suite = prepared(a_suite(write))
    folder = write("d/a", "x" * 600).parent
    write("d/b", "x" * 600)
    (write("linked/x").parent / "away").symlink_to(outside)
    write("key.pem")
    monkeypatch.setattr(suite_files, "MOST_BYTES", 1000)
    for named, message in {
        "none.txt": f"--send none.txt: not found in the suite's folder {folder.parent}",
        "*.none": f"--send *.none: no file matches in the suite's folder {folder.parent}",
        "x" * 5000: "not found",
        "nul\0": "not found",
        "../outside.txt": "--send ../outside.txt: ../outside.txt is outside of the suite's folder",
        "..": "--send ..: .. is outside of the suite's folder",
        "../*.txt": "--send ../*.txt: ../outside.txt is outside of the suite's folder",
        "linked": "--send linked: linked/away is outside of the suite's folder",
        "d": "--send d: with it, more than 20,000 files, or 0.0 MiB are to be sent; name fewer, or put",
        "key.pem": "--send key.pem: files of keys are not sent; put it on the workers",
    }.items():
        with pytest.raises(UsageError) as caught:
            list_files(suite, send=("s.json", named))
        assert message in str(caught.value)
    monkeypatch.setattr(suite_files, "MOST_FILES", 1)
    with pytest.raises(UsageError, match="--send linked/x: with it, more than 1 files"):
        list_files(suite, send=("s.json", "linked/x"))


def test_named_files_and_what_code_imports_are_listed(write: Callable[..., Path]) -> None:
    for name in ("images/a.png", "images/b.png", "unnamed.txt", "lib/__init__.py", "lib/deep.py"):
        write(name)
    write("prompt.txt", "{{word}}")
    write("check.py", "import lib.deep\n\ndef get_assert(output, context):\n    return True\n")
    write("check.mjs", "import { a } from './more.mjs';\nexport default () => a;\n")
    write("more.mjs", "export const a = true;\n")
    write("package.json", "{}")
    path = a_suite(
        write,
        prompts=["file://prompt.txt"],
        tests=[
            {
                "vars": {"word": "file://images/*.png"},
                "assert": [
                    {"type": "python", "value": "file://check.py"},
                    {"type": "javascript", "value": "file://check.mjs"},
                ],
            }
        ],
    )
    found = list_files(prepared(path), [write("flag.json")])
    code = {"check.py", "__init__.py", "deep.py", "check.mjs", "more.mjs", "package.json"}
    assert listed(found) == {"s.json", "prompt.txt", "a.png", "b.png", "flag.json", *code}


def test_environment_files_and_keys_are_withheld_and_files_outside_are_not_read(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "outside.json").write_text("{}")
    for name in (".env", "my.vars", "client.pem"):
        write(name, "A=b")
    config = {
        "apiBaseUrl": "http://127.0.0.1:9",
        "apiKey": "k",
        "passthrough": {"a": "client.pem", "b": "../outside.json", "c": ".env"},
    }
    path = a_suite(
        write,
        providers=[{"id": "openai:chat:m", "config": config}],
        commandLineOptions={"envFile": "my.vars"},
    )
    found = list_files(prepared(path))
    assert listed(found) == {"s.json"}
    withheld = {Path(one).name for one in found.listed.withheld}
    assert withheld == {".env", "my.vars", "client.pem"}


def test_files_in_commands_are_listed_and_stay_programs(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    program = write("run.sh", "#!/bin/sh\necho $1\n")
    program.chmod(0o755)
    write("data dir/input.txt")
    write("judge.sh")
    path = a_suite(
        write,
        providers=["exec:./run.sh --file 'data dir/input.txt'"],
        prompts=["exec:sh judge.sh"],
    )
    found = list_files(prepared(path))
    assert listed(found) == {"s.json", "run.sh", "input.txt", "judge.sh"}
    contents = found.contents([one.digest for one in found.listed.files], NO_KEYS)
    program.unlink()
    files = WorkerFiles(found.listed, tmp_path)
    files.receive({one: contents[one] for one in files.lacking()})
    copy = files.open().path(program)
    assert subprocess.run([copy, "x"], capture_output=True, text=True, check=True).stdout == "x\n"
    files.close()


def test_files_of_agents_reach_a_worker_with_the_empty_folders_of_workspaces(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    for name in ("app.py", "deep/more.txt", ".hidden"):
        write(f"template/{name}", name)
    template = tmp_path / "evals" / "template"
    (template / "out").mkdir()
    write("bin/agent.sh")
    write("two words.txt")
    task = {
        "id": "build",
        "type": "agent",
        "workspace": "template",
        "providers": ["exec:sh {{suite}}/bin/agent.sh --words '{{ suite }}/two words.txt'"],
        "prompts": ["Build it."],
        "tests": [{"id": "one"}],
    }
    found = list_files(prepared(write("s.json", json.dumps({"tasks": [task]}))))
    names = {"s.json", "app.py", "more.txt", ".hidden", "agent.sh", "two words.txt"}
    assert listed(found) == names
    contents = found.contents([one.digest for one in found.listed.files], NO_KEYS)
    before = sorted(path.relative_to(template) for path in template.rglob("*"))
    shutil.rmtree(template)
    files = WorkerFiles(found.listed, tmp_path)
    files.receive({one: contents[one] for one in files.lacking()})
    copy = files.open().path(template)
    assert sorted(path.relative_to(copy) for path in copy.rglob("*")) == before
    files.close()


# What is sent.


def test_a_changed_file_one_with_a_key_and_a_lost_one_are_all_named(
    write: Callable[..., Path],
) -> None:
    names = ("changed.txt", "key.txt", "word.txt", "lost.txt", "rsa.txt", "fine.txt")
    write("key.txt", f"token {KEY}")
    write("word.txt", "apiKey: tiger-lily")
    write("rsa.txt", "-----BEGIN RSA PRIVATE KEY-----\n")
    for name in ("changed.txt", "lost.txt", "fine.txt"):
        write(name, f"{name} of a tiger-lily")
    path = a_suite(write, prompts=[f"file://{name}" for name in names])
    found = list_files(prepared(path))
    write("changed.txt", "other")
    write("lost.txt").unlink()
    keys = RunKeys((KEY,), frozenset({"tiger-lily"}))
    with pytest.raises(UsageError) as caught:
        found.contents([one.digest for one in found.listed.files], keys)
    lines = str(caught.value).splitlines()
    assert lines[0] == "--on: the files of the suite cannot be sent to the workers:"
    wrong = {Path(line.split()[0]).name: line for line in lines[1:]}
    assert wrong.keys() == {"changed.txt", "key.txt", "word.txt", "lost.txt", "rsa.txt"}
    assert "has changed since the suite was loaded" in wrong["changed.txt"]
    assert "contains a key" in wrong["key.txt"]
    assert "contains a key" in wrong["word.txt"]
    assert "contains a key" in wrong["rsa.txt"]
    assert "No such file" in wrong["lost.txt"]
    assert KEY not in str(caught.value)


def test_too_large_files_are_named_with_their_sizes() -> None:
    large = ListedFile("/evals/large.csv", "d1", MOST_BYTES)
    found = SuiteFiles(FileList(files=(large, ListedFile("/evals/small.csv", "d2", 1))))
    with pytest.raises(UsageError, match=r"/evals/large\.csv \(256\.0 MiB\)"):
        found.contents(["d1", "d2"], NO_KEYS)


# The files on a worker.


def test_a_worker_with_the_same_files_uses_its_own(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    found = list_files(prepared(a_suite(write)))
    files = WorkerFiles(found.listed, tmp_path)
    assert files.lacking() == frozenset()
    assert files.open() == Location()
    assert [one.name for one in tmp_path.iterdir()] == ["evals"], "nothing is copied"


def test_a_worker_gets_what_it_lacks_keeps_what_it_has_and_removes_its_copy(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    """The suite that it loads there is the same, although its paths differ."""
    for name in ("one.txt", "two.txt"):
        write(name, f"{name} {{{{word}}}}")
    write("hooks.js", "module.exports = (text) => text;")
    (tmp_path / "evals" / ".git").mkdir()
    path = a_suite(
        write,
        prompts=["file://one.txt", "file://two.txt"],
        nunjucksFilters={"same": "hooks.js"},
        commandLineOptions={"envFile": ".env"},
    )
    write(".env", "A=b")
    suite = prepared(path)
    found = list_files(suite)
    contents = found.contents([one.digest for one in found.listed.files], NO_KEYS)
    digest = suite_digest(suite)
    write("one.txt", "other")  # this machine has another file there
    files = WorkerFiles(found.listed, tmp_path)
    lacking = files.lacking()
    assert [one.path for one in found.listed.files if one.digest in lacking] == [
        str(tmp_path / "evals" / "one.txt")
    ]
    files.receive({one: contents[one] for one in lacking})
    location = files.open()
    root = Path(location.root)
    assert root.parent == tmp_path
    copied = {one.name for one in location.path(path.parent).iterdir()}
    assert copied == {"s.json", "one.txt", "two.txt", "hooks.js", ".env", ".git"}
    moved = prepared(location.path(path))
    assert [one.raw for one in moved.suite.prompts] == ["one.txt {{word}}", "two.txt {{word}}"]
    assert suite_digest(moved, location) == digest
    files.close()
    assert not root.exists()


def test_wrong_contents_are_refused(tmp_path: Path) -> None:
    files = WorkerFiles(FileList(files=(ListedFile("/evals/a", "d", 1),)), tmp_path)
    with pytest.raises(ValueError, match="/evals/a"):
        files.receive({"d": b"x"})
    with pytest.raises(UsageError, match="/evals/a"):
        files.open()
    files.close()
    assert not [*tmp_path.iterdir()]


def test_a_moved_suite_has_the_same_digest(write: Callable[..., Path], tmp_path: Path) -> None:
    """Also with absolute paths, as those of a second suite file in another folder are."""
    from trioeval.loading.load import load_suite

    first = a_suite(write)
    check = "def get_assert(output, context):\n    return True\n"
    write("more/check.py", check)
    more = {"tests": [{"assert": [{"type": "python", "value": "file://check.py"}]}]}
    second = write("more/more.json", json.dumps(more))
    digest = suite_digest(prepare(load_suite(first, second)))
    location = Location(str(tmp_path / "copy"))
    for path in (first, second, second.parent / "check.py"):
        place = location.path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(path.read_bytes())
    moved = load_suite(location.path(first), location.path(second))
    assert suite_digest(prepare(moved), location) == digest
    location.path(second.parent / "check.py").write_text(f"{check}\n# other\n")
    assert suite_digest(prepare(moved), location) != digest


@attrs.frozen
class Found:
    text: str
    parts: tuple[str, ...] = ()


def test_all_texts_of_a_message_are_changed_and_the_rest_is_kept() -> None:
    error = ProviderError("bad_request", "in /copy/evals/a.py", body_excerpt="/copy/evals")
    value = {
        "a": [Found("/copy/evals"), 1, None],
        "b": MappingProxyType({"c": ("/copy/x", b"/copy/x")}),
        "d": error,
    }
    same = Found("x", ("y",))
    found = with_texts(value, Location("/copy").original)
    assert found["a"] == [Found("/evals"), 1, None]
    assert found["b"]["c"] == ("/x", b"/copy/x")
    assert str(found["d"]) == "bad_request: in /evals/a.py"
    assert (found["d"].message, found["d"].body_excerpt) == ("in /evals/a.py", "/evals")
    assert with_texts(same, Location("/copy").original) is same


# What is compared.


def facts(**changes: Any) -> WorkerFacts:
    base = WorkerFacts(
        session="s",
        versions=(("python", "3.11"), ("trioeval", "1")),
        variables=(("MODEL", "mark"), ("MY_KEY", "")),
        digest="d",
    )
    return attrs.evolve(base, **changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"versions": (("python", "3.12"), ("trioeval", "1"))}, ["has python 3.12, the run 3.11"]),
        (
            {"variables": (("MODEL", "mark"),), "error": "no file\nno other"},
            [
                "lacks the environment variable MY_KEY, which the run has",
                "cannot load the suite: no file\n    no other",
            ],
        ),
        (
            {"variables": (("MODEL", "other"), ("MY_KEY", ""), ("OTHER", "x"), ("A_KEY", ""))},
            [
                "has another value of the environment variable MODEL than the run",
                "has the environment variable OTHER, which the run lacks",
            ],
        ),
        ({"error": "no file"}, ["cannot load the suite: no file"]),
        (
            {"digest": "other"},
            [
                (
                    "has loaded another suite: its code creates other tests there, it reads "
                    "files that the suite does not name, or a key in a template has another value"
                )
            ],
        ),
    ],
)
def test_each_difference_of_a_worker_is_named(changes: dict[str, Any], said: list[str]) -> None:
    found = differences("w", facts(), facts(**changes))
    assert [one.removeprefix("worker w ") for one in found] == said


def test_needs_name_keys_variables_and_packages_and_contain_no_value(
    write: Callable[..., Path],
) -> None:
    write("check.py", "import os\n\ndef get_assert(output, context):\n    os.environ['STAGE']\n")
    environ = {
        "OWN_KEY": KEY,
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "MODEL": "gpt-value",
        "STAGE": "stage-value",
        "OTHER_API_KEY": "sk-other-0123456789",
    }
    path = a_suite(
        write,
        providers=[
            {"id": "openai:chat:{{env.MODEL}}", "config": {"apiKeyEnvar": "OWN_KEY"}},
        ],
        tests=[
            {"assert": [{"type": "python", "value": "file://check.py"}, {"type": "is-sql"}]},
        ],
    )
    suite = prepared(path, **environ)
    needs = needs_of(suite, list_files(suite))
    assert needs.packages == ("trioeval", "distributed", "sqlglot")
    assert needs.present == ("OWN_KEY", "STAGE")
    assert {"MODEL", "OPENAI_BASE_URL"} <= {*needs.equal}
    text = f"{needs} {coordinator_facts(suite, needs)}"
    assert not [value for value in environ.values() if value in text]


@pytest.mark.parametrize(
    "own", [reverse, functools.partial(reverse), Prefixer("a"), Prefixer("a").__call__]
)
def test_the_modules_of_own_providers_are_compared(
    write: Callable[..., Path], own: Provider
) -> None:
    suite = prepare(
        a_suite(write, providers=["mine", "echo"]), providers={"mine": own, "other": reverse}
    )
    needs = needs_of(suite, list_files(suite))
    assert needs.modules == ("own_models",)
    digest = hashlib.sha256(Path(own_models.__file__).read_bytes()).hexdigest()
    assert ("module own_models", f"with the digest {digest[:16]}") in versions(needs, {})
    lost = attrs.evolve(needs, modules=("no_such_module.deep", "sys"))
    assert [text for name, text in versions(lost, {}) if "module" in name] == [
        "not installed",
        "without a file",
    ]
