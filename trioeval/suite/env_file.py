"""Environment variables from a file, for keys that should stand neither in a suite nor in a shell."""

from collections.abc import Mapping
from pathlib import Path

from dotenv.parser import parse_stream

from trioeval.errors import UsageError


def read_env_file(path: Path, said: str = "--env-file") -> Mapping[str, str]:
    """The variables of a file with lines like `OPENAI_API_KEY=sk-…`.

    Args:
        path: The file.
        said: What names it.

    Raises:
        UsageError: It cannot be read, or has lines that say nothing; all of them are named, none shown.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            bindings = list(parse_stream(file))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        msg = f"{said} {path}: cannot be read: {reason}"
        raise UsageError(msg) from None
    wrong = [
        f"{path}:{binding.original.line}: must be NAME=value"
        for binding in bindings
        if binding.error or (binding.key is not None and binding.value is None)
    ]
    if wrong:
        raise UsageError("\n".join(wrong))
    return {
        binding.key: binding.value
        for binding in bindings
        if binding.key is not None and binding.value is not None
    }
