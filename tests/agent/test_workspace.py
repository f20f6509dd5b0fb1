"""Workspaces of agents: complete copies without links that lead out of them."""

import os
import resource
import socket
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from trioeval.agent.workspace import check_not_done, check_out, make_workspace
from trioeval.errors import AgentError


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """Create a project with a program, a link and a protected folder."""
    folder = tmp_path / "project"
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o751)
    (folder / "sub" / "secret").write_text("s")
    (folder / "sub" / "secret").chmod(0o400)
    (folder / "sub" / "up").symlink_to("../run.sh")
    (folder / "alias").symlink_to("sub")
    (folder / "through").symlink_to("alias/../run.sh")
    (folder / "dangling").symlink_to("nothing/here")
    (folder / "sub" / "deep").chmod(0o555)
    os.utime(folder / "sub", (1_000_000, 1_000_000))
    return folder


def everything(folder: Path) -> Mapping[str, str | bytes | None]:
    """Return the contents by path: links as texts, files as bytes."""
    return {
        str(path.relative_to(folder)): (
            str(path.readlink())
            if path.is_symlink()
            else path.read_bytes()
            if path.is_file()
            else None
        )
        for path in sorted(folder.rglob("*"))
    }


def refused(target: Path, template: Path | None) -> str:
    """Return the error for a workspace that cannot be created, after checking that nothing is left."""
    before = sorted(target.parent.iterdir())
    with pytest.raises(AgentError) as caught:
        make_workspace(target, template)
    assert sorted(target.parent.iterdir()) == before
    return str(caught.value)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Return the path of a workspace."""
    (tmp_path / "case").mkdir()
    return tmp_path / "case" / "workspace"


def test_a_folder_is_copied_with_links_modes_and_times(template: Path, target: Path) -> None:
    """The repository is copied too; nothing else is created beside it."""
    make_workspace(target, template)
    assert everything(target) == everything(template)
    assert sorted(path.name for path in target.parent.iterdir()) == ["workspace"]
    for name in ("run.sh", "sub/secret", "sub"):
        one, other = (target / name).stat(), (template / name).stat()
        assert (one.st_mode, one.st_mtime_ns) == (other.st_mode, other.st_mtime_ns)


def test_every_folder_of_a_copy_is_writable(template: Path, target: Path) -> None:
    """Read-only folders of the template are writable too; the template is not changed."""
    make_workspace(target, template)
    assert stat.S_IMODE((target / "sub" / "deep").stat().st_mode) == 0o755
    assert stat.S_IMODE((template / "sub" / "deep").stat().st_mode) == 0o555


def test_a_copy_shares_nothing_with_its_template(template: Path, target: Path) -> None:
    """Changes in one are not visible in the other."""
    make_workspace(target, template)
    (target / "through").write_text("changed")
    assert (target / "run.sh").read_text() == "changed"
    assert (template / "run.sh").read_text() == "#!/bin/sh\n"


def test_without_a_template_the_workspace_is_empty(target: Path) -> None:
    """It is an empty folder."""
    make_workspace(target, None)
    assert [*target.iterdir()] == []


def test_the_template_may_be_a_link(template: Path, target: Path) -> None:
    """The folder is copied, not the link."""
    link = template.parent / "link"
    link.symlink_to(template)
    make_workspace(target, link)
    assert not target.is_symlink()
    assert everything(target) == everything(template)


@pytest.mark.parametrize(
    ("where", "to"),
    [
        ("out", "../other"),
        ("back", "../project/run.sh"),
        ("sub/out", "../../other"),
        ("chained", "alias/../../other"),
        ("absolute", "/etc/hostname"),
        ("loop", "loop"),
    ],
)
def test_a_link_that_leads_out_is_rejected(
    template: Path, target: Path, where: str, to: str
) -> None:
    """A link that leads out and back in is rejected too: in the copy it has another target."""
    (template / where).symlink_to(to)
    error = refused(target, template)
    assert error == (
        f"{template / where} is a link that leads out of {template}, to {to}: "
        "use a relative link that stays inside, or remove it"
    )


def test_an_absolute_link_into_the_template_is_rejected(template: Path, target: Path) -> None:
    """The copies of all cases would share its target."""
    (template / "same").symlink_to(template / "run.sh")
    assert "is a link that leads out of" in refused(target, template)


def test_a_repository_elsewhere_is_rejected(template: Path, target: Path) -> None:
    """The agent's commits would go there; one inside of the copy is a submodule."""
    sub = template / "sub" / ".git"
    sub.write_text("gitdir: ../.git\n")
    make_workspace(target, template)
    sub.write_text(f"gitdir: {template}/.git\n")
    error = refused(target.with_name("other"), template)
    assert error.startswith(
        f"{sub} belongs to a repository outside of {template}, {template}/.git: "
    )
    assert error.endswith("use a clone of it, or a file of `git bundle`")


