"""The README.md inside a mix: what it is, how a loader reads it, what it may be used for."""

from __future__ import annotations

from casebits_dagster.records.mix import MixReport

_TEXT = """# {mix}

{description}

{windows:,} windows of {length:,} tokens ({tokens:,} tokens), strategy `{strategy}`, from {documents:,} documents.
Verify it with `casebits verify mix <this folder>`; `mix_report.json` has every number, `MANIFEST.txt` every hash.

## Reading it

{streams} {windows_per_shard:,} windows a shard, {shards} shard(s);
the last may have fewer. Each shard carries one extra token after its last window, the last target (the last shard of a
concatenation: all that is left).

- Read window k of a shard at offset k * {length}, in order or by window number: inputs `tokens[k*T : (k+1)*T]`, targets
  `tokens[k*T+1 : (k+1)*T+1]`, T = {length}. A random offset or another T loses the alignment; the data stays valid.
- The last target of an aligned window is the first token of an unrelated window. {next}
  no target is false then.
- `segments.npy` (memory-mapped numpy table, sorted) says which run of which document stands where; `documents.npy`
  names the documents. Attention masks, resume and audits need nothing else.
- Separator: id {report.separator.id}{mask}, at the {report.separator.position} of every document.
- Validation: `val_*`, {report.validation.windows:,} windows from documents that are in no training mix.

## Reference points for the loss, nats a token

uniform ln({vocabulary_size:,}) = {uniform_nats}, token frequencies only = {unigram_nats}{bigram}. \
A run that settles near the second has
learned no order: suspect the order of tokens in what it reads.

## Licence

{licences}

Made from: {sources}
"""

_FOLLOWS = "for each window, the token that truly follows in the document (the separator where it ends):"
_WORDS = {
    "casebits-1": {
        "streams": "Two little-endian uint16 streams a shard, same positions: token ids `train_NNNNNN.ids.u16le` and "
        "case masks\n`train_NNNNNN.case.u16le` (bit b: byte b of the token is a capital).",
        "next": f"`next.ids.u16le` and\n  `next.case.u16le` hold, {_FOLLOWS}",
        "mask": " with mask 0",
    },
    "plain-1": {
        "streams": "One little-endian uint16 stream of token ids a shard, without a header: `train_NNNNNN.bin`.",
        "next": f"`next.u16le` holds,\n  {_FOLLOWS}",
        "mask": "",
    },
}


def readme(report: MixReport) -> str:
    recipe, train = report.recipe, report.train
    sources = (
        f"`{source.generation}`, frontier version {source.manifest_version}, manifest sha256 {source.manifest_sha256}"
        for source in report.sources
    )
    found = report.loss_reference.bigram
    before = f", the token before too = {found.low_nats:.2f} to {found.high_nats:.2f}" if found else ""
    return _TEXT.format(
        **{**recipe.to_dict(), **train.to_dict(), **report.loss_reference.to_dict(), "bigram": before},
        length=recipe.sequence_length,
        tokens=train.windows * recipe.sequence_length,
        report=report,
        **_WORDS[report.codec],
        licences="\n".join(f"- {licence}" for licence in report.licences),
        sources="; ".join(sources),
    )
