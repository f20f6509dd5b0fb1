import ast
import fcntl
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
import trio.testing
from program_runs import carriers, is_alive, run, run_when_ready, wait_gone

from trioeval.errors import Fault, ProviderError
from trioeval.providers.programs import worker
from trioeval.providers.programs.workers import Workers, WorkerSpec, _start_worker, open_workers

T = TypeVar("T")
HERE = Path(__file__).parent
FILE = """
import asyncio, json, os, subprocess, sys, threading, time

calls = 0

def call_api(prompt, options=None, context=None):
    global calls
    calls += 1
    return eval(prompt)

async def on_loop(prompt):
    await asyncio.sleep(0)
    return [prompt, id(asyncio.get_running_loop())]

async def eval_on_loop(prompt):
    await asyncio.sleep(0)
    return eval(prompt)

def throw(error):
    raise error

def execute(prompt):
    exec(prompt)
"""


@pytest.fixture(autouse=True)
def last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow ending workers more time, for slow machines."""
    monkeypatch.setattr("trioeval.providers.programs.workers._LAST_WORDS", 30.0)


def spec(folder: Path, function: str = "call_api", text: str = FILE, **more: Any) -> WorkerSpec:
    (folder / "mine.py").write_text(text)
    environ = {**os.environ, **more.pop("environ", {})}
    return WorkerSpec(
        name="python:mine.py",
        executable=sys.executable,
        file=folder / "mine.py",
        function=function,
        cwd=folder,
        environ=environ,
        **{"grace": 0.2, **more},
    )


def with_workers(
    found: WorkerSpec, body: Callable[[Workers], Awaitable[T]], ready: Path | None = None
) -> T:
    """Run a test body with workers; with a pipe, the clock waits for it: see `run_when_ready`."""

    async def main() -> T:
        async with open_workers(found) as workers:
            return await body(workers)

    return run(main) if ready is None else run_when_ready(ready, main)


async def call(workers: Workers, prompt: str, limit: float = 30.0) -> Any:
    return await workers.call([prompt], limit)


async def failure(workers: Workers, prompt: str, limit: float = 30.0) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await call(workers, prompt, limit)
    return caught.value


def failed(folder: Path, prompt: str, function: str = "call_api", **more: Any) -> ProviderError:
    """Return the failure of a single call."""
    return with_workers(spec(folder, function, **more), partial(failure, prompt=prompt))


async def read_pipe(pipe: Path) -> str:
    """Read a program's output from a named pipe, after waiting for it."""
    return await trio.Path(pipe).read_text()


def test_a_worker_is_reused_by_later_calls(tmp_path: Path) -> None:
    """One process loads the file once."""

    async def body(workers: Workers) -> list[Any]:
        return [await call(workers, "[calls, os.getpid()]") for _ in range(3)]

    (one, pid), *others = with_workers(spec(tmp_path), body)
    assert (one, others) == (1, [[2, pid], [3, pid]])
    assert not is_alive(pid)


def test_workers_are_started_on_demand(tmp_path: Path) -> None:
    """A provider without calls starts no process."""
    mark = uuid.uuid4().hex

    async def body(workers: Workers) -> list[int]:
        before = carriers(mark)
        await call(workers, "1")
        return [len(before), len(carriers(mark))]

    assert with_workers(spec(tmp_path, environ={"FAMILY": mark}, workers=8), body) == [0, 1]


def test_concurrent_calls_have_separate_workers(tmp_path: Path) -> None:
    """Up to the maximum: none of the three replies before all have started."""
    for place in range(3):
        os.mkfifo(tmp_path / f"pid{place}")
        os.mkfifo(tmp_path / f"go{place}")

    async def body(workers: Workers) -> set[int]:
        async with trio.open_nursery() as nursery:
            for place in range(3):
                mark_start = f"print(os.getpid(), file=open('pid{place}', 'w'))"
                nursery.start_soon(call, workers, f"[{mark_start}, open('go{place}').read()]")
            pids = {int(await read_pipe(tmp_path / f"pid{place}")) for place in range(3)}
            for place in range(3):
                await trio.Path(tmp_path / f"go{place}").write_text("go")
        return pids

    assert len(with_workers(spec(tmp_path, workers=3), body)) == 3


