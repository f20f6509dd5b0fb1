"""Scripts and styles of the pages: a fixed list of files, read once, so no address reaches any other one."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import attrs
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

_OWN = Path(__file__).parent / "static"
_UPLOT = Path(__file__).parents[1] / "report" / "vendor" / "uplot"
_SCRIPT, _STYLE = "text/javascript", "text/css"
_FILES = {
    "view.css": (_OWN / "view.css", _STYLE),
    "view.js": (_OWN / "view.js", _SCRIPT),
    "icon.svg": (_OWN / "icon.svg", "image/svg+xml"),
    "htmx.js": (_OWN / "htmx.min.js", _SCRIPT),
    "hx-sse.js": (_OWN / "hx-sse.min.js", _SCRIPT),
    "uplot.js": (_UPLOT / "uPlot.iife.min.js", _SCRIPT),
    "uplot.css": (_UPLOT / "uPlot.min.css", _STYLE),
}


@attrs.frozen
class Assets:
    """Their contents by name, with their media types."""

    _found: Mapping[str, tuple[bytes, str]] = attrs.field(repr=False)
    version: str
    """Changes with any of them; stands in their addresses, so that browsers may keep them."""

    @classmethod
    def load(cls) -> "Assets":
        """Read them all. Blocks shortly."""
        found = {name: (path.read_bytes(), kind) for name, (path, kind) in _FILES.items()}
        digest = hashlib.blake2b(b"".join(body for body, _ in found.values()), digest_size=6)
        return cls(found, digest.hexdigest())

    async def answer(self, request: Request) -> Response:  # noqa: ASYNC124 - or it gets a thread
        """One of them."""
        found = self._found.get(request.path_params["name"])
        if found is None:
            raise HTTPException(404, "there is no such file")
        body, kind = found
        keep = {"cache-control": "private, max-age=31536000, immutable"}
        return Response(body, media_type=kind, headers=keep)
