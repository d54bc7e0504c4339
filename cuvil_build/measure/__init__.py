"""What runtimes take for a model, on this machine."""

from cuvil_build.measure.calls import CallCost, cost_of_calls
from cuvil_build.measure.profile import CallTime, ModuleProfile, call_times, profile_module
from cuvil_build.measure.runtimes import PEERS, Array, Feeds, UnknownRuntime, check_kind
from cuvil_build.measure.turns import REST_MS, Runner, Timing, compare_runtimes, largest_error, rest_of

__all__ = [
    "PEERS",
    "REST_MS",
    "Array",
    "CallCost",
    "CallTime",
    "Feeds",
    "ModuleProfile",
    "Runner",
    "Timing",
    "UnknownRuntime",
    "call_times",
    "check_kind",
    "compare_runtimes",
    "cost_of_calls",
    "largest_error",
    "profile_module",
    "rest_of",
]
