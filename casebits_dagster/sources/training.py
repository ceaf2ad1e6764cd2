"""Train a generation's codec from its pinned source: source sample -> vocabulary -> mixture -> pin."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from casebits_dagster.codec.train import Progress, require_new, train_codec
from casebits_dagster.records.codec import CodecFiles
from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.pins import GenerationPin, Source, SourceFile, load_source
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.sources import read_rows, require_source_file


@dataclass(frozen=True, slots=True)
class Retrained:
    """A codec trained again beside its pin. `mixture_steps` is the largest difference of a parameter of the mixture in
    steps of 1/65,535: 0 when it is equal, -1 when there is none to compare."""

    pinned: CodecFiles
    made: CodecFiles
    mixture_steps: int


def train_from_source(
    pins_folder: Path, generation: str, folder: Path, size: int, *, plain: bool = False, progress: Progress = print
) -> CodecFiles:
    """Train on every readable row of the generation's source and write the codec pin into the new `folder`.

    The generation's own codec pin need not exist yet. Memory: the whole text, so name a source of sample size.
    """
    require_new(folder)
    path = pins_folder / "generations" / f"{generation}.toml"
    source = load_source(pins_folder, GenerationPin.from_toml(path).source, str(path))
    progress(f"reading {source.pin.repo}")
    for file in source.files:
        require_source_file(source, file.path)
    blocks = [block for file in source.files for block in read_rows(source, _whole(source, file))]
    text = np.concatenate([block.text for block in blocks])
    cuts = np.zeros(1 + sum(len(block.positions) for block in blocks), "<i8")
    np.cumsum(np.concatenate([np.diff(block.cuts) for block in blocks]), out=cuts[1:])
    command = f"casebits train-codec {generation} {folder.name} --size {size}{' --plain' * plain}"
    return train_codec(
        folder, text, cuts, size=size, plain=plain, command=command, trained_on=generation, progress=progress
    )


def _whole(source: Source, file: SourceFile) -> RegionSpec:
    """Return the range that is a whole file."""
    if source.pin.unit(file.path) == "bytes":
        return RegionSpec(0, file.path, "bytes", 0, file.bytes)
    if file.rows is None:
        raise RecordError("PIN_INVALID", f"{file.path}: rows", "a file that is cut in rows states how many it has")
    return RegionSpec(0, file.path, "rows", 0, file.rows)


def retrain(pins_folder: Path, pinned: CodecFiles, progress: Progress) -> Retrained:
    """Train a pinned codec again as its pin says, aside, and return how the two compare."""
    if pinned.trained_on is None:
        raise RecordError("PIN_INVALID", f"{pinned.codec}: trained_on", "the pin does not say what it was trained on")
    with tempfile.TemporaryDirectory() as aside:
        folder, size = Path(aside) / pinned.codec, pinned.vocabulary_size
        plain = pinned.format == "plain-1"
        made = train_from_source(pins_folder, pinned.trained_on, folder, size, plain=plain, progress=progress)
        committed = pins_folder / "codecs" / pinned.codec / pinned.MIXTURE
        return Retrained(pinned, made, -1 if plain else _steps(committed, folder / made.MIXTURE))


def _steps(pinned: Path, made: Path) -> int:
    with np.load(pinned) as want, np.load(made) as got:
        if any(want[name].shape != got[name].shape for name in ("pi", "theta")):
            return -1
        return max(int(np.abs(want[name].astype("<i4") - got[name]).max()) for name in ("pi", "theta"))