def test_special_files_are_rejected(template: Path, target: Path) -> None:
    """Reading a pipe would block for ever, and a socket cannot be copied."""
    os.mkfifo(template / "pipe")
    assert refused(target, template) == (
        f"{template / 'pipe'} is neither a file, a folder nor a link, and cannot be copied"
    )
    (template / "pipe").unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(template / "s"))
        assert f"{template / 's'} is neither" in refused(target, template)


def test_a_missing_template_is_rejected(tmp_path: Path, target: Path) -> None:
    """So is a file that is not a bundle."""
    assert refused(target, tmp_path / "no") == f"{tmp_path / 'no'} does not exist"
    file = tmp_path / "file"
    file.write_text("x")
    assert refused(target, file) == f"{file} is neither a folder nor a file of `git bundle`"


def test_a_folder_cannot_be_copied_into_itself(template: Path) -> None:
    """The copy would never end."""
    place = template / "runs" / "case"
    place.mkdir(parents=True)
    error = refused(place / "workspace", template)
    assert error.startswith(
        f"the workspace {place} would be inside of its own template {template}: "
    )


def test_an_existing_workspace_is_not_changed(template: Path, target: Path) -> None:
    """A workspace in which an agent has worked is never replaced."""
    target.mkdir()
    (target / "work").write_text("mine")
    assert refused(target, template) == (
        f"{target} already exists; a workspace must be created in a new folder"
    )
    assert everything(target) == {"work": b"mine"}


def test_leftovers_of_an_interrupted_creation_are_removed(template: Path, target: Path) -> None:
    """They are not part of the new workspace."""
    leftover = target.parent / ".workspace.making" / "half"
    leftover.mkdir(parents=True)
    (leftover / "file").write_text("x")
    make_workspace(target, template)
    assert everything(target) == everything(template)
    assert sorted(path.name for path in target.parent.iterdir()) == ["workspace"]


def test_a_full_disk_is_reported(template: Path, target: Path) -> None:
    """The message names the file that did not fit, and nothing is left of the copy."""
    (template / "large").write_bytes(bytes(5000))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        error = refused(target, template)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert error == f"the workspace {target} cannot be created: {template}/large: File too large"


def test_a_missing_parent_folder_is_reported(tmp_path: Path) -> None:
    """The caller must create it."""
    with pytest.raises(AgentError, match="No such file or directory"):
        make_workspace(tmp_path / "no" / "workspace", None)


def test_a_template_with_the_done_file_is_rejected(template: Path, target: Path) -> None:
    """It would later be taken for the work of an agent."""
    (template / "sub" / "DONE").touch()
    with pytest.raises(AgentError) as caught:
        make_workspace(target, template, "sub/DONE")
    assert str(caught.value).startswith(f"{template} already contains sub/DONE, which marks")
    assert [*target.parent.iterdir()] == []


def test_the_folder_of_the_done_file_is_created(template: Path, target: Path) -> None:
    """It is not created if something else exists in its place."""
    make_workspace(target, template, "out/of/DONE")
    assert [*(target / "out" / "of").iterdir()] == []
    with pytest.raises(AgentError) as caught:
        make_workspace(target.with_name("other"), template, "run.sh/DONE")
    message = "the folder run.sh of the doneFile run.sh/DONE cannot be created: File exists"
    assert str(caught.value) == message
    assert [path.name for path in target.parent.iterdir()] == ["workspace"]


