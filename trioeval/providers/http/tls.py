"""Certificates and keys in a suite, checked before the first call.

No passphrase is ever requested: a run may have no terminal, and must not wait for input.
"""

import ssl
from pathlib import Path
from typing import NoReturn

from trioeval.providers.http.wire import TlsSettings

_ENCRYPTED = "the key is encrypted; use a key without a passphrase"


class EncryptedKeyError(Exception):
    """A key that needs a passphrase."""


def load_identity(context: ssl.SSLContext, tls: TlsSettings) -> None:
    """Load the client's certificate into a context, if there is one.

    Raises:
        OSError: The files cannot be read, or are invalid; `ssl.SSLError` is a subclass.
        EncryptedKeyError: The key has a passphrase.
    """
    if tls.certificate is not None:
        context.load_cert_chain(tls.certificate, tls.key, password=_refuse)


def check_tls(tls: TlsSettings) -> dict[str, str]:
    """Return the faults of the files, by field of `TlsSettings`; empty if all are valid."""
    faults = {
        name: fault
        for name, file in (("ca", tls.ca), ("certificate", tls.certificate))
        if file is not None and (fault := _certificates_fault(file))
    }
    if tls.certificate is not None and "certificate" not in faults:
        field = "certificate" if tls.key is None else "key"
        if fault := _key_fault(tls):
            faults[field] = fault
    return faults


def _certificates_fault(file: Path) -> str | None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
    except ssl.SSLError:
        return "holds no certificate in PEM"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None


def _key_fault(tls: TlsSettings) -> str | None:
    try:
        load_identity(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), tls)
    except EncryptedKeyError:
        return _ENCRYPTED
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            return "the key does not belong to the certificate"
        return "holds no private key in PEM"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None


def _refuse() -> NoReturn:
    raise EncryptedKeyError(_ENCRYPTED)
