"""One workshop for all tests of this folder."""

from __future__ import annotations

import pytest

from tests.e2e.workshop import Workshop


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("projects"), tmp_path_factory.mktemp("store"))
