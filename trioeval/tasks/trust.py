"""Which servers a run trusts, where the environment says so."""

from trioeval.errors import Problem
from trioeval.providers.tls import check_tls
from trioeval.providers.wire import TlsSettings
from trioeval.suite import Around


def read_trust(around: Around) -> tuple[TlsSettings, list[Problem]]:
    """How servers are trusted that a provider's config says nothing of, and what is wrong with that.

    `CA_CERT_PATH` names certificates of authorities, relative to the suite's folder, and `INSECURE_SSL`
    trusts everybody.
    """
    named = around.variable("CA_CERT_PATH")
    tls = TlsSettings(
        ca=around.directory / named if named else None, verify=not around.switch("INSECURE_SSL")
    )
    problems = [
        Problem("$", f"the file {named} that CA_CERT_PATH names {fault}")
        for fault in check_tls(tls).values()
    ]
    return tls, problems
