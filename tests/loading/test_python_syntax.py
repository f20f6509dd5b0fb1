"""Python code of a suite that the running version cannot parse."""

import sys
from pathlib import Path

import pytest

from trioeval.errors import SuiteError
from trioeval.loading.load import parse_suite
from trioeval.scripting.python_syntax import python_fault

RUNNING = ".".join(map(str, sys.version_info[:3]))


@pytest.mark.parametrize(
    ("code", "version", "line"),
    [
        ("type X = int\n", (3, 12), 1),
        ("def f[T](x: T) -> T:\n    return x\n", (3, 12), 1),
        ("import os\nclass A[T]:\n    pass\n", (3, 12), 2),
        ("a = {}\nb = f'{a['x']}'\n", (3, 12), 2),
        ("try:\n    pass\nexcept ValueError, TypeError:\n    pass\n", (3, 14), 3),
    ],
)
def test_newer_syntax_is_reported_with_both_versions(
    tmp_path: Path, code: str, version: tuple[int, int], line: int
) -> None:
    """Calling it invalid Python would be wrong, and would not help."""
    if sys.version_info >= version:
        pytest.skip("this Python reads it")
    (tmp_path / "new.py").write_text(f"{code}def get_assert(output, context):\n    return True\n")
    tests = [{"assert": [{"type": "python", "value": "file://new.py"}]}]
    with pytest.raises(SuiteError) as caught:
        parse_suite({"providers": ["echo"], "tests": tests}, directory=tmp_path)
    newer = ".".join(map(str, version))
    message = f"uses syntax of Python {newer} in line {line}, but Python {RUNNING} runs it"
    assert caught.value.problems[0].message == f'"new.py" {message}'


@pytest.mark.parametrize(
    "code", ["def f(:\n    pass\n", "x = f'{a'\n", "except A:\n", "print 'a'\n"]
)
def test_other_syntax_errors_are_not_newer_syntax(code: str) -> None:
    """They are invalid in every version."""
    with pytest.raises(SyntaxError) as caught:
        compile(code, "x.py", "exec")
    assert python_fault(caught.value, code).startswith("is not Python: ")
