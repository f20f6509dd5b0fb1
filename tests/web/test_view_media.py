"""The live view serves the files of media, and nothing else of the folder."""

from pathlib import Path

import pytest
from view_server import in_trio, make_store, serving

from trioeval.providers.fake.media import picture
from trioeval.providers.media import read_media
from trioeval.store.database import media_folder

pytestmark = [pytest.mark.attack("web pages"), pytest.mark.network]

SUITE = '{providers: [echo], prompts: ["{{a}}"], tests: [{vars: {a: x}}]}'
TOKEN = "correct-horse"  # noqa: S105
CAT = read_media(picture("a cat"))


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_store(tmp_path_factory.mktemp("view"), SUITE)
    folder = media_folder(path)
    folder.mkdir()
    (folder / CAT.file).write_bytes(picture("a cat"))
    (folder / f"{CAT.sha256}.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (folder / "notes.txt").write_text("mine")
    return path


def test_a_file_is_served_with_its_own_type_and_name(database: Path) -> None:
    """Browsers must not guess the type, nor run it as a document of this server."""

    async def main() -> None:
        async with serving(database) as server:
            reply = await server.ask(f"/media/{CAT.file}")
            assert reply.status == 200
            assert int(reply.headers["content-length"]) == CAT.size
            assert reply.headers["content-type"] == "image/png"
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert reply.headers["content-disposition"] == f'inline; filename="{CAT.file}"'
            assert "default-src 'none'" in reply.headers["content-security-policy"]

    in_trio(main)


def test_other_files_and_other_names_are_not_found(database: Path) -> None:
    """A name that is not a digest with a known ending reaches no file."""

    async def main() -> None:
        async with serving(database) as server:
            for name in (
                "notes.txt",
                f"{CAT.sha256}.svg",
                f"{CAT.sha256}.jpg",
                f"{CAT.sha256.upper()}.png",
                f"..%2fmedia%2f{CAT.file}",
                f"%2e%2e/{database.name}",
                f"{CAT.file}%00",
                f"{CAT.file}/",
            ):
                reply = await server.ask(f"/media/{name}")
                assert reply.status == 404, name

    in_trio(main)


def test_a_view_with_a_token_serves_media_only_with_it(database: Path) -> None:
    """Media are results, not styles."""

    async def main() -> None:
        async with serving(database, token=TOKEN) as server:
            assert (await server.ask(f"/media/{CAT.file}")).status == 401

    in_trio(main)