def test_calls_are_served_in_order(tmp_path: Path) -> None:
    """This also holds if one of them stops waiting."""
    os.mkfifo(tmp_path / "go")
    answers: list[Any] = []

    async def one(workers: Workers, prompt: str) -> None:
        answers.append(await call(workers, prompt))

    async def body(workers: Workers) -> None:
        scope = trio.CancelScope()

        async def two() -> None:
            with scope:
                await one(workers, "'never'")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, workers, "open('go').read()")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(two)
            for number in range(3):
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(one, workers, str(number))
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await trio.Path(tmp_path / "go").write_text("first")

    with_workers(spec(tmp_path), body)
    assert answers == ["first", 0, 1, 2]


@pytest.mark.slow
def test_waiting_for_a_worker_does_not_count_as_time_of_the_call(tmp_path: Path) -> None:
    """A short call after a long one is not late."""
    os.mkfifo(tmp_path / "go")
    clock = trio.testing.MockClock()

    async def quick(workers: Workers) -> None:
        assert await call(workers, "7", limit=0.5) == 7

    async def main() -> None:
        async with open_workers(spec(tmp_path)) as workers:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call, workers, "open('go').read()")
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(quick, workers)
                await trio.testing.wait_all_tasks_blocked()
                clock.jump(1.0)
                await trio.testing.wait_all_tasks_blocked()
                await trio.Path(tmp_path / "go").write_text("go")
            clock.rate = 1.0

    trio.run(main, clock=clock)


@pytest.mark.parametrize(
    "noise",
    [
        "print('x' * 200_000)",
        "print('x' * 200_000, file=sys.stderr)",
        "os.write(1, b'\\xff\\0' * 100_000)",
        "subprocess.run(['echo', 'noise'])",
        "sys.stdout.close()",
    ],
)
def test_output_of_the_code_is_not_a_reply(tmp_path: Path, noise: str) -> None:
    """Output is ignored, however it is printed."""

    async def body(workers: Workers) -> list[Any]:
        return [await call(workers, f"[{noise}, {n}][1]") for n in range(2)]

    assert with_workers(spec(tmp_path), body) == [0, 1]


def test_child_processes_do_not_block_the_channel(tmp_path: Path) -> None:
    """This holds even if a child gets every open descriptor."""
    look = (
        "subprocess.run(['ls', '-l', '/proc/self/fd'], close_fds=False, stdout=-1).stdout.decode()"
    )
    listed: str = with_workers(spec(tmp_path), partial(call, prompt=look))
    assert "/proc/" in listed
    assert "socket:" not in listed


def test_async_functions_share_one_loop(tmp_path: Path) -> None:
    """Clients of the code keep working in later calls."""

    async def body(workers: Workers) -> list[Any]:
        return [await call(workers, prompt) for prompt in "ab"]

    (a, loop), (b, other) = with_workers(spec(tmp_path, "on_loop"), body)
    assert (a, b) == ("a", "b")
    assert loop == other


def test_code_runs_as_if_its_file_were_the_program(tmp_path: Path) -> None:
    """Modules beside it can be imported, but none of ours; it runs in the suite's directory without input."""
    (tmp_path / "beside.py").write_text("x = 5")
    sub = tmp_path / "sub"
    sub.mkdir()
    look = (
        "[__import__('beside').x, __import__('importlib.util').util.find_spec('trees'), "
        "os.getcwd(), sys.argv, sys.stdin.read(), __name__]"
    )

    async def body(workers: Workers) -> Any:
        return await call(workers, look)

    found = spec(tmp_path)
    expected = [5, None, str(tmp_path), [str(tmp_path / "mine.py")], "", "trioeval_provider_mine"]
    assert with_workers(found, body) == expected


