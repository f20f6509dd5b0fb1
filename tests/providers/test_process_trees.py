import errno
import os
import subprocess
import uuid
from collections.abc import Iterable
from pathlib import Path

import pytest
import trio
from program_runs import carriers, is_alive, run, wait_gone

from trioeval.providers.programs.members import Member, find_members
from trioeval.providers.programs.trees import Tree, describe_end, start_tree

HERE = Path(__file__).parent


async def start(script: str, grace: float = 2.0, **environ: str) -> Tree:
    return await start_tree(
        ["sh", "-c", script],
        cwd=HERE,
        environ={**os.environ, **environ},
        stdout=subprocess.PIPE,
        grace=grace,
    )


async def read_words(tree: Tree, count: int) -> list[str]:
    """What the program says first; it has said it when this returns."""
    text = ""
    while len(text.split()) < count or not text.endswith("\n"):
        assert tree.process.stdout is not None
        part = await tree.process.stdout.receive_some()
        assert part
        text += part.decode()
    return text.split()


async def read_rest(tree: Tree) -> str:
    assert tree.process.stdout is not None
    return b"".join([bytes(part) async for part in tree.process.stdout]).decode()


@pytest.mark.parametrize(
    "script",
    [
        "sleep 1000 & echo $!; wait",
        "sh -c 'sleep 1000 & echo $!; wait' & wait",
        "setsid sleep 1000 & echo $!; wait",
        "env -i setsid sleep 1000 & echo $!; wait",
        "(setsid sleep 1000 & echo $!); sleep 1000",
    ],
    ids=["child", "grandchild", "session", "no mark", "orphan"],
)
def test_a_tree_ends_with_its_block(script: str) -> None:
    """Children of children as well, and those that left the session."""

    async def main() -> None:
        async with await start(script) as tree:
            (pid,) = map(int, await read_words(tree, 1))
            assert is_alive(pid)
        assert not is_alive(pid)
        assert tree.process.returncode is not None
        assert isinstance(tree.process.stdout, trio.lowlevel.FdStream)
        with pytest.raises(trio.ClosedResourceError):
            await tree.process.stdout.receive_some()

    run(main)


def test_what_a_program_left_behind_is_ended() -> None:
    """A tree is not over because its first process is; what that wrote can be read."""

    async def main() -> None:
        async with await start("sleep 1000 & setsid sleep 1000 & echo $!") as tree:
            (pid,) = map(int, await read_words(tree, 1))
            assert await tree.wait() == 0
            assert is_alive(pid)
            await tree.end()
            assert not is_alive(pid)
            assert await read_rest(tree) == ""

    run(main)


def test_a_program_may_end_by_itself_when_it_is_asked_to() -> None:
    """Its last words and its exit code are kept."""

    async def main() -> None:
        async with await start('trap "echo bye; exit 7" TERM; echo up; sleep 1000 & wait') as tree:
            assert await read_words(tree, 1) == ["up"]
            await tree.end()
            assert await tree.wait() == 7
            assert await read_rest(tree) == "bye\n"

    run(main)


STUBBORN = """trap "echo asked" TERM
setsid sh -c 'trap "" TERM; echo up; exec sleep 1000' & wait; wait; wait"""


@pytest.mark.slow
@pytest.mark.parametrize("has_handles", [True, False])
def test_a_program_is_asked_once_and_then_killed(
    monkeypatch: pytest.MonkeyPatch,
    has_handles: bool,  # noqa: FBT001
) -> None:
    """What goes on regardless has as long as its grace, in its session or out of it."""

    def refuse(_pid: int) -> int:
        raise OSError(errno.ENOSYS, "an old system")

    if not has_handles:
        monkeypatch.setattr(os, "pidfd_open", refuse)
    mark = uuid.uuid4().hex

    async def main() -> None:
        async with await start(STUBBORN, grace=0.5, FAMILY=mark) as tree:
            assert await read_words(tree, 1) == ["up"]
            assert len(carriers(mark)) == 2
            started_at = trio.current_time()
            await tree.end()
            assert 0.5 <= trio.current_time() - started_at < 1.5
            assert carriers(mark) == []
            assert await tree.wait() == -9
            assert await read_rest(tree) == "asked\n"

    run(main)


