"""The commands of the operator's guide, by the names that their fences have: ```sh NAME."""

from __future__ import annotations

import re
import textwrap

from tests.cluster.machines import CHECKOUT

_FENCE = re.compile(r"^( *)```sh ([a-z-]+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def blocks() -> dict[str, str]:
    """Return every block of commands that a test runs, as it stands."""
    text = (CHECKOUT / "docs" / "operating.md").read_text()
    return {name: textwrap.dedent(block) for _, name, block in _FENCE.findall(text)}
