"""The one wording of messages about a missing program."""

import errno

import pytest

from trioeval.executables import find_program, missing_program, start_failure


@pytest.mark.parametrize(
    ("program", "number", "message"),
    [
        ("git", errno.ENOENT, 'program "git" not found in PATH: install it, or correct its name'),
        ("./a", errno.ENOENT, 'program "./a" not found, or the interpreter in its first line'),
        ("./a", errno.EACCES, 'program "./a" cannot be started: refused'),
        ("git", errno.ENOEXEC, 'program "git" cannot be started: refused'),
    ],
)
def test_a_program_that_cannot_be_started_is_named_with_the_reason(
    program: str, number: int, message: str
) -> None:
    """A name without a folder is searched in PATH; a script may name an interpreter."""
    assert start_failure(program, OSError(number, "refused")) == message


def test_a_message_before_the_start_says_what_requires_the_program() -> None:
    """It is the same text, so that one search finds all of them."""
    assert missing_program("git") == 'program "git" not found in PATH'
    assert missing_program("git", "Ruby code").endswith("in PATH, required for Ruby code")


def test_programs_are_searched_in_the_path_of_the_given_environment() -> None:
    """The environment of this process does not count."""
    assert find_program("sh", {"PATH": "/bin"}) == "/bin/sh"
    assert find_program("sh", {"PATH": "/nowhere"}) is None
