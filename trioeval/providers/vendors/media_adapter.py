"""The common parts of the APIs whose replies are media."""

from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.errors import Problem, ProviderError
from trioeval.providers.http.adapter import Adapter
from trioeval.providers.http.endpoint import Endpoint, Service, read_endpoint
from trioeval.providers.http.wire import HttpReply
from trioeval.providers.media import MOST_BYTES


def locate_media(
    service: Service, model: str, values: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[Endpoint | None, list[Problem]]:
    """Return an endpoint whose replies may be larger than texts; see `read_endpoint`."""
    endpoint, problems = read_endpoint(service, model, values, environ)
    if endpoint is not None and values.get("max_response_bytes") is None:
        endpoint = attrs.evolve(endpoint, max_reply_bytes=MOST_BYTES)
    return endpoint, problems


class MediaAdapter(Adapter):
    """An API whose replies are media."""

    returns = "media"

    show_thinking = False

    @classmethod
    def locate(
        cls,
        service: Service,
        model: str,
        values: Mapping[str, Any],
        environ: Mapping[str, str],
    ) -> tuple[Endpoint | None, list[Problem]]:
        """Return the endpoint; its replies may be larger than texts."""
        return locate_media(service, model, values, environ)

    @property
    def named(self) -> dict[str, Any]:
        """The config without nulls and passthrough."""
        given = self.given.items()
        return {name: one for name, one in given if one is not None and name != "passthrough"}

    @property
    def passthrough(self) -> Mapping[str, Any]:
        """More fields of the body."""
        return self.given.get("passthrough") or {}

    def unusable(self, fault: object, reply: HttpReply) -> ProviderError:
        """Return the error for media that cannot be used."""
        message = f"the media in the reply cannot be used: {fault}"
        return self.failure("malformed_reply", message, reply, advice="")
