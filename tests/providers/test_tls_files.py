"""Certificates and keys of a suite: checked when the entry is read, without a prompt at the terminal."""

import ssl
import subprocess
import sys
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from loopback import problems

from trioeval.providers.http.tls import check_tls, load_identity
from trioeval.providers.http.wire import TlsSettings

URL = "https://a.example/x"
ENCRYPTED = "the key is encrypted; use a key without a passphrase"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder with valid and invalid files."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    for name in ("one", "two"):
        issued = authority.issue_cert(f"{name}.example")
        issued.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
        issued.private_key_pem.write_to_path(folder / f"{name}.key")
        issued.private_key_and_cert_chain_pem.write_to_path(folder / f"{name}.both")
    key = serialization.load_pem_private_key((folder / "one.key").read_bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"open sesame"),
    )
    (folder / "locked.key").write_bytes(locked)
    (folder / "locked.both").write_bytes(locked + (folder / "one.pem").read_bytes())
    (folder / "empty.pem").write_bytes(b"")
    (folder / "torn.pem").write_bytes((folder / "ca.pem").read_bytes()[:200])
    return folder


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"ca": "ca.pem"}, []),
        ({"cert": "one.pem", "key": "one.key"}, []),
        ({"cert": "one.both"}, []),
        ({"ca": "empty.pem"}, [".config.tls.ca: holds no certificate in PEM"]),
        ({"caPath": "torn.pem"}, [".config.tls.caPath: holds no certificate in PEM"]),
        (
            {"ca": "empty.pem", "cert": "torn.pem", "key": "one.key"},
            [
                ".config.tls.ca: holds no certificate in PEM",
                ".config.tls.cert: holds no certificate in PEM",
            ],
        ),
        ({"cert": "one.pem"}, [".config.tls.cert: holds no private key in PEM"]),
        (
            {"cert": "one.pem", "key": "one.pem"},
            [".config.tls.key: holds no private key in PEM"],
        ),
        (
            {"cert": "one.pem", "key": "two.key"},
            [".config.tls.key: the key does not belong to the certificate"],
        ),
        ({"cert": "one.pem", "keyPath": "locked.key"}, [f".config.tls.keyPath: {ENCRYPTED}"]),
        ({"cert": "locked.both"}, [f".config.tls.cert: {ENCRYPTED}"]),
    ],
)
def test_unusable_files_are_problems_of_the_entry(
    folder: Path, files: dict[str, str], expected: list[str]
) -> None:
    """Each problem is at the key that names the file."""
    assert problems(URL, folder, tls=files) == expected


def test_removed_files_are_reported(folder: Path) -> None:
    """They may be removed between the check and the reading."""
    missing, one = folder / "none.pem", folder / "one.pem"
    message = "cannot be read: No such file or directory"
    assert check_tls(TlsSettings(ca=missing)) == {"ca": message}
    assert check_tls(TlsSettings(certificate=one, key=missing)) == {"key": message}


def test_a_client_without_a_certificate_presents_none() -> None:
    """The context is unchanged."""
    load_identity(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), TlsSettings())


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    """It is reported as a missing file."""
    assert problems(URL, tmp_path, tls={"ca": "."}) == ['.config.tls.ca: file "." not found']


@pytest.mark.slow
def test_no_passphrase_is_requested(folder: Path) -> None:
    """A process without an interactive terminal must not wait for input."""
    code = (
        "import sys; from pathlib import Path; from trioeval.providers.http.tls import check_tls\n"
        "from trioeval.providers.http.wire import TlsSettings\n"
        "print(check_tls(TlsSettings(certificate=Path(sys.argv[1]))))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder / "locked.both")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.wait(20) == 0
        assert process.stdout is not None
        assert "is encrypted" in process.stdout.read()