def test_a_workspace_that_contains_the_done_file_is_reported(tmp_path: Path) -> None:
    """A folder or a broken link counts as well."""
    check_not_done(tmp_path, "out/DONE")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "DONE").symlink_to("nothing")
    with pytest.raises(
        AgentError, match=r"already contains out/DONE.*give the task another doneFile"
    ):
        check_not_done(tmp_path, "out/DONE")


def git(folder: Path, *arguments: str) -> None:
    settings = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    command = ["git", *settings, "-C", str(folder), *arguments]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a repository with two branches, of which `work` is checked out."""
    folder = tmp_path_factory.mktemp("repository")
    git(folder, "init", "--quiet")
    (folder / "a.txt").write_text("one")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    git(folder, "checkout", "--quiet", "-b", "work")
    (folder / "b.txt").write_text("two")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "second")
    return folder


def bundle(repository: Path, folder: Path, *revisions: str) -> Path:
    file = folder / "project.bundle"
    git(repository, "bundle", "create", "--quiet", str(file), *revisions)
    return file


@pytest.mark.slow
def test_a_bundle_is_checked_out(
    repository: Path, tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its HEAD becomes a repository; the user's settings and hooks are not used."""
    hooks, mark = tmp_path / "hooks", tmp_path / "ran"
    hooks.mkdir()
    (hooks / "post-checkout").write_text(f"#!/bin/sh\ntouch {mark}\n")
    (hooks / "post-checkout").chmod(0o755)
    (tmp_path / ".gitconfig").write_text(f"[core]\n\thooksPath = {hooks}\n")
    file = bundle(repository, tmp_path, "--all")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    make_workspace(target, file)
    found = everything(target)
    assert (found["a.txt"], found["b.txt"]) == (b"one", b"two")
    assert (target / "run.sh").stat().st_mode & 0o111
    assert (target / ".git" / "HEAD").read_text() == "ref: refs/heads/work\n"
    assert not mark.exists()
    assert not (target / ".git" / "hooks").exists()
    assert "hooksPath" not in (target / ".git" / "config").read_text()


@pytest.mark.slow
def test_a_bundle_without_a_head_is_checked_out_if_it_has_one_branch(
    repository: Path, tmp_path: Path, target: Path
) -> None:
    """With several branches it is ambiguous."""
    make_workspace(target, bundle(repository, tmp_path, "main"))
    assert sorted(path.name for path in target.iterdir()) == [".git", "a.txt", "run.sh"]
    file = bundle(repository, tmp_path, "main", "work")
    assert refused(target.with_name("other"), file) == (
        f"{file} has no HEAD and 2 branches, so the branch is ambiguous; "
        "make it with `git bundle create project.bundle --all`"
    )


@pytest.mark.slow
def test_a_truncated_or_incomplete_bundle_is_rejected(
    repository: Path, tmp_path: Path, target: Path
) -> None:
    """The message is that of git."""
    file = bundle(repository, tmp_path, "main..work")
    assert refused(target, file).startswith(f"git cannot open {file}: ")
    whole = bundle(repository, tmp_path, "--all").read_bytes()
    file.write_bytes(whole[:-40])
    assert refused(target, file).startswith(f"git cannot open {file}: ")


@pytest.mark.slow
def test_a_bundle_with_a_link_that_leads_out_is_rejected(
    repository: Path, tmp_path: Path, target: Path
) -> None:
    """The same check applies as for a folder."""
    copy = tmp_path / "copy"
    make_workspace(copy, bundle(repository, tmp_path, "--all"))
    (copy / "passwd").symlink_to("/etc/passwd")
    git(copy, "add", ".")
    git(copy, "commit", "--quiet", "-m", "third")
    assert "passwd is a link that leads out of" in refused(target, bundle(copy, tmp_path, "--all"))


def test_missing_git_is_reported(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the file for which git is needed."""
    file = tmp_path / "x.bundle"
    file.write_bytes(b"# v2 git bundle\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refused(target, file) == (
        f'program "git" not found in PATH, required for opening {file}: install it'
    )


def test_git_that_does_not_end_is_given_up(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system may hang."""
    program = tmp_path / "git"
    program.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    program.chmod(0o755)
    file = tmp_path / "x.bundle"
    file.write_bytes(b"# v3 git bundle\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AgentError) as caught:
        check_out(file, target, longest=0.1)
    assert str(caught.value) == f"git took longer than 0.1 s to open {file}"
