"""Limits that are shared beyond this process, held through leases: reserve, then complete.

Importing this package imports neither trio nor a network client, because suite files are read with it.
"""

from trioeval.limits.model import Actual as Actual
from trioeval.limits.model import Decision as Decision
from trioeval.limits.model import Denied as Denied
from trioeval.limits.model import Granted as Granted
from trioeval.limits.model import LeaseRequest as LeaseRequest
from trioeval.limits.model import LimitState as LimitState
from trioeval.limits.model import Requirement as Requirement
from trioeval.limits.model import Settlement as Settlement
from trioeval.limits.model import SharedLimit as SharedLimit
from trioeval.limits.model import Unknown as Unknown