def test_an_exception_is_reported_with_its_place(tmp_path: Path) -> None:
    """Other calls are not affected: the worker stays."""

    async def body(workers: Workers) -> tuple[ProviderError, Any, Any]:
        first = await call(workers, "os.getpid()")
        return await failure(workers, "1/0"), first, await call(workers, "os.getpid()")

    error, first, second = with_workers(spec(tmp_path), body)
    assert (error.kind, error.fault) == ("unexpected", Fault.REFUSED)
    assert str(error) == "unexpected: python:mine.py: ZeroDivisionError: division by zero"
    assert (error.body_excerpt or "").startswith("Traceback (most recent call last):\n")
    assert f'File "{tmp_path}/mine.py", line 9, in call_api' in (error.body_excerpt or "")
    assert "worker.py" not in (error.body_excerpt or "")
    assert first == second


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("{1, 2}", "TypeError: the result must be JSON, got set: {1, 2}"),
        ("float('nan')", "TypeError: the result must be JSON, got float: nan"),
        ("b'x'", "TypeError: the result must be JSON, got bytes: b'x'"),
        ("(_ for _ in ()).throw(ValueError('a\\n  b'))", "ValueError: a b"),
    ],
)
def test_a_result_that_is_not_json_is_shown(tmp_path: Path, prompt: str, message: str) -> None:
    """It cannot be passed on."""
    assert str(failed(tmp_path, prompt)) == f"unexpected: python:mine.py: {message}"


@pytest.mark.slow
def test_large_results_are_transferred_up_to_a_limit(tmp_path: Path) -> None:
    """A larger result is an error of its call; so are larger arguments."""

    async def body(workers: Workers) -> list[Any]:
        large = await call(workers, "'x' * 5_000_000")
        error = await failure(workers, "'x' * 70_000_000")
        refused = await failure(workers, "1" * 70_000_000)
        return [len(large), str(error), str(refused), await call(workers, "calls")]

    name, most = "python:mine.py", "more than the maximum of 67108864"
    result = f"ResultTooLargeError: the result is 70000022 bytes of JSON, {most}"
    assert with_workers(spec(tmp_path), body) == [
        5_000_000,
        f"unexpected: {name}: {result}",
        f"bad_request: {name}: prompt and variables are 70000004 bytes, {most}",
        3,
    ]


def test_a_lone_surrogate_is_replaced(tmp_path: Path) -> None:
    """No file and no terminal can hold it."""
    assert with_workers(spec(tmp_path), partial(call, prompt="'a\\ud800b'")) == "a?b"


@pytest.mark.parametrize(
    ("prompt", "fate", "words"),
    [
        ("os._exit(4)", "ended with exit code 4", "last words"),
        ("os.kill(os.getpid(), 9)", "was ended by SIGKILL", "last words"),
        ("os.abort()", "was ended by SIGABRT", "last words"),
        ("sys.exit(3)", "ended with exit code 3", "SystemExit: 3"),
        ("sys.exit('no')", "ended with exit code 1", "SystemExit: no"),
        ("sys.exit(-1)", "ended with exit code 255", "SystemExit: -1"),
        ("sys.exit()", "ended with exit code 0", "SystemExit"),
        ("throw(KeyboardInterrupt())", "ended with exit code 1", "KeyboardInterrupt"),
    ],
)
def test_a_worker_that_ends_is_replaced(tmp_path: Path, prompt: str, fate: str, words: str) -> None:
    """PR-27: the call fails with the last output, and the next one works."""

    async def body(workers: Workers) -> tuple[ProviderError, Any]:
        error = await failure(workers, f"[print('last words'), {prompt}]")
        return error, await call(workers, "calls")

    error, calls = with_workers(spec(tmp_path), body)
    assert (error.kind, error.fault, error.retries) == ("worker_crashed", Fault.TRANSIENT, 1)
    assert error.message == f"python:mine.py: the worker {fate}: {words}"
    assert (error.body_excerpt or "").startswith("last words")
    assert calls == 1


def test_a_worker_that_exits_does_not_wait_for_threads(tmp_path: Path) -> None:
    """A thread of the user's code does not delay the end."""
    thread = "threading.Thread(target=time.sleep, args=(1000,)).start()"
    error = failed(tmp_path, f"[{thread}, sys.exit(3)]")
    assert (error.kind, "exit code 3" in error.message) == ("worker_crashed", True)


