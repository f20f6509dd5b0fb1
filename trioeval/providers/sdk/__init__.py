"""Providers behind third-party clients: vendor SDKs, and clients that need asyncio.

An SDK only connects, signs and sends; requests are built and replies are read as without it, and retries are
left to the lane. No module here imports an SDK before an entry needs it.
"""

from trioeval.providers.sdk.bridge import AsyncioBridge as AsyncioBridge
from trioeval.providers.sdk.bridge import asyncio_bridge as asyncio_bridge
from trioeval.providers.sdk.bridge import provider_from_asyncio as provider_from_asyncio
