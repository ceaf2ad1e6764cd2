"""What the tests of the sources may use: GPT-2's vocabulary, and sample data that is not part of the project."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real and realistic data beside the checkout, which may not be published with it."""
    folder = Path(__file__).parents[3] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the sample data beside the checkout is not there")
    return folder
