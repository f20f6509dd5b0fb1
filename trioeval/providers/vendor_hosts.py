"""The hosts of each vendor, by the environment variable that holds the vendor's keys."""

import functools
import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

import attrs

from trioeval.providers.http.endpoint import Service, is_loopback
from trioeval.providers.sdk.bedrock import HOSTS, SAGEMAKER_HOSTS, SECRET_VARIABLE
from trioeval.providers.vendors.anthropic import ANTHROPIC
from trioeval.providers.vendors.gemini import GOOGLE
from trioeval.providers.vendors.huggingface import ROUTER
from trioeval.providers.vendors.replicate import REPLICATE
from trioeval.providers.vendors.services import SERVICES
from trioeval.providers.vendors.vertex import CREDENTIALS_VARIABLE, KEY_VARIABLES, VERTEX

_PIECES = re.compile(r"(\*)")
_ACCESS = ("AWS_ACCESS_KEY_ID", SECRET_VARIABLE, "AWS_SESSION_TOKEN")


@attrs.frozen
class Vendor:
    """The vendor of the keys in an environment variable."""

    hosts: re.Pattern[str]
    """Matches the vendor's own hosts."""

    def owns(self, host: str) -> bool:
        """Return whether a host belongs to the vendor."""
        return self.hosts.fullmatch(host.lower().rstrip(".")) is not None


def vendor_of(variable: str) -> Vendor | None:
    """Return the vendor of the keys in a variable; None if unknown, or if they are for the user's servers.

    Example:
        >>> vendor_of("OPENAI_API_KEY").owns("api.openai.com")
        True
        >>> vendor_of("OPENAI_API_KEY").owns("api.openai.com.example"), vendor_of("TEAM")
        (False, None)
    """
    return _vendors().get(variable)


def key_variables() -> frozenset[str]:
    """Return the variables whose vendor is known."""
    return frozenset(_vendors())


@functools.cache
def _vendors() -> Mapping[str, Vendor]:
    found: dict[str, list[str]] = {}
    vertex = attrs.evolve(VERTEX, key_variables=(*KEY_VARIABLES, CREDENTIALS_VARIABLE))
    for service in (*SERVICES.values(), ANTHROPIC, GOOGLE, ROUTER, REPLICATE, vertex):
        own = [*_hosts(service)]
        named = (*service.key_variables, service.organization_variable)
        for variable in filter(None, named) if own else ():
            found.setdefault(variable, []).extend(own)
    found |= {variable: [*HOSTS, *SAGEMAKER_HOSTS] for variable in _ACCESS}
    return {variable: Vendor(_pattern(hosts)) for variable, hosts in found.items()}


def _hosts(service: Service) -> Iterator[str]:
    """Return the patterns of a vendor's hosts; none for a service that users run themselves."""
    url = service.default_url
    if url is not None and not is_loopback(url):
        yield urlsplit(url).hostname or ""
    yield from service.hosts


def _pattern(hosts: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(_text(host) for host in hosts))


def _text(host: str) -> str:
    return "".join(
        "[a-z0-9-]+" if piece == "*" else re.escape(piece) for piece in _PIECES.split(host)
    )
