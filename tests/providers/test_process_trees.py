import errno
import os
import subprocess
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import trio
from program_runs import carriers, run, wait_gone
from program_runs import is_alive as is_running

from trioeval.providers.programs.members import (
    Clocks,
    Member,
    TreeIdentity,
    find_members,
    find_root,
    is_alive,
)
from trioeval.providers.programs.processes import Tree, describe_end, start_tree

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
    """Return the program's first output, after waiting for it."""
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
        "TRIOEVAL_TREE=mine setsid sh -c 'sleep 1000 & echo $!; wait' & wait",
    ],
    ids=["child", "grandchild", "session", "no mark", "orphan", "another mark"],
)
def test_a_tree_ends_with_its_block(script: str) -> None:
    """Descendants in other sessions end as well."""

    async def main() -> None:
        async with await start(script) as tree:
            (pid,) = map(int, await read_words(tree, 1))
            assert is_running(pid)
        assert not is_running(pid)
        assert tree.process.returncode is not None
        assert isinstance(tree.process.stdout, trio.lowlevel.FdStream)
        with pytest.raises(trio.ClosedResourceError):
            await tree.process.stdout.receive_some()

    run(main)


def test_processes_left_behind_by_a_program_are_ended() -> None:
    """A tree does not end with its first process, whose output can still be read."""

    async def main() -> None:
        async with await start("sleep 1000 & setsid sleep 1000 & echo $!") as tree:
            (pid,) = map(int, await read_words(tree, 1))
            assert await tree.wait() == 0
            assert is_running(pid)
            await tree.end()
            assert not is_running(pid)
            assert await read_rest(tree) == ""

    run(main)


def test_an_ended_tree_is_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many processes on the machine a search is expensive; one is enough."""
    looks: list[Any] = []

    def count(*arguments: Any) -> Any:
        looks.append(found := find_members(*arguments))
        return found

    monkeypatch.setattr("trioeval.providers.programs.processes.find_members", count)

    async def main() -> None:
        async with await start("true") as tree:
            await tree.wait()
            await tree.end()
        assert looks == [set()]

    run(main)


def test_a_program_may_end_by_itself_after_the_request() -> None:
    """Its last output and its exit code are kept."""
    # `sleep` may get the request first: the shell waits on, or it would end by itself before its turn.

    async def main() -> None:
        async with await start(
            'trap "echo bye; exit 7" TERM; echo up; sleep 1000 & while :; do wait; done'
        ) as tree:
            assert await read_words(tree, 1) == ["up"]
            await tree.end()
            assert await tree.wait() == 7
            assert await read_rest(tree) == "bye\n"

    run(main)


STUBBORN = """trap "echo asked" TERM
setsid sh -c 'trap "" TERM; echo up; exec sleep 1000' & wait; wait; wait"""


@pytest.mark.slow
@pytest.mark.parametrize("has_handles", [True, False])
def test_a_program_gets_one_request_to_end_and_then_a_kill(
    monkeypatch: pytest.MonkeyPatch,
    has_handles: bool,  # noqa: FBT001
) -> None:
    """A process that ignores the request gets the grace period, in its session or outside."""

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
            assert 0.5 <= trio.current_time() - started_at < 20
            assert carriers(mark) == []
            assert await tree.wait() == -9
            assert await read_rest(tree) == "asked\n"

    run(main)


@pytest.mark.slow
def test_a_stubborn_process_whose_parent_has_ended_is_killed() -> None:
    """It left the session and lost its mark; but it was seen while its parent existed."""
    stubborn = 'trap "" TERM; echo $$; exec sleep 1000'
    script = 'env -i setsid sh -c "$STUBBORN" & wait'

    async def main() -> None:
        async with await start(script, grace=0.2, STUBBORN=stubborn) as tree:
            (pid,) = map(int, await read_words(tree, 1))
        assert not is_running(pid)

    run(main)


def test_a_nested_tree_belongs_to_both_trees() -> None:
    """The outer tree ends the inner one, and not the other way round."""
    script = "setsid sleep 1000 & echo $! $TRIOEVAL_TREE; wait"

    async def main() -> None:
        async with await start(script) as outer:
            outer_pid, mark = await read_words(outer, 2)
            async with await start(script, TRIOEVAL_TREE=mark) as inner:
                inner_pid, marks = await read_words(inner, 2)
                assert marks.startswith(f"{mark},")
            assert not is_running(int(inner_pid))
            assert is_running(int(outer_pid))
            async with await start(script, TRIOEVAL_TREE=mark) as inner:
                inner_pid, _marks = await read_words(inner, 2)
                await outer.end()
                assert not is_running(int(inner_pid))

    run(main)


def test_a_tree_ends_also_when_its_block_is_cancelled() -> None:
    """The end is not cut short by the cancellation."""

    async def main() -> None:
        with trio.CancelScope() as scope:
            async with await start('trap "" TERM; sleep 1000 & echo $!; wait', grace=0.1) as tree:
                (pid,) = map(int, await read_words(tree, 1))
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert not is_running(pid)
        assert not is_running(tree.process.pid)

    run(main)


def test_an_error_of_the_block_is_kept() -> None:
    """Ending the tree does not replace the error."""

    async def main() -> None:
        async with await start("sleep 1000"):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(main)


def test_without_a_process_table_the_group_is_ended() -> None:
    """Without a table only the process group is known."""

    async def main() -> None:
        async with await start('trap "" TERM; sleep 1000 & echo $!; wait', grace=0.1) as tree:
            tree._table = HERE / "no such table"
            (pid,) = map(int, await read_words(tree, 1))
            await tree.end()
            assert wait_gone(pid, 10)  # the process that ended it does not know when it has

    run(main)


@pytest.mark.slow
def test_trees_cancelled_at_any_instant_leave_no_process() -> None:
    """Fifty trees are cancelled before, while and after they start."""
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
    """Signals without a name are described too."""
    assert describe_end(0) == "ended with exit code 0"
    assert describe_end(-15) == "was ended by SIGTERM"
    assert describe_end(-35) == "was ended by signal 35"


STARTED = 100
"""Start time of the first process of the test's tree."""


