"""Train a generation's codec from its pinned source: source sample -> vocabulary -> mixture -> pin."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from casebits_dagster.codec.train import train_codec
from casebits_dagster.records.codec import CodecFiles
from casebits_dagster.records.pins import GenerationPin, load_source
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.sources import read_rows


def train_from_source(pins_folder: Path, generation: str, folder: Path, size: int) -> CodecFiles:
    """Train on every readable row of the generation's source and write the codec pin into the new `folder`.

    The generation's own codec pin need not exist yet. Memory: the whole text, so name a source of sample size.
    """
    path = pins_folder / "generations" / f"{generation}.toml"
    source = load_source(pins_folder, GenerationPin.from_toml(path).source, str(path))
    blocks = [
        block
        for file in source.files
        for block in read_rows(source, RegionSpec(0, file.path, source.pin.unit(file.path), 0, file.rows or file.bytes))
    ]
    text = np.concatenate([block.text for block in blocks])
    cuts = np.zeros(1 + sum(len(block.positions) for block in blocks), "<i8")
    np.cumsum(np.concatenate([np.diff(block.cuts) for block in blocks]), out=cuts[1:])
    command = f"casebits train-codec {generation} {folder.name} --size {size}"
    return train_codec(folder, text, cuts, size=size, command=command)
