"""What a run is given: the home it works in. The only resource; assets write files, so no IO manager is involved."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from casebits_dagster.records.layout import Home


class Corpus(dg.ConfigurableResource[Home]):
    """The folder that holds everything (`$CASEBITS_HOME`), and the store of all machines (`$CASEBITS_STORE`)."""

    root: str
    shared: str = ""

    @property
    def home(self) -> Home:
        return Home(Path(self.root), self.shared)
