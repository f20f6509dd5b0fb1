"""A run that was started untrusted stays untrusted; contradictory flags are refused."""

import json
from pathlib import Path

import pytest

from trioeval.cli.flags import OutputFlags, RunFlags, StartFlags, SuiteFlags, check_flags
from trioeval.cli.run.command import load
from trioeval.cli.stored_flags import StoredFlags, stored_flags
from trioeval.errors import SuiteError, UsageError

pytestmark = pytest.mark.attack("code of an untrusted suite")

WITHOUT = RunFlags(what=SuiteFlags(untrusted=True, allow_env=("TEAM",)))
SUITE = {"providers": ["echo"], "prompts": ["{{env.TEAM}}"]}


def stored(flags: RunFlags) -> StoredFlags:
    return StoredFlags.read(
        json.loads(json.dumps(stored_flags(Path("s.json"), flags, (), {}).json())), "r"
    )


def test_a_resumed_run_keeps_its_permissions() -> None:
    """The command that resumes it does not repeat the flag."""
    going = stored(WITHOUT).with_flags(RunFlags(begin=StartFlags(resume="latest")))
    assert (going.what.untrusted, going.what.allow_env) == (True, ("TEAM",))


@pytest.mark.parametrize(
    "what",
    [SuiteFlags(allow_outside=True), SuiteFlags(untrusted=True, allow_env=("TEAM", "KEY"))],
)
def test_the_rest_of_a_run_gets_no_further_permissions(what: SuiteFlags) -> None:
    """All rows of one run have the same permissions."""
    with pytest.raises(UsageError, match="the run was started with"):
        stored(WITHOUT).with_flags(RunFlags(what=what))


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (SuiteFlags(untrusted=True, allow_outside=True), "exclude each other"),
        (SuiteFlags(allow_env=("A",)), "--allow-env needs --untrusted"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(what: SuiteFlags, message: str) -> None:
    """A user who requests safety and does not get it is warned."""
    with pytest.raises(UsageError, match=message):
        check_flags(RunFlags(what=what))


def test_the_command_line_loads_permitted_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Allowed names also apply to the parts of a suite that flags give."""
    monkeypatch.setenv("TEAM", "blue")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "suite.json"
    file.write_text(json.dumps(SUITE))
    suite = load(file, WITHOUT).suite
    assert suite.prompts[0].raw == "blue"
    assert (suite.trust.code, suite.trust.allow_env) == ("refused", frozenset({"TEAM"}))
    with pytest.raises(SuiteError, match="TEAM"):
        load(file, RunFlags(what=SuiteFlags(untrusted=True)))
    with pytest.raises(SuiteError, match="runs none"):
        load(
            file,
            RunFlags(what=SuiteFlags(untrusted=True, allow_env=("TEAM",), providers=("exec:cat",))),
        )
    planned = load(file, RunFlags(output=OutputFlags(plan=True))).suite
    assert planned.trust.code == "later"
