"""The page about shared limits lists every request that a server handles, and no other."""

import re

from snippets import DOCS
from starlette.routing import Route

from trioeval.limits.memory import MemoryLimits
from trioeval.limits.server import make_app
from trioeval.testing import run_virtual


def test_every_request_is_listed() -> None:
    """Each has its method and path."""

    async def served() -> set[tuple[str, str]]:
        return {
            (method, route.path.replace("{key:path}", "KEY"))
            for route in make_app(MemoryLimits()).routes
            if isinstance(route, Route)
            for method in (route.methods or set()) - {"HEAD"}
        }

    page = (DOCS / "reference" / "limits.md").read_text()
    written = re.findall(r"^\| `(GET|POST|PUT|DELETE) (/\S+)` \|", page, re.MULTILINE)
    assert sorted(written) == sorted(run_virtual(served))
