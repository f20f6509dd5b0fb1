"""An evaluation kernel for language models on Trio's structured concurrency.

    import trio, trioeval

    rows = trio.run(trioeval.collect, "suite.json")

`collect` runs a suite and returns its rows; `open_session` holds lanes, a store and a budget for many runs.
`trioeval.kernel` runs plans of any jobs on lanes; `trioeval.agent`, `trioeval.columns`,
`trioeval.question_eval` and `trioeval.grading` have the names of their task types and of assertions, and
`trioeval.errors` all exceptions. `trioeval.testing` has the laws, strategies and the virtual clock for
testing schedulers.

Names are imported at their first use: `python -m trioeval --version` imports nothing else.
"""

from typing import TYPE_CHECKING

from trioeval._version import __version__ as __version__
from trioeval.lazy import lazy_names

if TYPE_CHECKING:
    from trioeval import agent as agent
    from trioeval import columns as columns
    from trioeval import errors as errors
    from trioeval import grading as grading
    from trioeval import kernel as kernel
    from trioeval import providers as providers
    from trioeval import question_eval as question_eval
    from trioeval import run as run
    from trioeval import scaleout as scaleout
    from trioeval import store as store
    from trioeval import suite as suite
    from trioeval.errors import ProviderError as ProviderError
    from trioeval.errors import SuiteError as SuiteError
    from trioeval.errors import TrioevalError as TrioevalError
    from trioeval.errors import UsageError as UsageError
    from trioeval.kernel import Lanes as Lanes
    from trioeval.kernel import LaneSpec as LaneSpec
    from trioeval.kernel import map_on_lanes as map_on_lanes
    from trioeval.loading.load import load_suite as load_suite
    from trioeval.loading.load import parse_suite as parse_suite
    from trioeval.providers import Media as Media
    from trioeval.providers import Provider as Provider
    from trioeval.providers import Reply as Reply
    from trioeval.providers import Request as Request
    from trioeval.providers import ToolCall as ToolCall
    from trioeval.providers import Usage as Usage
    from trioeval.providers.local.custom import own_provider as own_provider
    from trioeval.providers.sdk import provider_from_asyncio as provider_from_asyncio
    from trioeval.rates import Budget as Budget
    from trioeval.report.records import RowRecord as RowRecord
    from trioeval.run import PreparedSuite as PreparedSuite
    from trioeval.run import Row as Row
    from trioeval.run import Status as Status
    from trioeval.run import SuiteSummary as SuiteSummary
    from trioeval.run import collect as collect
    from trioeval.run import prepare as prepare
    from trioeval.run import run_suite as run_suite
    from trioeval.run.build_dataset import Dataset as Dataset
    from trioeval.run.build_dataset import build_columns as build_columns
    from trioeval.session.observers import SessionObserver as SessionObserver
    from trioeval.session.run import Run as Run
    from trioeval.session.run import RunSummary as RunSummary
    from trioeval.session.session import Session as Session
    from trioeval.session.session import open_session as open_session
    from trioeval.store.reader import read_store as read_store
    from trioeval.suite.model import Suite as Suite
else:  # type checkers would accept any name
    __getattr__, __dir__, __all__ = lazy_names(
        "trioeval",
        {
            "trioeval.errors": "ProviderError SuiteError TrioevalError UsageError",
            "trioeval.kernel": "LaneSpec Lanes map_on_lanes",
            "trioeval.loading.load": "load_suite parse_suite",
            "trioeval.providers": "Media Provider Reply Request ToolCall Usage",
            "trioeval.providers.local.custom": "own_provider",
            "trioeval.providers.sdk": "provider_from_asyncio",
            "trioeval.rates": "Budget",
            "trioeval.report.records": "RowRecord",
            "trioeval.run": "PreparedSuite Row Status SuiteSummary collect prepare run_suite",
            "trioeval.run.build_dataset": "Dataset build_columns",
            "trioeval.session.observers": "SessionObserver",
            "trioeval.session.run": "Run RunSummary",
            "trioeval.session.session": "Session open_session",
            "trioeval.store.reader": "read_store",
            "trioeval.suite.model": "Suite",
        },
        modules=(
            "agent asyncio columns errors grading kernel limits providers question_eval rates run"
            " scaleout store suite testing"
        ),
        own="__version__",
    )
