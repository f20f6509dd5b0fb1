"""A fake provider: an OpenAI-compatible server with exact limits and configurable faults.

For testing suites, lanes and adapters against a real socket. `serve_fake` runs it, `FakeSettings` configure
it.
"""

from trioeval.providers.fake.server import FakeAddress as FakeAddress
from trioeval.providers.fake.server import ServedCompletion as ServedCompletion
from trioeval.providers.fake.server import serve_fake as serve_fake
from trioeval.providers.fake.settings import EchoReplies as EchoReplies
from trioeval.providers.fake.settings import FakeSettings as FakeSettings
from trioeval.providers.fake.settings import FillerReplies as FillerReplies
from trioeval.providers.fake.settings import GarbageReplies as GarbageReplies
from trioeval.providers.fake.settings import Hints as Hints
from trioeval.providers.fake.settings import RecordedReplies as RecordedReplies
from trioeval.providers.fake.settings import Replies as Replies
from trioeval.providers.fake.settings import ScriptedReplies as ScriptedReplies
