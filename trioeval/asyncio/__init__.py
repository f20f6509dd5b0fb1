"""trioeval in asyncio programs: FastAPI, Jupyter, or any other with a running event loop.

    import trioeval.asyncio

    rows = await trioeval.asyncio.collect("suite.json")

Each call has a thread with its own Trio. Providers and callbacks are asyncio functions of the program, and
run on its event loop.
"""

from trioeval.asyncio.run_suite import collect as collect
from trioeval.asyncio.run_suite import run_suite as run_suite
from trioeval.asyncio.session import AsyncioObserver as AsyncioObserver
from trioeval.asyncio.session import AsyncioRun as AsyncioRun
from trioeval.asyncio.session import AsyncioSession as AsyncioSession
from trioeval.asyncio.session import AsyncioWorkers as AsyncioWorkers
from trioeval.asyncio.session import open_session as open_session
from trioeval.asyncio.trio_runner import TrioRunner as TrioRunner
