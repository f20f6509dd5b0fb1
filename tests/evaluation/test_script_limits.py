"""Hostile code affects only its own assertion, and leaves no process or file."""

import os
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
import trio.testing
from processes import alive

import trioeval
from trioeval.documents.files import FileContext
from trioeval.errors import GradingError, ScriptError
from trioeval.evaluation.judge_services import JudgeServices, UserCode, open_judge_services
from trioeval.providers.programs.workers import Encoded
from trioeval.scripting.engine import program
from trioeval.scripting.javascript import assertion_script

pytestmark = pytest.mark.slow  # processes

T = TypeVar("T")


def with_code(
    folder: Path,
    body: Callable[[UserCode], Awaitable[T]],
    clock: trio.testing.MockClock | None = None,
    **environ: str,
) -> T:
    """Return the result of a function, after checking that no process is left."""
    mark = uuid.uuid4().hex
    context = FileContext(directory=folder, environ={**os.environ, "OUR_MARK": mark, **environ})

    async def main() -> T:
        with trio.fail_after(60):
            async with open_judge_services(context) as means:
                return await body(code_of(means))

    found = trio.run(main, clock=clock)
    assert not alive(mark)
    return found


def code_of(means: JudgeServices) -> UserCode:
    return means.code(lambda: Encoded.of({"prompt": "p"}))


@contextmanager
def standing(clock: trio.testing.MockClock) -> Iterator[None]:
    """Virtual time does not pass meanwhile, so nothing is late on a slow machine."""
    clock.rate = 0.0
    yield
    clock.rate = 1.0


