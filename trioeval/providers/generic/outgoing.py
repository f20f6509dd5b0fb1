"""The request of an entry: templates for all of its parts, and what they become for one call."""

from collections.abc import Mapping

import attrs

from trioeval.errors import ProviderError
from trioeval.providers.config import is_visible
from trioeval.providers.generic.auth import NO_AUTH, Auth
from trioeval.providers.generic.body import Body, FilePart, LoadedFile, MultipartBody, render_body
from trioeval.providers.generic.filling import Filling
from trioeval.providers.generic.keys import MARK
from trioeval.providers.generic.urls import encode, has_dot_segments, url_fault, with_query
from trioeval.providers.wire import HttpRequest


@attrs.frozen(kw_only=True)
class RequestTemplate:
    """All parts of a request; each text may be a template."""

    method: str | None = None
    """None is POST for a request with a body, else GET."""
    url: str = attrs.field(repr=False)
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """With lower-case names."""
    query: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    body: Body | None = attrs.field(default=None, repr=False)
    auth: Auth = attrs.field(default=NO_AUTH, repr=False)
    _whole_url: str | None = attrs.field(init=False, repr=False, eq=False)
    """The URL that is sent, where nothing has to be filled in."""

    @_whole_url.default
    def _checked_once(self) -> str | None:
        is_whole = "{" not in self.url and url_fault(self.url.strip()) is None
        return encode(self.url) if is_whole else None

    @property
    def files(self) -> tuple[FilePart, ...]:
        """The files that go along."""
        if not isinstance(self.body, MultipartBody):
            return ()
        return tuple(part for part in self.body.parts if isinstance(part, FilePart))

    def render(self, filling: Filling, files: Mapping[FilePart, LoadedFile]) -> HttpRequest:
        """The request of one call.

        Args:
            filling: Its variables.
            files: Those of `files`, read.

        Raises:
            ProviderError: `bad_request`: a template cannot be rendered, or what comes of it cannot be
                sent.
        """
        url = self._url(filling)
        query = {
            name: filling.text(value, f'the parameter "{name}"')
            for name, value in self.query.items()
        }
        headers = {name: self._header(name, value, filling) for name, value in self.headers.items()}
        content = render_body(self.body, filling, files)
        if content is not None:
            headers.setdefault("content-type", content.content_type)
        return HttpRequest(
            with_query(url, {**query, **self.auth.query}),
            {**headers, **self.auth.headers},
            None if content is None else content.data,
            self.method or ("GET" if content is None else "POST"),
        )

    def _url(self, filling: Filling) -> str:
        if self._whole_url is not None:
            return self._whole_url
        url = filling.text(self.url, "the url").strip()
        if fault := url_fault(url):
            raise ProviderError("bad_request", f"the url {fault} when its variables are filled in")
        if MARK.search(self.url) and has_dot_segments(url):
            # It would lead somewhere else than the suite says.
            raise ProviderError(
                "bad_request",
                'the url has a path with "." or ".." when its variables are filled in',
            )
        return encode(url)

    def _header(self, name: str, value: str, filling: Filling) -> str:
        text = filling.text(value, f'the header "{name}"')
        if not is_visible(text):
            # A line end would be another header; the value may be secret.
            raise ProviderError("bad_request", f'the header "{name}" is not printable ASCII text')
        return text.strip()
