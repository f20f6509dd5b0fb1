"""Limits in a Redis that refuses the user, from the start or later: real servers with passwords and ACLs.

Such a run ends before its first row, and the remaining rows of a running one are errors: each with the
server's message and a remedy, none with the password, and without repeated requests to the server.
"""

import json
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import trio
from redis_server import RedisServer, needs_redis, open_server

import trioeval
from trioeval.cli.app import run_command_line
from trioeval.providers import Reply, Request

pytestmark = [pytest.mark.attack("Redis credentials"), pytest.mark.network, needs_redis]

RIGHT = "right-p4ss"
WRONG = "wr0ng-p4ss"
ROWS = 80
OURS = "~{trioeval}* &{trioeval}*"
USERS = {
    "reader": f"{OURS} +@read +ping +hello +client",
    "stranger": "~other* &* +@all",
    "missing": f"{OURS} -@all",
    "locked": f"{OURS} +@all off",
    "deaf": "~{trioeval}* resetchannels +@all",
}


def admin(server: RedisServer, command: str) -> bytes:
    """Return a response of the server to an administrator."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as ask:
        ask.sendall(f"AUTH {RIGHT}\r\n".encode())
        assert ask.recv(64) == b"+OK\r\n"
        ask.sendall(f"{command}\r\n".encode())
        return ask.recv(1 << 16)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with open_server("--requirepass", RIGHT) as found:
        for user, rules in USERS.items():
            assert admin(found, f"ACL SETUSER {user} on >{RIGHT} {rules}") == b"+OK\r\n"
        yield found


def attempts(server: RedisServer) -> int:
    """Return the number of connections that the server has accepted, except the caller's."""
    printed = admin(server, "INFO stats").decode()
    return int(printed.partition("total_connections_received:")[2].split()[0]) - 1


def suite_of(server: RedisServer, who: str, **more: object) -> dict[str, object]:
    return {
        "providers": [{"id": "pupil", "lane": {"limits": ["m:rpm"], "maxConcurrency": 4}}],
        "limits": {
            "backend": "redis",
            "url": f"redis://{who}127.0.0.1:{server.port}",
            "limits": [
                {"key": "m:rpm", "kind": "rolling", "capacity": 100_000, "windowSeconds": 60}
            ],
            **more,
        },
        "prompts": ["{{a}}"],
        "tests": [{"vars": {"a": [f"row {number}" for number in range(ROWS)]}}],
    }


LOGINS = {
    "no password": ("", "it demands a password"),
    "a wrong password": (f":{WRONG}@", "invalid username-password pair or user is disabled"),
    "an unknown user": (f"mallory:{WRONG}@", "invalid username-password pair or user is disabled"),
    "a wrong password of a user": (f"reader:{WRONG}@", "invalid username-password pair"),
    "a user without password": ("reader@", "invalid username-password pair"),
    "a locked user": (f"locked:{RIGHT}@", "invalid username-password pair or user is disabled"),
    "no right to scripts": (f"reader:{RIGHT}@", "no permissions to run the 'evalsha' command"),
    "no right to anything": (f"missing:{RIGHT}@", "no permissions to run the 'evalsha' command"),
    "no right to the keys": (f"stranger:{RIGHT}@", "no permissions to access one of the keys"),
    "a password with everything in it": (f":{quote('a/b?c#d%e@f ', safe='')}@", "invalid username-"),
}  # fmt: skip


@pytest.fixture
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the working directory a temporary folder for the files of a run."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("in_a_folder")
@pytest.mark.parametrize("unreachable", ["closed", "open"])
@pytest.mark.parametrize("name", LOGINS)
def test_a_refused_user_ends_the_run_before_the_first_row(
    name: str, unreachable: str, server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message is one line, even if the run would continue without limits: the refusal is permanent."""
    who, reason = LOGINS[name]
    suite = {**suite_of(server, who, unreachable=unreachable), "providers": [
        {"id": "echo", "lane": {"limits": ["m:rpm"]}}
    ]}  # fmt: skip
    Path("suite.json").write_text(json.dumps(suite))
    before = attempts(server)
    code = run_command_line(["suite.json", "--no-table", "--no-progress", "--no-cache"])
    printed = capsys.readouterr()
    assert attempts(server) - before <= 4
    assert (code, printed.out) == (2, "")
    (line,) = printed.err.splitlines()
    assert reason in line
    assert f"Redis at 127.0.0.1:{server.port}" in line
    assert "redis://user:password@host" in line or "its ACL must allow" in line
    assert RIGHT not in line
    assert WRONG not in line


@pytest.mark.parametrize("words", [["show"], ["set", "x", "--kind", "budget", "--capacity", "1"]])
def test_commands_report_the_refusal_too(
    words: list[str], server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """This covers reading commands, and those that change limits."""
    url = f"redis://mallory:{WRONG}@127.0.0.1:{server.port}"
    assert run_command_line(["limits", *words, "--url", url]) == 2
    printed = capsys.readouterr().err
    assert "(user 'mallory') rejects this client: " in printed
    assert WRONG not in printed
    assert "Traceback" not in printed


def test_a_server_that_forbids_notifications_is_used_nevertheless(server: RedisServer) -> None:
    """Notifications only reduce waiting times."""

    async def main() -> None:
        rows = await trioeval.collect(
            trioeval.parse_suite(suite_of(server, f"deaf:{RIGHT}@")), providers={"pupil": agree}
        )
        assert [row.output for row in rows] == ["yes"] * ROWS

    in_trio(main)


REVOKED = {
    "the user is gone": ("ACL DELUSER bob", "invalid username-password pair", True),
    "the user is locked": ("ACL SETUSER bob off", "", False),
    "no commands any more": ("ACL SETUSER bob -@all", "no permissions to run the 'evalsha'", True),
    "no keys any more": ("ACL SETUSER bob resetkeys", "no permissions to access one of the", True),
    "no scripts any more": ("ACL SETUSER bob -evalsha -eval", "no permissions to run the", True),
    "another password": ("ACL SETUSER bob resetpass >other", "", False),
    "another password, and all hung up on": (
        "ACL SETUSER bob resetpass >other\r\nCLIENT KILL USER bob", "invalid username-pass", True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REVOKED)
def test_rights_that_are_revoked_during_a_run_end_the_rows_that_need_them(
    name: str, server: RedisServer
) -> None:
    """All remaining rows end at once; clients that keep the right continue."""
    command, reason, ends = REVOKED[name]
    assert admin(server, f"ACL SETUSER bob reset on >{RIGHT} {OURS} +@all") == b"+OK\r\n"
    connections = 0

    async def pupil(_request: Request) -> Reply:
        nonlocal connections
        connections += 1
        if connections == 20:
            admin(server, command)
        await trio.sleep(0.001)
        return Reply(output="yes")

    async def main() -> None:
        before = attempts(server)
        document = suite_of(server, f"bob:{RIGHT}@")
        rows = await trioeval.collect(trioeval.parse_suite(document), providers={"pupil": pupil})
        assert len(rows) == ROWS
        assert attempts(server) - before <= 12  # not one for each row
        failed = [row.error or "" for row in rows if row.output != "yes"]
        assert (len(failed) > ROWS / 2) == ends
        for error in failed:
            assert error.startswith("invalid_request: Redis at 127.0.0.1:")
            assert reason in error
            assert RIGHT not in error

    in_trio(main)


def in_trio(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with trio.fail_after(60):
            await main()

    trio.run(bounded)


async def agree(_request: Request) -> Reply:
    await trio.lowlevel.checkpoint()
    return Reply(output="yes")