@pytest.fixture(autouse=True)
def last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give an ending worker enough time, even if the machine is paused for a while."""
    monkeypatch.setattr("trioeval.providers.programs.workers._LAST_WORDS", 30.0)


HOSTILE = {
    "exits": "exit(3)",
    "exits without a word": "__import__('os')._exit(0)",
    "is killed": "__import__('os').kill(__import__('os').getpid(), 9)",
    "kills its group": "__import__('os').killpg(0, 9)",
    "allocates 10 GB": "len(bytearray(10 * 1024 ** 3))",
    "never ends to call itself": "def f(n):\n    return f(n + 1)\nreturn f(0)",
    "gives no JSON": "object()",
    "raises BaseException": "raise BaseException('no')\n",
}


def test_any_failure_of_code_affects_only_its_assertion(tmp_path: Path) -> None:
    """All failures happen in one worker; after each of them the next call works."""

    async def body(code: UserCode) -> dict[str, str]:
        found = {}
        for name, text in HOSTILE.items():
            with pytest.raises((ScriptError, GradingError)) as caught:
                await code.python(text, "abc")
            found[name] = str(caught.value)
            assert await code.python("len(output)", "abc") == 3
        return found

    found = with_code(tmp_path, body, TRIOEVAL_PYTHON_WORKERS="1", TRIOEVAL_SCRIPT_MEMORY_MB="512")
    assert found["exits"] == "Python: the worker ended with exit code 3: SystemExit: 3"
    assert found["is killed"] == "Python: the worker was ended by SIGKILL"
    assert found["allocates 10 GB"] == "the script hit a limit: Python: MemoryError"
    assert found["never ends to call itself"].startswith("Python: RecursionError")
    assert "the result must be JSON" in found["gives no JSON"]


def test_forks_of_code_do_not_answer(tmp_path: Path) -> None:
    """One call has one answer; remaining processes end with the pool."""
    stays = "import os, time\nif os.fork() == 0:\n    time.sleep(600)\nreturn 1"

    async def body(code: UserCode) -> list[Any]:
        texts = ["__import__('os').fork() >= 0", "len(output)", stays, "len(output) + 1"]
        return [await code.python(text, "abc") for text in texts * 2]

    assert with_code(tmp_path, body, TRIOEVAL_PYTHON_WORKERS="1") == [True, 3, 1, 4] * 2


def test_output_of_code_is_read_and_discarded(tmp_path: Path) -> None:
    """This includes 100 MB, and closed streams."""
    closes = "import os, sys\nsys.stdout.close()\nos.close(1)\nos.close(2)\nreturn 2"

    async def body(code: UserCode) -> list[Any]:
        floods = "print('x' * 100_000_000) or 1"
        return [await code.python(text, "abc") for text in (floods, closes, "len(output)")]

    assert with_code(tmp_path, body, TRIOEVAL_PYTHON_WORKERS="1") == [1, 2, 3]


def test_endless_code_is_ended(tmp_path: Path) -> None:
    """It gives no verdict about the output, but an error that names the limit."""

    async def body(code: UserCode) -> tuple[str, Any]:
        with pytest.raises(GradingError) as caught:
            await code.python("while True:\n    pass", "abc")
        with standing(clock):
            return str(caught.value), await code.javascript("output.length", "abc")

    clock = trio.testing.MockClock(rate=1.0)
    message, value = with_code(tmp_path, body, clock, TRIOEVAL_SCRIPT_TIMEOUT_MS="900")
    assert message == "the script did not end within 0.9 seconds (SCRIPT_TIMEOUT_MS)"
    assert value == 3


def test_limits_hold_for_javascript(tmp_path: Path) -> None:
    """This holds for files and lines: a limit of time or memory is not a verdict about the output."""
    file = tmp_path / "judges.js"
    file.write_text(
        "module.exports = { loops: () => { for (;;); }, length: (text) => text.length };"
    )

    async def body(code: UserCode) -> tuple[list[str], str, Any]:
        message = []
        for judged in (
            code.file(file, "loops", "abc"),
            code.javascript("(() => { for (;;); })()", ""),
        ):
            with pytest.raises(GradingError) as caught:
                await judged
            message.append(str(caught.value))
        with standing(clock):
            with pytest.raises(GradingError) as failed:
                await code.javascript("'x'.repeat(150e6).length", "abc")
            return message, str(failed.value), await code.file(file, "length", "abc")

    clock = trio.testing.MockClock(rate=1.0)
    limits = {"TRIOEVAL_SCRIPT_TIMEOUT_MS": "400", "TRIOEVAL_SCRIPT_MEMORY_MB": "100"}
    message, failed, value = with_code(tmp_path, body, clock, **limits)
    assert message == ["the script did not end within 0.4 seconds (SCRIPT_TIMEOUT_MS)"] * 2
    assert "memory" in failed
    assert value == 3


def test_the_end_of_a_row_ends_its_scripts(tmp_path: Path) -> None:
    """The process is killed; other calls are not affected, not even those that wait for the same worker."""
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    pipe = os.open(pids, os.O_RDWR | os.O_NONBLOCK)
    hangs = (
        "import os\n"
        f"with open({str(pids)!r}, 'w') as file:\n"
        "    file.write(str(os.getpid()))\n"
        "while True:\n"
        "    pass"
    )

    async def body(code: UserCode) -> tuple[str, Any]:
        row = trio.CancelScope()
        others: list[Any] = []

        async def hang() -> None:
            with row:
                await code.python(hangs, "abc")

        async def wait() -> None:
            others.append(await code.python("len(output)", "abc"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hang)
            await trio.lowlevel.wait_readable(pipe)
            pid = os.read(pipe, 100).decode()
            nursery.start_soon(wait)
            row.cancel()
        return pid, others

    try:
        pid, others = with_code(tmp_path, body, TRIOEVAL_PYTHON_WORKERS="1")
    finally:
        os.close(pipe)
    assert others == [3]
    assert not Path(f"/proc/{pid}").exists()


def test_as_47_an_endless_script_affects_only_its_row(tmp_path: Path) -> None:
    """The row is an error with this reason, its process is killed, and the next row is judged."""
    hangs = (
        "import os, time\nopen('pid', 'w').write(str(os.getpid()))\nwhile True:\n    time.sleep(1)"
    )
    suite = trioeval.parse_suite(
        {
            "providers": ["echo"],
            "prompts": ["p"],
            "evaluateOptions": {"timeoutMs": 10_000, "maxConcurrency": 1},
            "tests": [
                {"assert": [{"type": "python", "value": value}]} for value in (hangs, "len(output)")
            ],
        },
        directory=tmp_path,
    )
    hung, fine = trio.run(trioeval.collect, suite)
    assert hung.error == "timed out after 10 s of working time (timeoutMs)"
    assert [hung.status.value, fine.status.value] == ["error", "pass"]
    pid = next(tmp_path.glob("**/pid")).read_text()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("text", "wrong", "message"),
    [
        (
            "const a = [];\nwhile (true) a.push(new ArrayBuffer(1e8))",
            GradingError,
            "out of memory",
        ),
        ("'x'.repeat(1e9).length", (ScriptError, GradingError), "invalid|out of memory"),
        ("const f = () => f(); f()", ScriptError, "stack size"),
        ("globalThis.process.exit(1)", ScriptError, "cannot read property"),
    ],
)
def test_javascript_cannot_exceed_its_limits(
    text: str, wrong: Any, message: str, tmp_path: Path
) -> None:
    """Reaching a limit of the engine is an error, and a thrown exception is a verdict."""

    async def body(code: UserCode) -> Any:
        with pytest.raises(wrong, match=message):
            await code.javascript(text, "abc")
        return await code.javascript("output.length", "abc")

    assert with_code(tmp_path, body) == 3


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    """It existed when the suite was loaded; its absence is not a verdict about the output."""

    async def body(code: UserCode) -> None:
        with pytest.raises(GradingError, match=r"gone\.js"):
            await code.file(tmp_path / "gone.js", None, "abc")

    with_code(tmp_path, body)


@pytest.mark.parametrize(
    ("code", "limit"),
    [("for (;;) {}\n//", True), ("throw null\n//", True), ("throw new Error('no')\n//", False)],
)
def test_the_engine_distinguishes_its_limits_from_thrown_errors(
    code: str, monkeypatch: pytest.MonkeyPatch, *, limit: bool
) -> None:
    monkeypatch.setattr(program, "TIME_LIMIT", 0.05)
    result = program.run(assertion_script(code, ("output",)).source, ["x"])
    assert result["limit"] is limit
