"""casebits-dagster: proven, packed pre-training corpora from pinned text sources."""
