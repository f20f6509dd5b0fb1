"""The hosts that a suite calls, and which keys of the environment go there.

A key is for the hosts of its vendor. The user is warned of a suite that sends one elsewhere. An
untrusted one is refused, and sends requests only to its providers.
"""

from collections.abc import Collection, Iterable, Iterator

import attrs

from trioeval.documents.files import FileContext
from trioeval.documents.trust import LEAVE_OUT
from trioeval.errors import Problem
from trioeval.providers import ProviderSpec
from trioeval.providers.http.endpoint import Endpoint, is_own_machine

_CODE = "is code, and an untrusted suite runs none"


@attrs.frozen
class SentKey:
    """A key of the environment and the host that it is sent to."""

    variable: str
    host: str
    is_safe: bool
    """True if the host belongs to its vendor, or is named for it by the environment itself."""

    @property
    def is_strange(self) -> bool:
        """True to warn the user of a trusted suite; a proxy on this machine is their own."""
        return not (self.is_safe or is_own_machine(self.host))


def hosts_of(spec: ProviderSpec) -> tuple[str | None, ...]:
    """Return the hosts that a provider calls; None for one that is decided per call."""
    own = _hosts_of_endpoint(spec.settings.endpoint)
    if not spec.settings.urls:
        return own
    from trioeval.providers.generic.urls import fixed_host

    return (*own, *map(fixed_host, spec.settings.urls))


def _hosts_of_endpoint(endpoint: Endpoint | None) -> tuple[str, ...]:
    return () if endpoint is None or not endpoint.host else (endpoint.host.lower(),)


def sent_keys(spec: ProviderSpec, own: Collection[str]) -> Iterator[SentKey]:
    """Yield the keys of the environment that a provider sends, as far as their vendors are known.

    Args:
        spec: The provider.
        own: Names of variables that the suite sets itself: those are not secrets of the machine.
    """
    hosts = [host for host in hosts_of(spec) if host is not None]
    endpoint = spec.settings.endpoint
    if not hosts:
        return
    from trioeval.providers.vendor_hosts import vendor_of

    named = {*spec.named_variables, *spec.settings.named_variables}
    read = () if endpoint is None else endpoint.sent_variables
    for variable in dict.fromkeys((*read, *spec.named_variables, *spec.settings.named_variables)):
        vendor = vendor_of(variable)
        if variable in own or vendor is None:
            continue
        # The key that an endpoint reads itself goes to no other host, such as that of a server of tools.
        for host in hosts if variable in named else _hosts_of_endpoint(endpoint):
            is_safe = vendor.owns(host) or _is_place_of(endpoint, variable, own)
            yield SentKey(variable, host, is_safe)


def _is_place_of(endpoint: Endpoint | None, variable: str, own: Collection[str]) -> bool:
    """Return whether the environment names this endpoint for this key."""
    if endpoint is None or not endpoint.url_variable or endpoint.url_variable in own:
        return False
    service = endpoint.service
    own_keys = (
        service.key_variables or endpoint.sent_variables
    )  # boto3 finds the keys of AWS itself
    return variable in (*own_keys, service.organization_variable)


def foreign_key_warning(sent: SentKey, path: str) -> Problem:
    """Return the warning about a key that is sent to a host that is not its vendor's.

    Args:
        sent: The key.
        path: The path of the provider in the suite.
    """
    message = f"{sent.variable} goes to {sent.host}, which is not a host of its vendor"
    return Problem(path, message, "if that is not intended, give the provider its own key: apiKey")


def refusals(spec: ProviderSpec, context: FileContext, own: Collection[str]) -> Iterator[Problem]:
    """Yield the forbidden parts of a provider of an untrusted suite; paths are relative to its entry.

    Args:
        spec: The provider.
        context: The context of the suite, with its permissions.
        own: Names of variables that the suite sets itself.
    """
    settings = spec.settings
    for key in settings.code_keys:
        yield Problem(f".config.{key}", f"{key} {_CODE}", LEAVE_OUT)
    for key, variable in settings.credential_choices.items():
        if variable not in context.trust.allow_env:
            message = f"{key} chooses among your credentials, which an untrusted suite may not do"
            hint = f"choose with {variable} in your environment, or allow it with --allow-env {variable}"
            yield Problem(f".config.{key}", message, hint)
    if None in hosts_of(spec):
        message = "the host of a provider of an untrusted suite must not be a template"
        yield Problem(".id", message, "write the host as it is, for example https://api.example/")
    if (endpoint := settings.endpoint) is None:
        return  # names in templates were checked when these were rendered
    free = {*own, *context.trust.allow_env}
    safe = {sent.variable for sent in sent_keys(spec, own) if sent.is_safe}
    is_open = endpoint.base_url.startswith("http:") and not endpoint.url_variable
    for variable in endpoint.sent_variables:
        if variable in free or (variable in safe and not is_open):
            continue
        how = " without TLS" if variable in safe else ", which is not a host of its vendor"
        message = f"an untrusted suite may not send {variable} to {endpoint.host}{how}"
        hint = f"leave out the base URL, or allow it with --allow-env {variable}"
        yield Problem(".config.apiBaseUrl", message, hint)


def foreign_judges(
    specs: Iterable[ProviderSpec], paths: Iterable[str], hosts: Collection[str | None]
) -> Iterator[Problem]:
    """Yield problems of an untrusted suite's judges on hosts that are not its providers' or a vendor's.

    Args:
        specs: The judges.
        paths: The path of each of them.
        hosts: The hosts of the providers.
    """
    for spec, path in zip(specs, paths, strict=True):
        strange = [host for host in hosts_of(spec) if host is not None and host not in hosts]
        for host in strange:
            if not _is_vendors(spec, host):
                message = f"an untrusted suite calls only its providers, and {host} is not one of their hosts"
                yield Problem(path, message, "add it to the providers, or remove it")


def _is_vendors(spec: ProviderSpec, host: str) -> bool:
    from trioeval.providers.vendor_hosts import vendor_of

    if (endpoint := spec.settings.endpoint) is None:
        return False
    vendors = map(vendor_of, endpoint.service.key_variables)
    return any(vendor is not None and vendor.owns(host) for vendor in vendors)