def test_a_tree_ends_also_when_its_block_is_cancelled() -> None:
    """The end is not cut short by what ended the block."""

    async def main() -> None:
        with trio.CancelScope() as scope:
            async with await start('trap "" TERM; sleep 1000 & echo $!; wait', grace=0.1) as tree:
                (pid,) = map(int, await read_words(tree, 1))
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert not is_alive(pid)
        assert not is_alive(tree.process.pid)

    run(main)


def test_an_error_of_the_block_is_kept() -> None:
    """Ending the tree replaces nothing."""

    async def main() -> None:
        async with await start("sleep 1000"):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(main)


def test_without_a_process_table_the_group_is_ended() -> None:
    """Where the system cannot tell who belongs to a tree, what stayed in its group still does."""

    async def main() -> None:
        async with await start('trap "" TERM; sleep 1000 & echo $!; wait', grace=0.1) as tree:
            tree._table = HERE / "no such table"
            (pid,) = map(int, await read_words(tree, 1))
            await tree.end()
            assert wait_gone(pid, 10)  # who ended it cannot tell when it has

    run(main)


@pytest.mark.slow
def test_nothing_remains_of_trees_that_are_cancelled_at_any_instant() -> None:
    """Fifty trees, cut before, while and after they start."""
    mark = uuid.uuid4().hex

    async def one(instant: float) -> None:
        with trio.move_on_after(instant):
            async with await start("sleep 1000 & setsid sleep 1000", CHURN=mark) as tree:
                await tree.wait()

    async def main() -> None:
        for round_ in range(5):
            async with trio.open_nursery() as nursery:
                for place in range(10):
                    nursery.start_soon(one, round_ * 0.004 + place * 0.002)

    run(main)
    assert carriers(mark) == []


def test_ends_are_described() -> None:
    """Also by signals that have no name."""
    assert describe_end(0) == "ended with exit code 0"
    assert describe_end(-15) == "was ended by SIGTERM"
    assert describe_end(-35) == "was ended by signal 35"


def table_of(folder: Path, processes: Iterable[tuple[int, str, int, int, int, str]]) -> Path:
    for pid, state, parent, group, session, environ in processes:
        (folder / str(pid)).mkdir()
        name = f"{pid} (a) b) {state} {parent} {group} {session} 0 -1"
        (folder / str(pid) / "stat").write_text(name)
        (folder / str(pid) / "environ").write_text(environ)
    return folder


def test_members_are_found_by_session_mark_and_parent(tmp_path: Path) -> None:
    """And those that have ended already are none."""
    table = table_of(
        tmp_path,
        [
            (1, "S", 0, 1, 1, ""),
            (10, "S", 1, 10, 10, "A=1\0MARK=x\0"),  # the first process
            (11, "R", 10, 11, 10, ""),  # another group
            (12, "S", 1, 12, 12, "MARK=x\0"),  # another session, and its parent has ended
            (13, "S", 12, 13, 13, ""),  # neither, but a parent that belongs
            (14, "S", 13, 14, 14, ""),
            (15, "Z", 10, 10, 10, ""),
            (16, "S", 1, 16, 16, "MARK=y\0"),
            (17, "S", 1, 17, 17, ""),
        ],
    )
    (tmp_path / "18").mkdir()  # ended while the table was read
    (tmp_path / "self").mkdir()
    found = find_members(10, b"MARK=x", table)
    assert found is not None
    assert sorted(member.pid for member in found) == [10, 11, 12, 13, 14]
    assert Member(11, 10, 11, 10) in found
    assert find_members(99, b"MARK=z", table) == []
    assert find_members(10, b"MARK=x", tmp_path / "nothing") is None
