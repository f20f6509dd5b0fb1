"""Every command, program and link of README and docs works as its page shows."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from snippets import PAGES, ROOT, blocks, python_blocks, same
from workbench import installation, run_console, run_program, start_folder, start_of

_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_TOCTREE = re.compile(r"^```\{toctree\}\n(?::.*\n)*((?:.*\n)*?)```$", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if any(b.language == language for b in blocks(page))]


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", _FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.slow
@pytest.mark.parametrize("page", _pages_with("python"), ids=_name)
def test_programs_of_a_page_print_the_documented_output(page: Path, tmp_path: Path) -> None:
    """The blocks of one page are one program, in a new folder, with the extras that the page names."""
    folder = start_folder(page, tmp_path)
    found = [*python_blocks(page)]
    # Empty lines precede the program, so that a traceback has line numbers of the page.
    sources = [("\n" * block.line + block.text, str(page)) for block, _ in found]
    outputs = run_program(sources, folder, installation(page, tmp_path))
    for (_, expected), printed in zip(found, outputs, strict=True):
        assert expected is None or same(expected, printed), printed


@pytest.mark.slow
@pytest.mark.parametrize("page", _pages_with("console"), ids=_name)
def test_commands_of_a_page_print_the_documented_output(page: Path, tmp_path: Path) -> None:
    """The commands of a page work in a new folder, with the extras that the page names."""
    folder = start_folder(page, tmp_path)
    environ = installation(page, tmp_path)
    for block in blocks(page):
        if block.language == "console":
            for command, expected, printed in run_console(block, folder, environ):
                assert same(expected, printed), f"$ {command}\n{printed}"


@pytest.mark.parametrize(
    "page", sorted({*_pages_with("python"), *_pages_with("console")}), ids=_name
)
def test_a_page_names_its_extras_and_its_folder(page: Path) -> None:
    """Each page that is executed has one line for this: the tests provide exactly this and nothing else."""
    assert page == ROOT / "README.md" or start_of(page) is not None


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    """A link to a file finds it, and a link to a heading finds the heading."""
    for target in _LINK.findall(_FENCED.sub("", page.read_text())):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        assert not anchor or anchor in _anchors(found), target


def test_every_page_can_be_reached_from_the_readme() -> None:
    """No page is without a link to it."""
    reached: set[Path] = set()
    todo = [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        reached.add(page)
        text = page.read_text()
        targets = _LINK.findall(_FENCED.sub("", text))
        targets += [f"{entry}.md" for tree in _TOCTREE.findall(text) for entry in tree.split()]
        linked = {(page.parent / target.partition("#")[0]).resolve() for target in targets}
        todo += [path for path in linked if path.suffix == ".md" and path not in reached]
    fragments = {page for page in PAGES if page.parent.name == "changes"}  # between releases
    assert set(PAGES) - fragments <= reached


@pytest.mark.slow
def test_the_first_command_of_the_readme_runs_the_example() -> None:
    """All commands after the creation of the environment are run with the current interpreter."""
    command, _tests = [block for block in blocks(ROOT / "README.md") if block.language == "sh"][:2]
    *_, run = command.text.strip().split(" && ")
    executable, *arguments = run.split()
    assert executable == ".venv/bin/python"
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith(" passed, 0 failed, 0 errors; exit 0: every row passed\n")


@pytest.mark.parametrize("place", [0, 1])
def test_the_commands_of_the_readme_are_one_line_each(place: int) -> None:
    """They are at the top, so that scripts find them: run the example, run the tests."""
    first, second = blocks(ROOT / "README.md")[:2]
    block = (first, second)[place]
    assert block.language == "sh"
    assert block.text.count("\n") == 1
    assert block.text.startswith("python3 -m venv .venv && .venv/bin/pip install -q ")


@pytest.mark.parametrize(
    ("expected", "printed", "alike"),
    [
        (" a   b\n ───\n\n", "a b\n──────  \n", True),
        ("from ... to\n...\nend", "from here to\nthere\nand\nend", True),
        ("3 rows in 0.0 s: done", "3 rows in 1.2 s: done", True),
        ("echo 33.3 % 0.333 0 0 8", "echo   33.3 %   0.333   12   340   8", True),
        ("echo 33.3 % 0.333 0 0 8", "echo 33.3 % 0.333 0 0 9", False),
        ("a long te …", "a long text …", True),
        ("3 rows", "4 rows", False),
        ("done", "done\nand more", False),
    ],
)
def test_output_is_compared_without_its_layout(
    expected: str,
    printed: str,
    alike: bool,  # noqa: FBT001
) -> None:
    """Different words are detected; narrower columns are not a difference."""
    assert same(expected, printed) is alike
