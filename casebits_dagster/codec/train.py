"""Train a codec and write its pin (`casebits train-codec`).

The vocabulary is a byte-level BPE trained on the lower-cased text of a generation's source; the mixture is fitted to
the same text. Training is deterministic on one machine; the committed pin is the truth, since floating point may differ
between processors.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from casebits_dagster.codec.bytetable import END_MARKER, Bytes, Cuts
from casebits_dagster.codec.encode import MAX_TOKEN_BYTES, Encoder
from casebits_dagster.codec.mixture import train_mixture
from casebits_dagster.records.codec import CodecFiles
from casebits_dagster.records.digests import sha256_file
from casebits_dagster.records.errors import CasebitsError


def train_vocabulary(texts: Iterable[str], size: int) -> bytes:
    """Return a `tokenizers` file: byte-level BPE over texts without A-Z, `size` entries, id 0 the end of document.

    No added token is left in it, so the text of an end marker can never become id 0.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END_MARKER],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=MAX_TOKEN_BYTES,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    trained = json.loads(tokenizer.to_str())
    trained["added_tokens"] = []
    return (json.dumps(trained, ensure_ascii=False, separators=(",", ":")) + "\n").encode()


def train_codec(folder: Path, text: Bytes, cuts: Cuts, *, size: int, command: str) -> CodecFiles:
    """Train on the documents `text[cuts[i]:cuts[i+1]]` and write the pin into a new folder."""
    if folder.exists():
        remedy = "pins are written once: name a new folder"
        raise CasebitsError("PIN_INVALID", str(folder), "the codec exists", remedy=remedy)
    lowered = text.tobytes().lower()
    texts = (lowered[cuts[i] : cuts[i + 1]].decode() for i in range(len(cuts) - 1))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as staging:
        made = Path(staging) / "codec"
        made.mkdir()
        vocabulary, mixture = made / CodecFiles.VOCABULARY, made / CodecFiles.MIXTURE
        vocabulary.write_bytes(train_vocabulary(texts, size))
        encoder = Encoder(vocabulary)
        encoded = encoder.encode(text, np.asarray(cuts))
        train_mixture(encoder.table, encoded.ids, encoded.cases).save(mixture)
        if len(encoder.table.lengths) != size:
            read = f"{len(encoder.table.lengths)} entries, as many as the text has pairs for"
            raise CasebitsError("PIN_INVALID", str(folder), expected=f"a vocabulary of {size} entries", read=read)
        pin = CodecFiles(
            codec=folder.name,
            format="casebits-1",
            vocabulary_sha256=sha256_file(vocabulary),
            mixture_sha256=sha256_file(mixture),
            vocabulary_size=size,
            command=command,
        )
        lines = [f"{key} = {json.dumps(value)}" for key, value in pin.to_dict().items()]
        (made / "codec.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
        made.rename(folder)
    return pin