@pytest.mark.parametrize(
    ("prompt", "what"),
    [
        ("throw(asyncio.CancelledError())", "CancelledError"),
        ("throw(BaseExceptionGroup('two', [KeyboardInterrupt()]))", "BaseExceptionGroup: two"),
    ],
)
def test_an_exception_of_a_cancelled_task_ends_only_its_call(
    tmp_path: Path, prompt: str, what: str
) -> None:
    """The worker continues."""

    async def body(workers: Workers) -> tuple[ProviderError, Any]:
        return await failure(workers, prompt), await call(workers, "1")

    error, after = with_workers(spec(tmp_path, "eval_on_loop"), body)
    assert (error.kind, error.fault, after) == ("unexpected", Fault.REFUSED, 1)
    assert error.message.startswith(f"python:mine.py: {what}".strip())


def test_a_worker_killed_during_a_call_is_replaced(tmp_path: Path) -> None:
    """The end is noticed at once."""
    os.mkfifo(tmp_path / "pid")

    async def body(workers: Workers) -> ProviderError:
        async def kill() -> None:
            os.kill(int(await read_pipe(tmp_path / "pid")), signal.SIGKILL)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            prompt = "[print(os.getpid(), file=open('pid', 'w')), time.sleep(1000)]"
            error = await failure(workers, prompt)
        assert await call(workers, "calls") == 1
        return error

    error = with_workers(spec(tmp_path), body)
    assert str(error) == "worker_crashed: python:mine.py: the worker was ended by SIGKILL"


def test_an_idle_worker_that_ends_is_replaced_without_a_failure(tmp_path: Path) -> None:
    """No call was lost."""

    async def body(workers: Workers) -> tuple[int, int]:
        first = await call(workers, "os.getpid()")
        os.kill(first, signal.SIGKILL)
        assert wait_gone(first, 10)
        return first, await call(workers, "os.getpid()")

    first, second = with_workers(spec(tmp_path), body)
    assert first != second


@pytest.mark.slow
def test_a_worker_that_hangs_is_replaced_with_its_processes(tmp_path: Path) -> None:
    """PR-27: an endless loop with a child in another session is ended."""
    mark = uuid.uuid4().hex
    hang = (
        "print('busy'); subprocess.Popen(['setsid', 'sleep', '1000']); open('ready', 'w').close()\n"
        "while True: pass"
    )

    async def body(workers: Workers) -> tuple[ProviderError, list[int], Any]:
        await call(workers, "1")
        error = await failure(workers, hang, limit=0.5)
        return error, carriers(mark), await call(workers, "2")

    found = spec(tmp_path, "execute", environ={"FAMILY": mark})
    error, left, after = with_workers(found, body, tmp_path / "ready")
    assert (error.kind, error.body_excerpt) == ("attempt_timeout", "busy")
    assert error.message == "python:mine.py did not answer within 0.5 seconds (timeoutMs)"
    assert (left, after) == ([], None)


@pytest.mark.slow
def test_a_worker_that_ignores_the_request_to_end_is_killed(tmp_path: Path) -> None:
    """It is killed after its grace period."""
    stubborn = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('busy')\n"
        "open('ready', 'w').close()\n"
        "while True: pass"
    )
    mark = uuid.uuid4().hex

    async def body(workers: Workers) -> list[int]:
        assert (await failure(workers, stubborn, limit=0.5)).body_excerpt == "busy"
        return carriers(mark)

    found = spec(tmp_path, "execute", environ={"FAMILY": mark})
    assert with_workers(found, body, tmp_path / "ready") == []


@pytest.mark.slow
def test_a_cancelled_call_ends_its_worker(tmp_path: Path) -> None:
    """The next call is served by another worker."""
    os.mkfifo(tmp_path / "pid")

    async def body(workers: Workers) -> int:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                prompt = "[print(os.getpid(), file=open('pid', 'w')), time.sleep(1000)]"
                nursery.start_soon(call, workers, prompt)
                pid = int(await read_pipe(tmp_path / "pid"))
                scope.cancel()
        assert not is_alive(pid)
        assert await call(workers, "calls") == 1
        return pid

    with_workers(spec(tmp_path), body)


