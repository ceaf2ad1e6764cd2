"""What the case masks cost in bits a token on held-out documents, under each model of them.

    python -m benchmarks.mixture [--texts FOLDER_OR_PARQUET] [--codec NAME] [--held-out 0.2] [--seed 0]

Every model is fitted to a part of the documents and charged for the others. Two lines are no models: `xz` packs the
held-out masks as one file and so sees their context, and the table bound is the entropy of the held-out masks given
their ids, which only a table fitted to the very text it is charged for would reach.
"""

from __future__ import annotations

import argparse
import lzma
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import ByteTable, read_vocabulary
from casebits_dagster.codec.encode import MAX_TOKEN_BYTES, EncodedDocuments, Encoder
from casebits_dagster.codec.mixture import COST_UNIT, PairCounter, Pairs, letter_table, train_mixture
from casebits_dagster.records.pins import default_pins_folder
from casebits_dagster.records.vocabulary import gpt2_file

PRIOR_WEIGHT = 2.0
_STEP = 1_000


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pins = default_pins_folder()
    sample = pins / "sample" / "pd_mix.parquet"
    parser.add_argument(
        "--texts", type=Path, default=sample, help="Parquet files of GPT-2 `tokens` (default: the sample)"
    )
    parser.add_argument("--codec", default="climbmix-lower-32768", help="a codec of the pins")
    parser.add_argument("--held-out", type=float, default=0.2, help="share of the documents (default 0.2)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    encoder = Encoder(pins / "codecs" / options.codec / "vocabulary.json")
    fitted, held_out, masks = _split(encoder, options.texts, options.held_out, options.seed)
    tokens = int(held_out.counts.sum())
    print(f"{options.codec} on {options.texts}: fitted to {int(fitted.counts.sum()):,} tokens, held out {tokens:,}")
    print(f"{'model of the masks':<36}{'bits a token':>14}")
    for name, bits in _models(encoder.table, fitted, held_out, masks):
        print(f"{name:<36}{bits / tokens:>14.3f}", flush=True)


def _models(table: ByteTable, fitted: Pairs, held_out: Pairs, masks: bytes) -> Iterator[tuple[str, float]]:
    """Yield the name of each model with what the held-out text costs under it, in bits."""
    yield "raw", 8.0 * len(masks)
    yield "xz of the masks file", 8.0 * len(lzma.compress(masks, preset=6))
    letters = letter_table(table)
    chances = _chances(letters, fitted)
    yield "independent bits, of all ids", _coins(letters, np.broadcast_to(chances, letters.shape), held_out)
    yield "independent bits, of each id", _coins(letters, _chances_by_id(letters, fitted, chances), held_out)
    for components in range(1, 6):
        cost = train_mixture(table, fitted, components).cost(held_out)
        yield f"mixture, K = {components}{' (pinned form)' * (components == 4)}", cost / COST_UNIT
    yield "table bound (not reachable)", _entropy(held_out)


def _split(encoder: Encoder, texts: Path, share: float, seed: int) -> tuple[Pairs, Pairs, bytes]:
    """Return the pairs of the fitted and of the held-out documents, and the masks of the latter as a file has them."""
    fitted, held_out, masks = PairCounter(), PairCounter(), []
    random = np.random.default_rng(seed)
    for encoded in _encoded(encoder, texts):
        documents = random.random(len(encoded.raw_bytes)) < share
        out = np.repeat(documents, np.diff(encoded.offsets.astype("<i8")))
        fitted.add(encoded.ids[~out], encoded.cases[~out])
        held_out.add(encoded.ids[out], encoded.cases[out])
        masks.append(encoded.cases[out].tobytes())
    return fitted.pairs(), held_out.pairs(), b"".join(masks)


def _encoded(encoder: Encoder, texts: Path) -> Iterator[EncodedDocuments]:
    source = ByteTable.of(read_vocabulary(gpt2_file("encoder.json")))
    for path in sorted(texts.glob("*.parquet")) if texts.is_dir() else [texts]:
        column = pq.read_table(path, columns=["tokens"])["tokens"].combine_chunks()
        for first in range(0, len(column), _STEP):
            part = column.slice(first, _STEP)
            ids = part.flatten().to_numpy().astype("<u2")
            ends = np.cumsum(part.value_lengths().to_numpy())
            cuts = np.concatenate([[0], np.cumsum(source.lengths[ids])[ends - 1]]).astype("<i8")
            yield encoder.encode(source.decode(ids), cuts)


def _chances(letters: NDArray[np.uint8], pairs: Pairs) -> NDArray[np.float64]:
    """Return how often each bit is a capital where it is a letter, (16,)."""
    capitals = (_bits(pairs) * pairs.counts[:, None]).sum(axis=0)
    seen = (letters[pairs.ids] * pairs.counts[:, None]).sum(axis=0)
    chances: NDArray[np.float64] = (capitals + 0.5) / (seen + 1.0)
    return chances


def _chances_by_id(letters: NDArray[np.uint8], pairs: Pairs, chances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the same for each id, (V, 16), with the mixture's prior weight on the chances of all ids."""
    seen = np.bincount(pairs.ids, pairs.counts, len(letters))
    weighted = _bits(pairs) * pairs.counts[:, None]
    capitals = np.stack([np.bincount(pairs.ids, column, len(letters)) for column in weighted.T], axis=1)
    return (capitals + PRIOR_WEIGHT * chances) / (seen[:, None] + PRIOR_WEIGHT)


def _coins(letters: NDArray[np.uint8], chances: NDArray[np.float64], pairs: Pairs) -> float:
    """Return the cost of the pairs when each letter's bit is a coin of its own, in bits."""
    capital = _bits(pairs) == 1
    chance = np.where(capital, chances[pairs.ids], 1 - chances[pairs.ids])
    spent = np.where(letters[pairs.ids] == 1, -np.log2(chance), 0.0).sum(axis=1)
    return float((spent * pairs.counts).sum())


def _entropy(pairs: Pairs) -> float:
    """Return the bits of the masks given their ids under the table of these very pairs."""
    total = np.bincount(pairs.ids, pairs.counts)[pairs.ids]
    return float((pairs.counts * np.log2(total / pairs.counts)).sum())


def _bits(pairs: Pairs) -> NDArray[np.uint16]:
    bits: NDArray[np.uint16] = pairs.masks[:, None] >> np.arange(MAX_TOKEN_BYTES, dtype="<u2") & np.uint16(1)
    return bits


if __name__ == "__main__":
    main()
