"""Python API: what the `advisor` command does, without printing or exiting.

Warnings go to the logger ``advisor``. Every expected error is an :class:`~knowledge.domain.errors.AdvisorError` with a
message, a hint and the exit code of the command line.

A module is imported when one of its names is used first, such as ``api.advise`` or ``api.session.open_session``: every
command imports this package.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, Any

from knowledge.domain.errors import AdvisorError as AdvisorError
from knowledge.domain.errors import InputError as InputError
from knowledge.domain.errors import UnavailableError as UnavailableError
from knowledge.domain.errors import UnsatisfiableError as UnsatisfiableError

if TYPE_CHECKING:
    from advisor.api import advice_inputs as advice_inputs
    from advisor.api import answer_memory as answer_memory
    from advisor.api import context as context
    from advisor.api import exchange as exchange
    from advisor.api import hardware_choice as hardware_choice
    from advisor.api import indexes as indexes
    from advisor.api import queries as queries
    from advisor.api import run_plan as run_plan
    from advisor.api import run_settings as run_settings
    from advisor.api import session as session
    from advisor.api import stores as stores
    from advisor.api import targets as targets
    from advisor.api import workload as workload
    from advisor.api.gate import gate_session as gate_session
    from advisor.api.gate import measured_verdict as measured_verdict
    from advisor.api.gate import update as update
    from advisor.api.gate import watch as watch
    from advisor.api.measurements import benchmark as benchmark
    from advisor.api.measurements import benchmark_proposal as benchmark_proposal
    from advisor.api.measurements import bisect as bisect
    from advisor.api.measurements import campaign_session as campaign_session
    from advisor.api.measurements import campaign_worker as campaign_worker
    from advisor.api.measurements import campaigns as campaigns
    from advisor.api.measurements import experiment as experiment
    from advisor.api.measurements import history as history
    from advisor.api.measurements import measured_program as measured_program
    from advisor.api.measurements import measurement as measurement
    from advisor.api.measurements import proposals as proposals
    from advisor.api.measurements.benchmark import measure_benchmark as measure_benchmark
    from advisor.api.measurements.campaign_session import CampaignSession as CampaignSession
    from advisor.api.measurements.campaign_session import CollectionResult as CollectionResult
    from advisor.api.measurements.campaigns import CampaignEstimate as CampaignEstimate
    from advisor.api.measurements.campaigns import find_campaign as find_campaign
    from advisor.api.measurements.campaigns import list_campaigns as list_campaigns
    from advisor.api.measurements.campaigns import open_campaign as open_campaign
    from advisor.api.measurements.campaigns import plan_campaign as plan_campaign
    from advisor.api.measurements.measurement import measure as measure
    from advisor.api.measurements.options import CampaignOptions as CampaignOptions
    from advisor.api.measurements.options import EnvironmentOptions as EnvironmentOptions
    from advisor.api.measurements.options import ExecutorOptions as ExecutorOptions
    from advisor.api.measurements.options import IndicatorOptions as IndicatorOptions
    from advisor.api.measurements.options import SamplingOptions as SamplingOptions
    from advisor.api.measurements.proposals import propose_campaign as propose_campaign
    from advisor.api.options import IndexOptions as IndexOptions
    from advisor.api.options import ProjectFiles as ProjectFiles
    from advisor.api.options import ResolutionOptions as ResolutionOptions
    from advisor.api.options import TargetOptions as TargetOptions
    from advisor.api.projects import advise as advise
    from advisor.api.projects import check as check
    from advisor.api.projects import explain as explain
    from advisor.api.projects import prices as prices
    from advisor.api.queries import compare as compare
    from advisor.api.queries import estimate as estimate

_MODULES = {
    "measurements.benchmark": ("measure_benchmark",),
    "measurements.campaign_session": ("CampaignSession", "CollectionResult"),
    "measurements.campaigns": (
        *("CampaignEstimate", "find_campaign", "list_campaigns", "open_campaign", "plan_campaign"),
    ),
    "measurements.measurement": ("measure",),
    "measurements.options": (
        *("CampaignOptions", "EnvironmentOptions", "ExecutorOptions"),
        *("IndicatorOptions", "SamplingOptions"),
    ),
    "measurements.proposals": ("propose_campaign",),
    "options": ("IndexOptions", "ProjectFiles", "ResolutionOptions", "TargetOptions"),
    "projects": ("advise", "check", "explain", "prices"),
    "queries": ("compare", "estimate"),
}
"""Modules with their public names."""
_ERRORS = ("AdvisorError", "InputError", "UnavailableError", "UnsatisfiableError")
__all__ = sorted([*_ERRORS, *chain.from_iterable(_MODULES.values())])
_FOLDERS = ("", "measurements.", "gate.")
"""Folders of modules that are attributes of this package."""


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    for folder in _FOLDERS:
        if find_spec(f"{__name__}.{folder}{name}") is not None:
            return import_module(f"{__name__}.{folder}{name}")
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
