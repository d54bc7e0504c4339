"""The project that the tests of this folder share."""

from __future__ import annotations

import pytest

from tests.steps.built import Built, build_net


@pytest.fixture(scope="session")
def net(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build_net(tmp_path_factory.mktemp("steps") / "project")
