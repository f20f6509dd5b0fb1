"""Keys of an entry's config that are different for one call.

They are checked as the config is, but when the call is made: a prompt or a test may bring them.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from trioeval.errors import Problem, ProviderError
from trioeval.providers.config import Key, read_config


def read_options(options: Mapping[str, Any], keys: Iterable[Key]) -> dict[str, Any]:
    """The values by snake_case key; null takes away what the config says.

    Args:
        options: As a request brings them.
        keys: Those that may differ from call to call.

    Raises:
        ProviderError: `bad_request`, with everything that is wrong.

    Example:
        >>> from trioeval.providers.config import is_text
        >>> read_options({"serviceTier": "flex"}, [Key("service_tier", "text", is_text)])
        {'service_tier': 'flex'}
    """
    values, problems = read_config(options, keys)
    if problems:
        told = "; ".join(map(_tell, problems))
        raise ProviderError("bad_request", f"the options of the call are not right: {told}")
    return values


def _tell(problem: Problem) -> str:
    key = problem.path.removeprefix(".config").removeprefix(".")
    hint = f" ({problem.hint})" if problem.hint else ""
    return f"{key}: {problem.message}{hint}"
