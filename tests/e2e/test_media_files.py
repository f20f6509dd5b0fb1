"""Images of a provider: kept as files beside the store, replayed, resumed, exported and removed."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from held_server import held_server
from server_process import fake_provider, open_server, stats_of
from test_command_line import trioeval
from test_killed_between_requests import COMMAND, killed_at

from trioeval.cli import run_command_line
from trioeval.providers.fake.media import picture
from trioeval.providers.media import read_media
from trioeval.store.reader import read_store

CAT, DOG = read_media(picture("a cat")), read_media(picture("a dog"))


@pytest.fixture
def write_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Write the suite `s.json` that draws a cat and a dog, and return the URL of its fake provider."""
    monkeypatch.chdir(tmp_path)
    with fake_provider() as base_url:

        def write(**more: Any) -> str:
            config = {"apiBaseUrl": base_url, "apiKey": "sk-1"}
            suite = {
                "providers": [{"id": "openai:image:gpt-image-1", "config": config}],
                "prompts": ["{{what}}"],
                "tests": [{"vars": {"what": "a cat"}}, {"vars": {"what": "a dog"}}],
                **more,
            }
            Path("s.json").write_text(json.dumps(suite))
            return base_url

        yield write


def run(*flags: str) -> int:
    """Run `s.json`, and return the exit code."""
    return run_command_line(["s.json", "--no-progress", *flags])


def media_of(document: Any) -> list[Any]:
    """The media of all rows of a result file."""
    rows = document["results"]["results"]
    return [one for row in rows for one in row["response"]["media"]]


def test_images_are_files_and_rows_refer_to_them(
    tmp_path: Path, write_suite: Callable[..., str]
) -> None:
    """No base64 is in the database or an export; a repeated run replays the files from the cache."""
    base_url = write_suite()
    assert run("-o", "o.json") == 0
    requests = stats_of(base_url)["requests"]
    folder = tmp_path / ".trioeval" / "media"
    assert {one.name for one in folder.iterdir()} == {CAT.file, DOG.file}
    assert (folder / CAT.file).read_bytes() == picture("a cat")
    written = Path("o.json").read_text()
    assert "iVBORw" not in written
    first = json.loads(written)
    assert [one["sha256"] for one in media_of(first)] == [CAT.sha256, DOG.sha256]
    assert first["results"]["results"][0]["response"]["output"] == CAT.uri
    assert first["results"]["results"][0]["cost"] is None
    for file in (folder / CAT.file, folder / DOG.file):
        file.unlink()
    assert run("-o", "again.json") == 0
    assert stats_of(base_url)["requests"] == requests
    assert media_of(json.loads(Path("again.json").read_text())) == media_of(first)
    assert (folder / CAT.file).read_bytes() == picture("a cat")
    database = (tmp_path / ".trioeval" / "results.db").read_bytes()
    assert b"iVBORw" not in database


def test_deleting_runs_removes_the_files_that_no_run_names(
    tmp_path: Path, write_suite: Callable[..., str]
) -> None:
    """A file that another run names, and a file of someone else, stay."""
    folder = tmp_path / ".trioeval" / "media"
    write_suite()
    assert run() == 0
    write_suite(tests=[{"vars": {"what": "a dog"}}])
    assert run() == 0
    (folder / "notes.txt").write_text("mine")
    assert run_command_line(["runs", "delete", "latest~1"]) == 0
    assert {one.name for one in folder.iterdir()} == {DOG.file, "notes.txt"}
    (folder / "notes.txt").unlink()
    assert run_command_line(["runs", "delete", "latest"]) == 0
    assert not folder.exists()
    cache = tmp_path / ".trioeval" / "cache-media"
    assert len([*cache.iterdir()]) == 2
    assert run_command_line(["cache", "clear"]) == 0
    assert not cache.exists()


def test_code_reads_the_file(tmp_path: Path, write_suite: Callable[..., str]) -> None:
    """The context of an assertion has its path."""
    code = "open(context['providerResponse']['media'][0]['path'], 'rb').read(4) == b'\\x89PNG'"
    write_suite(defaultTest={"assert": [{"type": "python", "value": code}]})
    assert run() == 0


