"""Names of a package that are imported at their first use, so that importing the package is cheap."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str], *, modules: str = "", own: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the `__getattr__`, the `__dir__` and the `__all__` of a package.

    Args:
        package: The name of the package.
        homes: The names that each module defines, separated by spaces, by the name of the module.
        modules: Modules of the package that are imported on their first use as well.
        own: Public names that the package defines itself.

    Example:
        >>> get, _, names = lazy_names("trioeval", {"trioeval.usage": "Usage"})
        >>> get("Usage").__name__, names
        ('Usage', ['Usage'])
    """
    home_by_name = {name: home for home, names in homes.items() for name in names.split()}
    submodules = frozenset(modules.split())
    public = sorted({*home_by_name, *own.split()})

    def get(name: str) -> Any:
        if name in submodules:
            return importlib.import_module(f"{package}.{name}")
        home = home_by_name.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(home), name)

    return get, lambda: sorted({*public, *submodules}), public