@pytest.mark.slow
def test_a_file_that_crashes_three_times_in_a_row_is_fatal(tmp_path: Path) -> None:
    """The failure is fatal for the lane; a success resets the count, and a late call does not count."""

    async def body(workers: Workers) -> list[Any]:
        faults: list[Any] = []
        for prompt in (
            "os._exit(1)",
            "os._exit(1)",
            "1",
            "os._exit(1)",
            "os._exit(1)",
            "late",
            "os._exit(1)",
        ):
            if prompt == "1":
                await call(workers, prompt)
            elif prompt == "late":
                await failure(workers, "time.sleep(1000)", limit=0.3)
            else:
                error = await failure(workers, prompt)
                faults.append(error.fault)
        assert str(error).endswith("ended with exit code 1; 3 crashes in a row")
        return faults

    assert with_workers(spec(tmp_path), body) == [Fault.TRANSIENT] * 4 + [Fault.FATAL]


@pytest.mark.slow
@pytest.mark.parametrize(
    "garbage",
    [
        "b'\\0\\0\\0\\2{}'",
        "b'\\0\\0\\0\\2no'",
        "b'\\xff\\xff\\xff\\xff'",
        "b'\\0\\0\\0\\x09{\"id\": 9}'",
    ],
)
def test_a_worker_that_sends_garbage_is_replaced(
    tmp_path: Path, garbage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that writes to every open socket cannot change another call's reply."""
    monkeypatch.setattr("trioeval.providers.programs.workers._LAST_WORDS", 0.5)  # it stays
    write = f"""
import stat
for name in os.listdir("/proc/self/fd"):
    try:
        if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
            os.write(int(name), {garbage})
    except OSError:
        pass
time.sleep(1000)
"""

    async def body(workers: Workers) -> ProviderError:
        error = await failure(workers, write)
        assert await call(workers, "1") is None
        return error

    error = with_workers(spec(tmp_path, "execute"), body)
    assert str(error) == "worker_crashed: python:mine.py: the worker sent no answer"


def test_a_forked_copy_of_a_worker_is_not_waited_for(tmp_path: Path) -> None:
    """It keeps the socket open, and is ended."""
    mark = uuid.uuid4().hex
    fork = "os._exit(5) if os.fork() else [os.setsid(), time.sleep(1000)]"

    async def body(workers: Workers) -> tuple[ProviderError, list[int]]:
        return await failure(workers, fork), carriers(mark)

    error, left = with_workers(spec(tmp_path, environ={"FAMILY": mark}), body)
    assert str(error).endswith("the worker ended with exit code 5")
    assert left == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise ValueError('not today')", "ValueError: not today"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("call_api = 3", "TypeError: function call_api not found in "),
        ("x = 1", "TypeError: function call_api not found in "),
        ("def call_api(:", "SyntaxError: "),
    ],
)
def test_a_file_that_cannot_be_loaded_fails_every_call(
    tmp_path: Path, text: str, message: str
) -> None:
    """The failure is fatal for the lane."""
    error = failed(tmp_path, "1", text=text)
    assert (error.kind, error.fault) == ("unexpected", Fault.FATAL)
    assert error.message.startswith(f"python:mine.py: {message}")


def test_a_file_that_ends_the_program_is_a_crash(tmp_path: Path) -> None:
    """No call is made."""
    error = failed(tmp_path, "1", text="import sys; sys.exit('no licence')")
    assert str(error) == (
        "worker_crashed: python:mine.py: the worker ended with exit code 1: SystemExit: no licence"
    )


def test_an_interpreter_that_cannot_be_started_is_reported(tmp_path: Path) -> None:
    """It is a failure of the call."""
    found = spec(tmp_path)
    missing = WorkerSpec(
        name="python:mine.py",
        executable=str(tmp_path / "python"),
        file=found.file,
        function="call_api",
        cwd=tmp_path,
        environ={},
    )
    error = with_workers(missing, partial(failure, prompt="1"))
    assert error.kind == "server"
    assert error.message == (
        f'python:mine.py: program "{tmp_path}/python" not found, or the interpreter in its first line'
    )


@pytest.mark.slow
def test_idle_workers_may_finish_their_work(tmp_path: Path) -> None:
    """This holds at the end of a run that was not cancelled."""
    later = "__import__('atexit').register(open('done', 'w').close)"

    async def body(workers: Workers) -> None:
        await call(workers, f"[{later}, None][1]")

    with_workers(spec(tmp_path), body)
    assert (tmp_path / "done").exists()


