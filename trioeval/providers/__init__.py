"""Providers: from the id and config of a suite's entry to something that answers requests.

`resolve` checks an entry, `ProviderSpec.open` makes the provider. Importing this package loads no
HTTP library; whoever opens a spec with `needs_http` brings a client, mostly that of
`trioeval.providers.http`:

    async with open_http() as client:
        provider = spec.open(client)
        reply = await provider(Request(prompt="Hello"))
"""

from trioeval.providers.base import Provider as Provider
from trioeval.providers.base import Reply as Reply
from trioeval.providers.base import Request as Request
from trioeval.providers.base import Usage as Usage
from trioeval.providers.resolve import OpenProvider as OpenProvider
from trioeval.providers.resolve import ProviderSpec as ProviderSpec
from trioeval.providers.resolve import resolve as resolve
from trioeval.providers.wire import HttpClient as HttpClient
from trioeval.providers.wire import HttpReply as HttpReply
