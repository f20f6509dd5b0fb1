"""Plain language: patterns of unclear English are counted per file, and the counts may only fall.

`python tests/test_language.py` prints each occurrence; `--write` stores the counts that are left.
"""

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STORED = Path(__file__).with_suffix(".json")

# A clause where a noun or a verb belongs, an actor without a name, and verbs of speech for moving data.
PHRASES = {
    "tell": r"\b(?:tells?|told|telling)\b(?! apart)",
    "nobody": r"\b(?:whoever|whichever|nobody|somebody|anybody|everybody)\b",
    "is no": r"\b(?:is|are|was) no (?!longer\b|more\b|later\b|earlier\b|less\b|other\b)\w",
    "there is no": r"\bthere (?:is|are) no \w+ (?:that|which|to)\b",
    "is had": r"\b(?:is|are|was|were|be) had\b",
    "become of": r"\b(?:becomes?|became) of\b|\bbef[ea]lls?\b|\bcomes? by\b",
    "see there": r"\b(?:See there|Likewise|The same)\.",
    "who": r"(?:^|[.;:] )(?:Who|Whoever) (?!\w+\?)\w+ ",
}
FIRST_WORDS = re.compile(r"(?:What|Who|Whose|Which|Whether|Where|Whoever|Whatever|How|That|If) ")


def texts_of(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield the line, the text and whether it is a docstring, of everything in a file that people read."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        for number, line in enumerate(source.splitlines(), 1):
            yield number, line, False
        return
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for child in body if isinstance(body, list) else []:
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                docstrings.add(child.value.lineno)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in {tokenize.COMMENT, tokenize.STRING} or token.type == getattr(
            tokenize, "FSTRING_MIDDLE", -1
        ):
            # Names of Python in the braces of an f-string are not words of a message.
            text = re.sub(r"\{[^{}]*\}", "{}", token.string)
            for offset, line in enumerate(text.splitlines()):
                is_first = token.start[0] in docstrings and offset == 0
                yield token.start[0] + offset, line, is_first


def findings(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the pattern and the text of each occurrence in a file."""
    for number, text, is_docstring in texts_of(path):
        for name, pattern in PHRASES.items():
            for _ in re.finditer(
                pattern, text, re.IGNORECASE if name not in {"see there", "who"} else 0
            ):
                yield number, name, text.strip()
        if is_docstring and FIRST_WORDS.match(text.lstrip("rbuRBU").strip("\"'")):
            yield number, "first word", text.strip()


def files() -> list[str]:
    """Return the paths of all modules and pages, relative to the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "trioeval/*.py", "tests/*.py", "docs/*.md", "docs/*.py", "README.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in listed.stdout.split() if name != "tests/test_language.py"]


# To split a module into tokens takes far longer than to see that it has none of the words, in code or text.
POSSIBLE = re.compile(
    "|".join((*PHRASES.values(), rf"[\"']{FIRST_WORDS.pattern}")), re.IGNORECASE | re.MULTILINE
)


def counts(name: str) -> dict[str, int]:
    """Return how often each pattern occurs in a file."""
    if not POSSIBLE.search((ROOT / name).read_text(encoding="utf-8")):
        return {}
    return dict(sorted(Counter(found for _, found, _ in findings(ROOT / name)).items()))


@pytest.mark.parametrize("folder", ["trioeval", "tests", "docs", "README.md"])
def test_counts_only_fall(folder: str) -> None:
    """No file has more of a pattern than is stored for it, and a stored count that is too high is lowered."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    now = {name: found for name in files() if name.startswith(folder) and (found := counts(name))}
    kept = {name: found for name, found in stored.items() if name.startswith(folder)}
    assert now == kept, "fewer: run `python tests/test_language.py --write`; more: say it plainly"


def test_a_pattern_is_found(tmp_path: Path) -> None:
    """Docstrings, comments, messages and pages are all read, and code is not."""
    module = tmp_path / "module.py"
    module.write_text(
        'def tell(told):\n    """Whether nobody is told."""\n    # It is no key.\n'
        '    raise Error(f"{told} is told")\n'
    )
    assert Counter(name for _, name, _ in findings(module)) == {
        "tell": 2,
        "nobody": 1,
        "is no": 1,
        "first word": 1,
    }
    page = tmp_path / "page.md"
    page.write_text("Whoever asks is told.\nWhich of them, nobody knows.\n")
    assert Counter(name for _, name, _ in findings(page)) == {"tell": 1, "nobody": 2, "who": 1}


if __name__ == "__main__":
    if "--write" in sys.argv:
        found = {name: occurring for name in files() if (occurring := counts(name))}
        STORED.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")
    else:
        for name in files():
            for number, kind, text in findings(ROOT / name):
                print(f"{name}:{number}: {kind}: {text}")
