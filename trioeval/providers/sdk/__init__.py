"""Providers behind other people's clients: vendor SDKs, and anything that needs asyncio.

An SDK builds connections, signs and sends; what is asked and how a reply is read is the same as without
it, and calling again is left to the lane. No module here imports an SDK before an entry wants it.
"""

from trioeval.providers.sdk.bridge import AsyncioBridge as AsyncioBridge
from trioeval.providers.sdk.bridge import asyncio_bridge as asyncio_bridge
from trioeval.providers.sdk.bridge import provider_from_asyncio as provider_from_asyncio
