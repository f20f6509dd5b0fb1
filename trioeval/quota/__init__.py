"""Limits that are shared beyond this process, held through leases: reserve, then complete.

This package's front imports neither trio nor a network: what a suite file says of quotas is read with it.
"""

from trioeval.quota.leases import Actual as Actual
from trioeval.quota.leases import Ask as Ask
from trioeval.quota.leases import Decision as Decision
from trioeval.quota.leases import Denied as Denied
from trioeval.quota.leases import Granted as Granted
from trioeval.quota.leases import Requirement as Requirement
from trioeval.quota.leases import Settlement as Settlement
from trioeval.quota.leases import Unknown as Unknown
from trioeval.quota.limits import Limit as Limit
from trioeval.quota.limits import LimitState as LimitState
