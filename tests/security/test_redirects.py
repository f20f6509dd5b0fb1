"""Servers that redirect a prompt, or a key, to another host."""

import pytest
import trio
from loopback import Server, as_json, generic, opened, redirect, serve

from trioeval.errors import ProviderError
from trioeval.providers import Request
from trioeval.providers.generic.http import OriginGuard, next_request
from trioeval.providers.http.wire import HttpReply, HttpRequest

pytestmark = pytest.mark.attack("redirects")

PROMPT = "a secret prompt"
STATUSES = (301, 302, 303, 307, 308)
PRIVATE = (
    "http://169.254.169.254/latest/meta-data",
    "http://[::ffff:169.254.169.254]/",
    "http://[fe80::1]/",
    "http://10.0.0.1/",
    "http://172.16.3.4:8080/",
    "http://192.168.1.1/",
    "http://100.64.0.1/",
    "http://127.0.0.1:8770/limits",
    "http://127.1/",
    "http://127\u30020\u30020\u30021/",
    "http://\uff11\uff12\uff17\uff0e\uff10.0.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0/",
    "http://[::1]/",
    "http://[::]/",
    "http://[fd00::1]/",
    "http://[fec0::1]/",
    "http://[64:ff9b::a00:1]/",
    "http://localhost:11434/api",
    "http://LOCALHOST./",
    "http://a.localhost/",
    "http://localhost\uff61/",
    "http://localhost.localdomain/",
    "http://metadata.google.internal/",
    "http://printer.local/",
)
ELSEWHERE = (
    "http://api.example.evil.com/",
    "http://evil.com/?x=http://api.example",
    "//evil.com/v1",
    "http://api.example:8080/v1",
    "https://api.example/v1",
    "http://api.example.:80/v1",
    *PRIVATE,
)


def following(status: int, location: str, guard: OriginGuard) -> HttpRequest:
    request = HttpRequest(
        "http://api.example/v1", {"authorization": "Bearer k-12345678"}, PROMPT.encode()
    )
    reply = HttpReply(status, {"location": location}, b"", "POST http://api.example/v1")
    return next_request(request, reply, guard)


@pytest.mark.parametrize("location", ELSEWHERE)
@pytest.mark.parametrize("status", STATUSES)
def test_no_redirect_leads_to_another_origin(status: int, location: str) -> None:
    """The message names both origins."""
    with pytest.raises(ProviderError) as caught:
        following(status, location, OriginGuard())
    assert caught.value.kind == "bad_request"
    if "not a valid http or https URL" not in str(caught.value):
        source = f"HTTP {status} from POST http://api.example/v1"
        assert f"{source}: redirect to http" in str(caught.value)
        assert "followRedirects: any" in str(caught.value)


@pytest.mark.parametrize("location", PRIVATE)
def test_no_redirect_leads_from_a_public_address_to_a_private_one(location: str) -> None:
    """This also holds if other origins are allowed."""
    with pytest.raises(ProviderError, match="which is a private address and is not followed"):
        following(307, location, OriginGuard(elsewhere=True))


def test_backslashes_do_not_name_a_host() -> None:
    """Browsers treat them as slashes; here they are part of a path of the same origin."""
    request = following(307, "http:\\\\evil.com/v1", OriginGuard())
    assert request.url == "http://api.example/%5C%5Cevil.com/v1"


def test_keys_are_not_sent_to_other_origins_that_are_allowed() -> None:
    """The prompt is sent, as the suite allows it."""
    request = following(308, "http://other.example/v2", OriginGuard(elsewhere=True))
    assert (request.url, request.body) == ("http://other.example/v2", PROMPT.encode())
    assert request.headers == {}


@pytest.mark.network
@pytest.mark.parametrize("status", STATUSES)
def test_another_port_of_this_machine_receives_no_prompt(status: int) -> None:
    """Real sockets are used: the second server gets no request."""

    async def ask(here: Server) -> ProviderError:
        spec = generic(f"{here.url}/a", body={"q": "{{prompt}}"})
        async with opened(spec) as provider:
            with pytest.raises(ProviderError) as caught:
                await provider(Request(prompt=PROMPT))
        return caught.value

    async def main() -> None:
        with trio.fail_after(60):
            async with serve(lambda _seen: as_json("there")) as there:
                answer = redirect(status, f"{there.url}/b")
                async with serve(lambda _seen: answer) as here:
                    error = await ask(here)
            assert there.seen == []
            assert here.url in error.message
            assert there.url in error.message

    trio.run(main)
