"""JavaScript of HTTP providers that Node runs: files, and code in the config; over real sockets."""

import os
from pathlib import Path
from typing import Any

import pytest
import trio
from loopback import Answer, Seen, as_json, opened, serve
from node_programs import NEEDS_NODE, WITHOUT_NODE, write

from trioeval.errors import ProviderError, SuiteError
from trioeval.providers import Request
from trioeval.providers.resolve import ProviderSpec, resolve
from trioeval.templates import Templates

pytestmark = [pytest.mark.network, pytest.mark.slow, NEEDS_NODE]  # processes


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is reached directly, whatever the machine's proxy variables are."""
    monkeypatch.setenv("NO_PROXY", "*")


def spec(
    folder: Path, url: str, environ: dict[str, str] | None = None, **config: Any
) -> ProviderSpec:
    return resolve(
        url,
        {"body": {"text": "{{prompt}}"}, **config},
        environ={**os.environ, **(environ or {})},
        directory=folder,
        templates=Templates(),
        custom={},
    )


def asked(folder: Path, **config: Any) -> list[Any]:
    """Return the output of one call, or its error, and the bodies that the server got."""

    def respond(seen: Seen) -> Answer:
        return as_json({"said": seen.body.decode()})

    async def main() -> list[Any]:
        with trio.fail_after(60):
            async with serve(respond) as server:
                async with opened(spec(folder, f"{server.url}/x", **config)) as provider:
                    try:
                        reply = await provider(Request(prompt="hi", vars={"x": 1}))
                        found: Any = reply.output
                    except ProviderError as error:
                        found = str(error)
                return [found, *(seen.body for seen in server.seen)]

    return trio.run(main)


def test_files_change_the_request_and_read_the_reply(tmp_path: Path) -> None:
    """A named function must exist; without a name it is the export of the file."""
    write(
        tmp_path,
        ask_mjs="import os from 'os';\nexport default (prompt, vars) => prompt + vars.x + os.EOL.length;",
        read_cjs="exports.first = (json, text, { response }) => "
        "`${Buffer.from(text).length} ${response.status} ${JSON.parse(json.said).text}`;",
    )
    found = asked(
        tmp_path,
        transformRequest="file://ask.mjs",
        transformResponse="file://read.cjs:first",
    )
    length = len('{"said": "{\\"text\\": \\"hi11\\"}"}')
    assert found == [f"{length} 200 hi11", b'{"text": "hi11"}']


def test_code_in_the_config_uses_node(tmp_path: Path) -> None:
    """It has no file."""
    found = asked(
        tmp_path,
        transformRequest="(prompt) => new URL('http://h/' + prompt).pathname",
        transformResponse="process.mainModule.require('path').basename(JSON.parse(json.said).text)",
    )
    assert found[0] == "hi"


def test_a_function_that_fails_has_its_file_and_line(tmp_path: Path) -> None:
    """It fails only its own row."""
    write(tmp_path, read_js="const fs = require('fs');\nmodule.exports = () => {\n  fs.no();\n};")
    (error, _) = asked(tmp_path, transformResponse="file://read.js")
    assert "TypeError: fs.no is not a function (line 3 of read.js)" in error


def test_a_missing_node_or_file_is_reported_before_a_call(tmp_path: Path) -> None:
    write(
        tmp_path, read_js="const fs = require('fs');", plain_js="module.exports = (json) => json.a;"
    )
    keys = {"transformRequest": "file://none.js", "transformResponse": "file://read.js"}
    with pytest.raises(SuiteError) as caught:
        spec(tmp_path, "https://h.example", WITHOUT_NODE, **keys)
    first, second = map(str, caught.value.problems)
    assert first == '.config.transformRequest: file "none.js" not found'
    assert second.startswith(
        '.config.transformResponse: "read.js" uses require in line 1, so it needs Node: '
    )
    plain = spec(tmp_path, "https://h.example", WITHOUT_NODE, transformResponse="file://plain.js")
    assert plain.id == "https://h.example"
