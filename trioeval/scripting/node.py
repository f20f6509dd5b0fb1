"""Node: the program that runs JavaScript and TypeScript with files, modules and network access.

It is `TRIOEVAL_NODE` (or `PROMPTFOO_NODE`), or else `node` in PATH. TypeScript needs a version that removes
types itself; nothing is compiled here.
"""

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from trioeval.executables import find_program, install_hint, missing_program
from trioeval.scripting import TYPESCRIPT, WORKER

_FIRST_WITH_TYPES = "22.6"
_VERSION = re.compile(r"\d+\.\d+\.\d+\S*")
_ELSE = "set TRIOEVAL_NODE to its path"
_WITHIN = 30.0
_UNUSUAL_EXPORTS = re.compile(
    r"\bexport\s*\*|\bexports\s*\[|\brequire\s*\(\s*[^)]*\)\s*\(|\bmodule\.exports\s*=\s*require\b"
    r"|\bObject\s*\.|\.\.\.|__exportStar"
)
"""Exports that come from other files, or whose names are computed."""
_DEFAULT_EXPORT = re.compile(r"\bmodule\s*\.\s*exports\b|\bdefault\b|\bcallApi\b")
_NAMED_EXPORT = re.compile(
    r"\bexports\.(\w+)\s*=|\bexport\s+(?:async\s+)?(?:function\s*\*?|class|const|let|var)\s+(\w+)"
)
_PROBE = "process.versions.node + ' ' + [...process.allowedNodeEnvironmentFlags].join(' ')"
_FLAGS = ("--experimental-transform-types", "--experimental-strip-types")
"""The first one that a version knows removes types; versions that know none of them do so anyway."""


def find_node(environ: Mapping[str, str]) -> str | None:
    """Return the path of Node; None if it is not found."""
    name = _command(environ)
    if os.sep not in name:
        return find_program(name, environ)
    return name if os.path.isfile(name) and os.access(name, os.X_OK) else None  # noqa: PTH113 - a text


def node_version(environ: Mapping[str, str]) -> str | None:
    """Return the version of Node; None if it is not found, or is not Node."""
    path = find_node(environ)
    if path is None:
        return None
    import subprocess

    try:
        return _abilities(path)[0]
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def node_fault(need: str, environ: Mapping[str, str], file: Path | None = None) -> str | None:
    """Return why Node cannot run some code, for the sentence "it …"; None if it can.

    Args:
        need: The reason why Node is needed: `uses fetch in line 3`.
        environ: The environment.
        file: The file of the code, whose syntax is checked.
    """
    path = find_node(environ)
    if path is None:
        missing = missing_program(_command(environ))
        return f"{need}, so it needs Node: {missing}; {install_hint(_ELSE)}"
    import subprocess

    try:
        version, flags = _abilities(path)
    except (OSError, subprocess.SubprocessError, ValueError):
        return f'{need}, so it needs Node, and "{path}" is not Node; {_ELSE}'
    if file is None:
        return None
    if file.suffix.lower() in TYPESCRIPT and _number(version) < _number(_FIRST_WITH_TYPES):
        return (
            f"is TypeScript, which Node runs from version {_FIRST_WITH_TYPES} on, but {path} is "
            f"version {version}; install a newer one, or {_ELSE}"
        )
    return _syntax_fault(path, flags, file, file.stat().st_mtime_ns)


def export_fault(file: Path, name: str | None) -> str | None:
    """Return why a file cannot export a provider, for the sentence "it …"; None if it may.

    Its code is searched, not run, so an export that the code makes in an unusual way is never refused.

    Args:
        file: JavaScript or TypeScript that exists.
        name: The export; None for the default export.
    """
    source = file.read_text(encoding="utf-8", errors="replace")
    if _UNUSUAL_EXPORTS.search(source):
        return None
    if name is None:
        if _DEFAULT_EXPORT.search(source):
            return None
        fault = "has no default export"
    elif re.fullmatch(r"[A-Za-z_]\w*", name) and not re.search(rf"\b{name}\b", source):
        fault = f'exports no "{name}"'
    else:
        return None
    names = ", ".join(dict.fromkeys(one[1] or one[2] for one in _NAMED_EXPORT.finditer(source)))
    return f"{fault}; it exports {names or 'nothing'}"


def node_command(environ: Mapping[str, str], memory_mb: int = 0) -> tuple[str, ...]:
    """Return the path of Node and its options, for `WORKER`.

    Args:
        environ: The environment.
        memory_mb: Maximum mebibytes for its objects; 0 for no limit.
    """
    path = find_node(environ)
    if path is None:
        return (_command(environ),)
    import subprocess

    limit = [f"--max-old-space-size={memory_mb}"] if memory_mb else []
    try:
        flags = _abilities(path)[1]
    except (OSError, subprocess.SubprocessError, ValueError):
        flags = ()  # its start will fail with a message
    return (path, *flags, *limit)


def _command(environ: Mapping[str, str]) -> str:
    return _variable("NODE", environ) or "node"


def _variable(name: str, environ: Mapping[str, str]) -> str | None:
    return environ.get(f"TRIOEVAL_{name}") or environ.get(f"PROMPTFOO_{name}")


@lru_cache(16)
def _abilities(path: str) -> tuple[str, tuple[str, ...]]:
    """Return the version of Node, and the options with which it runs files.

    Raises:
        OSError: It cannot be started.
        SubprocessError: It fails, or does not end.
        ValueError: It is not Node.
    """
    import subprocess

    run = subprocess.run(  # noqa: S603 - the user's own Node, by its path
        [path, "-p", _PROBE], capture_output=True, text=True, timeout=_WITHIN, check=True
    )
    version, *known = run.stdout.split()
    if not _VERSION.fullmatch(version):
        raise ValueError(version)
    # ES modules in `.js` files are recognised as such from version 22.7 on, and before on request.
    flags = [next((flag for flag in _FLAGS if flag in known), None)]
    flags += [one for one in ("--experimental-detect-module",) if one in known]
    # Warnings about these options would be taken for output of the user's code.
    if "--disable-warning" in known:
        flags += [
            "--disable-warning=ExperimentalWarning",
            "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON",
        ]
    return version, tuple(filter(None, flags))


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


@lru_cache(256)
def _syntax_fault(path: str, flags: tuple[str, ...], file: Path, _changed: int) -> str | None:
    """Return the syntax error of a file, which is not run; None if it has none."""
    import subprocess

    command = [path, *flags, "--experimental-vm-modules", str(WORKER), str(file)]
    try:
        run = subprocess.run(  # noqa: S603 - as above
            command, capture_output=True, text=True, timeout=_WITHIN, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None  # its run will fail with a message
    language = "TypeScript" if file.suffix.lower() in TYPESCRIPT else "JavaScript"
    return f"is not {language}: {run.stdout}" if run.stdout else None