def table_of(folder: Path, processes: Iterable[tuple[int, str, int, int, int, int, str]]) -> Path:
    for pid, state, parent, group, session, started, environ in processes:
        (folder / str(pid)).mkdir()
        stat = f"{pid} (a) b) {state} {parent} {group} {session} {'0 ' * 15}{started} 0 0"
        (folder / str(pid) / "stat").write_text(stat)
        (folder / str(pid) / "environ").write_text(environ)
    return folder


def found_in(table: Path, root: TreeIdentity, known: Iterable[Member] = ()) -> list[int]:
    found = find_members(root, set(known), table)
    assert found is not None
    return sorted(member.pid for member in found)


def test_members_are_found_by_session_mark_and_parent(tmp_path: Path) -> None:
    """Processes that have ended, or are older than the tree, do not belong."""
    table = table_of(
        tmp_path,
        [
            (1, "S", 0, 1, 1, 1, ""),
            (10, "S", 1, 10, 10, 100, "A=1\0MARK=x\0"),  # the first process
            (11, "R", 10, 11, 10, 100, ""),  # another group
            (12, "S", 1, 12, 12, 101, "MARK=x\0"),  # another session, and its parent has ended
            (13, "S", 12, 13, 13, 102, ""),  # neither, but a parent that belongs
            (14, "S", 13, 14, 14, 102, ""),
            (15, "Z", 10, 10, 10, 102, ""),
            (16, "S", 1, 16, 16, 102, "MARK=y\0"),
            (17, "S", 1, 17, 17, 102, ""),
            (19, "S", 10, 10, 10, 99, "MARK=x\0"),  # older
            (20, "S", 1, 20, 20, 102, "MARK=w,x\0"),  # of a tree in another one
        ],
    )
    (tmp_path / "18").mkdir()  # ended while the table was read
    (tmp_path / "self").mkdir()
    assert found_in(table, TreeIdentity(10, b"x", STARTED)) == [10, 11, 12, 13, 14, 20]
    assert found_in(table, TreeIdentity(99, b"z", STARTED)) == []
    assert find_members(TreeIdentity(10, b"x", STARTED), (), tmp_path / "nothing") is None


def test_a_member_belongs_until_it_ends(tmp_path: Path) -> None:
    """Its children belong too; another process with a reused id does not."""
    table = table_of(
        tmp_path,
        [
            (30, "S", 1, 30, 30, 105, ""),
            (31, "S", 30, 31, 31, 106, ""),
            (32, "S", 1, 32, 32, 107, ""),
        ],
    )
    known = [Member(30, 105, 10, 30, 30), Member(32, 103, 10, 32, 32)]
    assert found_in(table, TreeIdentity(10, b"x", STARTED)) == []
    assert found_in(table, TreeIdentity(10, b"x", STARTED), known) == [30, 31]
    assert is_alive(known[0], table)
    assert not is_alive(known[1], table)


def test_the_session_of_another_program_is_not_included(tmp_path: Path) -> None:
    """Another process may reuse the id of the first one, and open a session with it."""
    table = table_of(
        tmp_path, [(10, "S", 1, 10, 10, 300, ""), (11, "S", 10, 10, 10, 301, "MARK=y\0")]
    )
    assert found_in(table, TreeIdentity(10, b"x", STARTED)) == []
    assert found_in(table, TreeIdentity(10, b"x", 300)) == [10, 11]


def test_a_process_started_while_its_parent_ends_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not listed yet, and its parent had ended when the parent was read."""
    table = table_of(tmp_path, [(12, "S", 1, 12, 12, 101, "MARK=x\0")])
    (tmp_path / "11").mkdir()
    lists = iter([["11"], ["11", "12"]])
    monkeypatch.setattr(os, "listdir", lambda _table: next(lists))
    assert found_in(table, TreeIdentity(10, b"x", STARTED)) == [12]


def test_entries_that_are_older_than_the_tree_are_not_read(tmp_path: Path) -> None:
    """They are read if a clock was set back, or if the table does not show their age."""
    table = table_of(tmp_path, [(10, "S", 1, 10, 10, STARTED, "")])
    now = Clocks()
    later = Clocks(now.wall + 3600, now.steady + 3600)
    assert found_in(table, TreeIdentity(10, b"x", STARTED, now)) == [10]
    assert found_in(table, TreeIdentity(10, b"x", STARTED, later)) == []
    assert found_in(
        table, TreeIdentity(10, b"x", STARTED, Clocks(now.wall + 3600, now.steady))
    ) == [10]
    assert find_root(10, b"x", now, table) == TreeIdentity(10, b"x", STARTED, now)
    assert find_root(10, b"x", later, table) == TreeIdentity(10, b"x", STARTED, None)
    assert find_root(11, b"x", now, table) == TreeIdentity(11, b"x")