@pytest.mark.slow
@pytest.mark.parametrize("is_lost", [False, True])
def test_a_killed_run_has_the_files_of_all_recorded_replies(
    tmp_path: Path, write_suite: Callable[..., str], *, is_lost: bool
) -> None:
    """The run is killed when its judge is asked: its image is not drawn again unless its file is lost."""
    folder = tmp_path / ".trioeval" / "media"
    with held_server() as judge:
        config = {"apiBaseUrl": judge.url, "apiKey": "k"}
        grader = {"id": "openai:chat:judge", "config": config}
        check = {"type": "llm-rubric", "value": "a cat", "provider": grader}
        rubric = '{"pass": true, "score": 1, "reason": "{{ rubric }}"}'
        base_url = write_suite(
            tests=[{"vars": {"what": "a cat"}, "assert": [check]}],
            defaultTest={"options": {"rubricPrompt": rubric}},
        )
        killed_at(1, tmp_path, judge)
        assert [one.name for one in folder.iterdir()] == [CAT.file]
        assert (folder / CAT.file).read_bytes() == picture("a cat")
        if is_lost:
            (folder / CAT.file).unlink()
        judge.forget_held()
        done = trioeval(*COMMAND, "--resume", "-o", "o.json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert ("cannot be read" in done.stderr) == is_lost
        assert stats_of(base_url)["requests"] == 1 + is_lost
    assert (folder / CAT.file).read_bytes() == picture("a cat")
    assert media_of(json.loads(Path("o.json").read_text())) == [CAT.to_json()]


def test_a_folder_that_cannot_be_written_is_a_problem_of_the_store(
    tmp_path: Path, write_suite: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The run goes on, as with a full disk, and says what is not kept."""
    (tmp_path / ".trioeval").mkdir()
    (tmp_path / ".trioeval" / "media").write_text("in the way")
    write_suite()
    assert run("--no-cache", "-o", "o.json") != 0
    printed = capsys.readouterr().err
    assert "a file of media cannot be written" in printed
    assert "media" in printed
    assert len(media_of(json.loads(Path("o.json").read_text()))) == 2


@pytest.mark.slow
def test_the_report_and_the_view_show_the_image(
    tmp_path: Path, write_suite: Callable[..., str], browser: Browser
) -> None:
    """The report has it inside and loads nothing; the view serves its file."""
    write_suite()
    assert run("-o", "o.html") == 0
    browser.open((tmp_path / "o.html").as_uri())
    browser.find("html[data-ready]")
    browser.click(".matrix tbody td:nth-child(2), .matrix [role=gridcell]:nth-child(2)")
    browser.expect(lambda: browser.js(SHOWN), [32, True, CAT.file])
    command = [sys.executable, "-m", "trioeval", "view", "--port", "0"]
    with open_server(command, tmp_path) as url:
        with read_store(tmp_path / ".trioeval" / "results.db") as reader:
            latest = reader.run("latest").id
        browser.open(f"{url.rstrip('/')}/row/0/0/{latest}")
        found = "img.closest('figure').querySelector('a').getAttribute('download')"
        script = (
            f"const img = document.querySelector('.media img'); return [img.naturalWidth, {found}]"
        )
        browser.expect(lambda: browser.js(script), [32, CAT.file])


SHOWN = """
const img = document.querySelector("dialog .media img");
return img && [img.naturalWidth, img.src.startsWith("data:image/png"), img.alt.split(":")[0]];
"""


def test_a_run_that_is_not_stored_copies_its_media_beside_its_result_file(
    tmp_path: Path, write_suite: Callable[..., str]
) -> None:
    """The folder has the name of the file; the page of the run has the images inside as well."""
    write_suite()
    assert run("--no-write", "-o", "o.json", "-o", "o.html") == 0
    assert (tmp_path / "o-media" / CAT.file).read_bytes() == picture("a cat")
    assert not (tmp_path / ".trioeval" / "media").exists()
