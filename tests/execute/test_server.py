"""How the server tells of processes that died."""

from __future__ import annotations

import signal

import pytest

from cuvil_build.errors import StepCrashed
from cuvil_build.execute.server import describe_crash


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (int(signal.SIGSEGV), "step 'fetch:a' was ended by SIGSEGV"),
        (int(signal.SIGKILL), "step 'fetch:a' was ended by SIGKILL"),
        (3 << 8, "step 'fetch:a' ended with 3 and no answer"),
    ],
)
def test_a_crash_says_what_ended_the_step_and_where_its_log_is(status: int, text: str) -> None:
    with pytest.raises(StepCrashed) as error:
        raise describe_crash("fetch:a", status, "the log")
    assert (error.value.message, error.value.hint) == (text, "its log is the log")
