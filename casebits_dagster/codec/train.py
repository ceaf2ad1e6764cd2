"""Train a codec and write its pin (`casebits train-codec`).

The vocabulary is a byte-level BPE trained on the text of a generation's source, for CaseBits on the lower-cased text;
the mixture is fitted to the same text. Training is deterministic on one machine; the committed pin is the truth, since
floating point may differ between processors.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from casebits_dagster.codec.bytetable import END_MARKER, Bytes, Cuts
from casebits_dagster.codec.encode import EOD, MAX_TOKEN_BYTES, Encoder
from casebits_dagster.codec.mixture import PairCounter, train_mixture
from casebits_dagster.records.canonical import Json
from casebits_dagster.records.codec import CodecFiles
from casebits_dagster.records.digests import sha256_file
from casebits_dagster.records.errors import CasebitsError, RecordError

Progress = Callable[[str], None]


def train_vocabulary(texts: Iterable[str], size: int, longest: int | None = MAX_TOKEN_BYTES) -> bytes:
    """Return a `tokenizers` file: byte-level BPE over the texts, `size` entries, id 0 the end of document.

    No token has more than `longest` bytes. No added token is left in it, so the text of an end marker can never become
    id 0.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END_MARKER],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=longest,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    trained = json.loads(tokenizer.to_str())
    trained["added_tokens"] = []
    return (json.dumps(trained, ensure_ascii=False, separators=(",", ":")) + "\n").encode()


def require_new(folder: Path) -> None:
    """Refuse to train into a folder that is there."""
    if folder.exists():
        remedy = "pins are written once: name a new folder"
        raise CasebitsError("PIN_INVALID", str(folder), "the codec exists", remedy=remedy)


def train_codec(
    folder: Path, text: Bytes, cuts: Cuts, *, size: int, plain: bool, command: str, trained_on: str, progress: Progress
) -> CodecFiles:
    """Train on the documents `text[cuts[i]:cuts[i+1]]` and write the pin into a new folder.

    A plain codec keeps the capitals in its vocabulary, closes every document with id 0 and has no mixture.
    """
    require_new(folder)
    if size > 1 << 16:
        raise RecordError("PIN_INVALID", f"{folder}: size", expected="at most 65,536, as ids have 16 bits", read=size)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as staging:
        made = Path(staging) / "codec"
        made.mkdir()
        vocabulary, mixture = made / CodecFiles.VOCABULARY, made / CodecFiles.MIXTURE
        progress(f"training {size} entries on {len(cuts) - 1:,} documents, {len(text):,} bytes of text")
        trained = text.tobytes() if plain else text.tobytes().lower()
        texts = (trained[begin:end].decode() for begin, end in itertools.pairwise(cuts.tolist()))
        vocabulary.write_bytes(train_vocabulary(texts, size, None if plain else MAX_TOKEN_BYTES))
        encoder = Encoder(vocabulary, EOD if plain else None)
        if len(encoder.table.lengths) != size:
            read = f"{len(encoder.table.lengths)} entries, as many as the text has pairs for"
            raise CasebitsError("PIN_INVALID", str(folder), expected=f"a vocabulary of {size} entries", read=read)
        if not plain:
            _fit(encoder, text, cuts, mixture, progress)
        pin = CodecFiles(
            codec=folder.name,
            format="plain-1" if plain else "casebits-1",
            vocabulary_sha256=sha256_file(vocabulary),
            mixture_sha256=None if plain else sha256_file(mixture),
            vocabulary_size=size,
            command=command,
            trained_on=trained_on,
            separator=EOD if plain else None,
        )
        (made / "codec.toml").write_text(_toml(pin.to_dict()), encoding="utf-8")
        made.rename(folder)
    return pin


def _fit(encoder: Encoder, text: Bytes, cuts: Cuts, mixture: Path, progress: Progress) -> None:
    encoded, counter = encoder.encode(text, np.asarray(cuts)), PairCounter()
    progress(f"fitting the mixture to {len(encoded.ids):,} tokens, {len(text) / len(encoded.ids):.3f} bytes a token")
    counter.add(encoded.ids, encoded.cases)
    train_mixture(encoder.table, counter.pairs()).save(mixture)


def _toml(fields: dict[str, Json]) -> str:
    tables = {key: value for key, value in fields.items() if isinstance(value, dict)}
    plain = "".join(f"{key} = {json.dumps(value)}\n" for key, value in fields.items() if key not in tables)
    return plain + "".join(f"\n[{key}]\n{_toml(value)}" for key, value in tables.items())
