"""Providers: a suite entry's id and config become a callable that answers requests.

`resolve` checks an entry, `open_providers` opens the result. Importing this package loads neither an
HTTP library nor a vendor module:

    spec = resolve("openai:gpt-4.1-mini", {}, environ=os.environ, directory=Path(), ...)
    async with open_providers([spec], templates) as [provider]:
        reply = await provider(Request(prompt="Hello"))
"""

from trioeval.providers.base import Guardrails as Guardrails
from trioeval.providers.base import Media as Media
from trioeval.providers.base import Provider as Provider
from trioeval.providers.base import Reply as Reply
from trioeval.providers.base import Request as Request
from trioeval.providers.base import ToolCall as ToolCall
from trioeval.providers.config import TemplateRenderer as TemplateRenderer
from trioeval.providers.http.wire import HttpClient as HttpClient
from trioeval.providers.http.wire import HttpReply as HttpReply
from trioeval.providers.http.wire import HttpRequest as HttpRequest
from trioeval.providers.metering import Metering as Metering
from trioeval.providers.open import OpenProvider as OpenProvider
from trioeval.providers.open import open_providers as open_providers
from trioeval.providers.resolve import ProviderSpec as ProviderSpec
from trioeval.providers.resolve import resolve as resolve
from trioeval.usage import Usage as Usage