@pytest.mark.slow
def test_idle_workers_that_do_not_end_are_ended(tmp_path: Path) -> None:
    """Code that waits for its own thread is not waited for."""

    async def body(workers: Workers) -> int:
        thread = "threading.Thread(target=time.sleep, args=(1000,)).start()"
        pid: int = await call(workers, f"[{thread}, os.getpid()][1]")
        return pid

    assert not is_alive(with_workers(spec(tmp_path), body))


@pytest.mark.slow
def test_calls_cancelled_at_any_instant_leave_no_process(tmp_path: Path) -> None:
    """Fifty calls of four workers are cancelled before, while and after they start; the next one works."""
    mark = uuid.uuid4().hex

    async def one(workers: Workers, instant: float) -> None:
        with trio.move_on_after(instant):
            await call(workers, "[subprocess.Popen(['sleep', '1000']), time.sleep(1000)]")

    async def body(workers: Workers) -> Any:
        for round_ in range(5):
            async with trio.open_nursery() as nursery:
                for place in range(10):
                    nursery.start_soon(one, workers, round_ * 0.02 + place * 0.01)
        assert carriers(mark) == []
        return await call(workers, "calls")

    assert with_workers(spec(tmp_path, environ={"CHURN": mark}, workers=4), body) == 1
    assert carriers(mark) == []


HOST = """
import os, sys, trio
from pathlib import Path
from trioeval.providers.programs.workers import WorkerSpec, open_workers

async def main():
    folder = Path(sys.argv[1])
    spec = WorkerSpec(name="mine", executable=sys.executable, file=folder / "mine.py",
        function="execute", cwd=folder, environ=os.environ)
    async with open_workers(spec) as workers:
        await workers.call([sys.argv[2]], 1000.0)

trio.run(main)
"""


@pytest.mark.slow
def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    """Workers notice it themselves, even in an endless loop."""
    spec(tmp_path)
    os.mkfifo(tmp_path / "pids")
    busy = (
        "child = subprocess.Popen(['sleep', '1000'])\n"
        "with open('pids', 'w') as pipe: print(os.getpid(), child.pid, file=pipe)\n"
        "while True: pass"
    )
    with subprocess.Popen([sys.executable, "-c", HOST, tmp_path, busy]) as host:
        pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
        assert len(pids) == 2
        host.kill()
    assert all(wait_gone(pid, 20) for pid in pids)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(fcntl, "F_SETSIG"), reason="only Linux ends such a process")
def test_a_worker_ends_even_if_no_other_thread_can_run(tmp_path: Path) -> None:
    """It holds the interpreter's lock, and the program that started it is killed."""
    spec(tmp_path)
    os.mkfifo(tmp_path / "pids")
    deaf = (
        "import ctypes\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        "with open('pids', 'w') as pipe: print(os.getpid(), child.pid, file=pipe)\n"
        "ctypes.PyDLL(None).sleep(1000)"
    )
    with subprocess.Popen([sys.executable, "-c", HOST, tmp_path, deaf]) as host:
        pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
        assert len(pids) == 2
        host.kill()
    assert all(wait_gone(pid, 20) for pid in pids)


def count_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_worker_closed_while_its_call_is_cancelled_leaves_nothing(
    tmp_path: Path,
) -> None:
    """Neither a process nor a descriptor is left, although every step of the closing is cancelled."""
    mark = uuid.uuid4().hex

    async def main() -> int:
        descriptors = count_descriptors()
        worker_ = await _start_worker(spec(tmp_path, environ={"FAMILY": mark}))
        assert len(carriers(mark)) == 1
        with trio.CancelScope() as scope:
            scope.cancel()
            await worker_.aclose()
        return count_descriptors() - descriptors

    assert run(main) <= 0
    assert carriers(mark) == []


def test_the_worker_runs_on_older_interpreters() -> None:
    """Its syntax is that of Python 3.9, and it imports only the standard library."""
    tree = ast.parse(Path(worker.__file__).read_text(), feature_version=(3, 9))
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [a.name for a in node.names]
        )
    }
    assert imported <= sys.stdlib_module_names
