"""What keeps limits elsewhere needs packages that not everybody has: told before anything is opened."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Literal, TypeAlias

from trioeval.errors import UsageError

Extra: TypeAlias = Literal["redis", "serve"]

_PACKAGES: Mapping[Extra, tuple[str, ...]] = {
    "redis": ("anyio", "coredis"),
    "serve": ("starlette",),
}


def is_installed(extra: Extra) -> bool:
    """Whether the packages of an extra are there. Does not import them.

    Example:
        >>> is_installed("redis")
        True
    """
    try:
        return all(find_spec(package) is not None for package in _PACKAGES[extra])
    except ImportError:  # somebody keeps it from being imported
        return False


def install(extra: Extra) -> str:
    """What somebody does who lacks it.

    Example:
        >>> install("serve")
        "pip install 'trioeval[serve]'"
    """
    return f"pip install 'trioeval[{extra}]'"


@contextmanager
def needing(extra: Extra) -> Iterator[None]:
    """Imports that only work where an extra is installed.

    Raises:
        UsageError: It is not.
    """
    try:
        yield
    except ImportError as error:
        raise UsageError(f"{error}: {install(extra)}") from error
