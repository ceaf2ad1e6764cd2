"""Train a generation's codec from its pinned source: source sample -> vocabulary -> mixture -> pin."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from casebits_dagster.codec.train import train_codec
from casebits_dagster.records.pins import CodecFiles, GenerationPin, RegionSpec
from casebits_dagster.sources import ROW_READERS


def train_from_source(pins_folder: Path, generation: str, folder: Path, size: int) -> CodecFiles:
    """Train on every readable row of the generation's source and write the codec pin into the new `folder`.

    The generation's own codec pin need not exist yet. Memory: the whole text, so name a source of sample size.
    """
    pin = GenerationPin.from_toml(pins_folder / "generations" / f"{generation}.toml")
    read_rows, source_folder = ROW_READERS[pin.source.format], pins_folder / pin.source.location
    blocks = [
        block
        for file in pin.source.files
        for block in read_rows(source_folder, RegionSpec(0, file.path, "rows", 0, file.rows))
    ]
    text = np.concatenate([block.text for block in blocks])
    cuts = np.zeros(1 + sum(len(block.positions) for block in blocks), "<i8")
    np.cumsum(np.concatenate([np.diff(block.cuts) for block in blocks]), out=cuts[1:])
    command = f"casebits train-codec {generation} {folder.name} --size {size}"
    return train_codec(folder, text, cuts, size=size, command=command)
