"""The verb of `casebits` that writes a mix for other trainers. Written like those of `commands`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from casebits_dagster.commands import OK, home_of, pins_of
from casebits_dagster.lineage.places import find_folder
from casebits_dagster.records.errors import Absent
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import MixReport
from casebits_dagster.records.vocabulary import require_file, vocabulary_file

if TYPE_CHECKING:
    from casebits_dagster.codec.bytetable import ByteTable


def export(options: argparse.Namespace) -> int:
    """write a mix in the files of another trainer

    nanogpt   train.bin, val.bin (flat uint16), meta.pkl; masks at the same places of train_cases.bin, val_cases.bin
    megatron  Megatron-core's indexed datasets train, val (.bin and .idx), and train_cases, val_cases of the masks
    datasets  train.parquet, val.parquet for Hugging Face `datasets`: a row a document, with ids, masks and text

    MIX is the name of a mix below the home, its folder, or where it is published (s3://, hf://datasets/); what is read
    of it is verified. Layout windows keeps its order: window K at K * T. Layout documents has every document in one
    piece, in the order in which the mix first shows them, and is the default where a format has documents. export.json
    tells how many tokens there are and their hash, the same for all formats of a layout.
    """
    from casebits_dagster.publication.open_mix import open_mix
    from casebits_dagster.training.exports import RECORD, export_mix

    home = home_of(options)
    mix = open_mix(options.mix if "://" in options.mix else find_folder(options.mix, home.mix(options.mix)))
    table = _table(options, mix.report, home)
    done = export_mix(mix, options.to, options.format, options.layout, table)
    print(f"mix {done.mix}, manifest {done.mix_manifest_sha256}: {done.format}, layout {done.layout}, in {options.to}")
    for split in done.splits:
        print(f"  {split.split:<5} {split.tokens:,} tokens in {split.sequences:,} sequences")
        print(f"        ids   {split.ids_sha256}")
        if split.cases_sha256:
            print(f"        masks {split.cases_sha256}")
    print(f"  {len(done.files)} files, {sum(file.bytes for file in done.files):,} bytes; all of this in {RECORD}")
    return OK


def _table(options: argparse.Namespace, report: MixReport, home: Home) -> ByteTable | None:
    """Return what the tokens spell: by the codec that is named, else by that of the generation below the home."""
    from casebits_dagster.codec.bytetable import ByteTable, read_vocabulary

    used = report.sources[0]
    folder = home.generation(used.generation).codec
    if options.codec:
        folder = find_folder(options.codec, pins_of(options) / "codecs" / options.codec)
    path = vocabulary_file(folder, used.vocabulary_sha256)
    try:
        require_file(path, used.vocabulary_sha256)
    except Absent:
        if options.codec:
            raise
        return None
    plain = report.codec == "plain-1"
    return ByteTable.of(read_vocabulary(path, report.separator.id if plain else None))
