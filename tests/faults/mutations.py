"""What can be done to a region: one function a mutation, each on the columns, bytes or files of a `Made`.

Documents of the region: 0 fox, 1 CRLF, 2 byte order mark, 3 accents, 4 Istanbul, 5 end marker, 6 ten characters,
7 family, 8 to be, 9 line feed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from casebits_dagster.records.layout import CASES, DOCUMENTS, OFFSETS, RAW_BYTES
from tests.faults.build import Made, Verdict, document_of, encode_text, scores, tokenizer
from tests.faults.world import document_id, side

# --- arrays -------------------------------------------------------------------------------------------------------


def flip_id_bit(made: Made) -> None:
    spelled = tokenizer(made.generation.vocabulary)[1]
    for at, number in enumerate(made.ids):
        for bit in (1, 2, 4, 8):
            same = number and number ^ bit and len(spelled[number]) == len(spelled[number ^ bit]) == 1
            if (
                same
                and spelled[number].isalpha()
                and spelled[number ^ bit].isalpha()
                and spelled[number ^ bit].islower()
            ):
                made.ids[at] ^= bit
                return


def mask_bit(bit: int, letters: bool) -> Callable[[Made], None]:
    """Set a bit on the first token whose byte `bit` is (not) a small letter without a mask yet."""

    def mutate(made: Made) -> None:
        spelled = tokenizer(made.generation.vocabulary)[1]
        for at, number in enumerate(made.ids):
            token = spelled[number] if number else b""
            if len(token) > bit and token[bit : bit + 1].islower() == letters and not made.cases[at]:
                made.cases[at] |= 1 << bit
                return

    return mutate


def mask_beyond(made: Made) -> None:
    made.cases[0] |= 1 << len(tokenizer(made.generation.vocabulary)[1][made.ids[0]])


def mask_on_end(made: Made) -> None:
    made.cases[made.offsets[1] - 1] = 1


def mask_lost(made: Made) -> None:
    made.cases[next(at for at, mask in enumerate(made.cases) if mask)] = 0


def masks_bit_reversed(made: Made) -> None:
    made.cases = [int(f"{mask:016b}"[::-1], 2) for mask in made.cases]


def masks_of_letters_in_order(made: Made) -> None:
    """An older export: bit j is the j-th letter of the token, not its j-th byte."""
    spelled = tokenizer(made.generation.vocabulary)[1]
    for at, mask in enumerate(made.cases):
        letters = [bit for bit, byte in enumerate(spelled[made.ids[at]]) if 97 <= byte <= 122]
        made.cases[at] = sum(1 << rank for rank, bit in enumerate(letters) if mask >> bit & 1)


def inline_case_markers(made: Made) -> None:
    """An older export: a marker token before each token with capitals, no masks."""

    def marked(text: bytes) -> tuple[list[int], list[int]]:
        ids, cases = encode_text(made.generation.vocabulary, text)
        marker = ids[0]
        out = [number for pair in zip(ids, cases, strict=True) for number in ([marker] * bool(pair[1]) + [pair[0]])]
        return out, [0] * len(out)

    made.encode_with = marked


def capital_id(made: Made) -> None:
    """Spell a capitalised token as bytes, the capital as itself: the text is the same."""
    spelled = tokenizer(made.generation.vocabulary)[1]
    at = next(at for at, mask in enumerate(made.cases) if mask == 1)
    token = spelled[made.ids[at]]
    made.ids[at : at + 1] = [spelled.index(bytes([byte])) for byte in token[:1].upper() + token[1:]]
    made.cases[at : at + 1] = [0] * len(token)
    made.offsets = [cut + (len(token) - 1) * (cut > at) for cut in made.offsets]


def end_lost(made: Made) -> None:
    at = made.offsets[2] - 1
    del made.ids[at], made.cases[at]
    made.offsets = [cut - (cut > at) for cut in made.offsets]


def end_doubled(made: Made) -> None:
    at = made.offsets[2]
    made.ids.insert(at, 0)
    made.cases.insert(at, 0)
    made.offsets = [cut + (cut >= at) for cut in made.offsets]


def end_inside(made: Made) -> None:
    made.ids[made.offsets[3] + 1] = 0
    made.cases[made.offsets[3] + 1] = 0


def offset_off_by_one(made: Made) -> None:
    made.offsets[4] += 1


def offsets_start_late(made: Made) -> None:
    made.offsets[0] = 1


def offsets_fall(made: Made) -> None:
    made.offsets[3], made.offsets[4] = made.offsets[4], made.offsets[3]


def offsets_end_early(made: Made) -> None:
    made.offsets[-1] -= 1


def id_outside(made: Made) -> None:
    made.ids[5] = 8192


def raw_bytes_with_end(made: Made) -> None:
    made.raw_bytes = [size + 1 for size in made.raw_bytes]


def raw_bytes_swapped(made: Made) -> None:
    made.raw_bytes[0], made.raw_bytes[1] = made.raw_bytes[1], made.raw_bytes[0]


def scrambled(made: Made) -> None:
    begin, end = made.offsets[8], made.offsets[9] - 1
    made.ids[begin:end] = made.ids[begin:end][::-1]
    made.cases[begin:end] = made.cases[begin:end][::-1]


def bodies_swapped(made: Made) -> None:
    """The tokens of two documents change places, lengths with them; lines stay."""
    first, second = (slice(made.offsets[at], made.offsets[at + 1]) for at in (7, 8))
    for column in (made.ids, made.cases):
        column[first.start : second.stop] = column[second] + column[first]
    made.offsets[8] = made.offsets[7] + second.stop - second.start
    made.raw_bytes[7], made.raw_bytes[8] = made.raw_bytes[8], made.raw_bytes[7]


def cut_finer(made: Made) -> None:
    """Spell a token of two letters as its bytes: the text is the same, the segmentation is not."""
    spelled = tokenizer(made.generation.vocabulary)[1]
    at = next(at for at, number in enumerate(made.ids) if len(spelled[number]) == 2 and not made.cases[at])
    made.ids[at : at + 1] = [spelled.index(bytes([byte])) for byte in spelled[made.ids[at]]]
    made.cases.insert(at, 0)
    made.offsets = [cut + (cut > at) for cut in made.offsets]


def cut_short(made: Made) -> None:
    """Encode a document without its last character, and say so everywhere."""
    document = made.documents[0]
    document.text = document.text[:-1]
    document.document_id = document_id(document.text)


def other_vocabulary(made: Made) -> None:
    """Encode with a vocabulary whose tokens of equal shape stand at other ids, under the pinned name."""
    spelled = tokenizer(made.generation.vocabulary)[1]
    small = [number for number, token in enumerate(spelled) if len(token) == 1 and token.islower()]
    moved = dict(zip(small, small[1:] + small[:1], strict=True))
    made.ids = [moved.get(number, number) for number in made.ids]


# --- documents ----------------------------------------------------------------------------------------------------


def rewrite(at: int, change: Callable[[str], str], *, declare: bool) -> Callable[[Made], None]:
    """Encode changed text; `declare` also gives it the id of the changed text."""

    def mutate(made: Made) -> None:
        document = made.documents[at]
        document.text = change(document.text.decode()).encode()
        if declare:
            document.document_id = document_id(document.text)
            document.split = side(document.document_id)

    return mutate


def documents_swapped(made: Made) -> None:
    made.documents[2], made.documents[3] = made.documents[3], made.documents[2]


def texts_swapped(made: Made) -> None:
    one, two = made.documents[7], made.documents[8]
    one.text, two.text = two.text, one.text
    for document in (one, two):
        document.document_id = document_id(document.text)
        document.split = side(document.document_id)


def split_leak(made: Made) -> None:
    document = next(document for document in made.documents if document.split == "validation")
    document.split = "train"


def document_dropped(made: Made) -> None:
    del made.documents[5]


def document_added(made: Made) -> None:
    row = next(number for number, verdict in enumerate(made.verdicts) if verdict.verdict == "dropped:too_short")
    made.documents.append(document_of(made.rows[row], made.verdicts[row]))


def document_doubled(made: Made) -> None:
    made.documents.append(made.documents[0])


def row_served_twice(made: Made) -> None:
    """A second document of another text claims the row of the first."""
    made.documents.append(replace(made.documents[6], text=b"other text", document_id=document_id(b"other text")))


def cluster_changed(made: Made) -> None:
    made.documents[1].cluster = 3


def score_changed(made: Made) -> None:
    made.documents[1].scores["characters"] += 1


# --- verdicts -----------------------------------------------------------------------------------------------------


def verdict_row(made: Made, text: str) -> Verdict:
    return next(
        v for row, v in zip(made.rows, made.verdicts, strict=True) if not row.reason and row.text.decode() == text
    )


def strict_threshold(made: Made) -> None:
    verdict_row(made, "ten chars.").verdict = "dropped:too_short"


def later_rule_first(made: Made) -> None:
    verdict_row(made, "").verdict = "dropped:cluster"


def second_copy_kept(made: Made) -> None:
    first, second = (v for row, v in zip(made.rows, made.verdicts, strict=True) if row.text.startswith(b"The Quick"))
    first.verdict, second.verdict = "dropped:repeated", "keep"


def replacement_character(made: Made) -> None:
    """Keep a row that is not UTF-8 after repairing it."""
    at = next(number for number, row in enumerate(made.rows) if row.reason == "not_utf8")
    row = made.rows[at]
    row.text = "@@\ufffd and more text".encode()
    made.verdicts[at] = replace(
        made.verdicts[at], verdict="keep", document_id=document_id(row.text), scores=scores(row.text)
    )


def quarantine_reason(made: Made) -> None:
    next(v for v in made.verdicts if v.verdict == "quarantined:truncated_utf8").verdict = "quarantined:not_utf8"


def quarantine_place(made: Made) -> None:
    next(v for v in made.verdicts if v.verdict == "quarantined:inner_separator").problem_at += 1


def sound_row_quarantined(made: Made) -> None:
    verdict = made.verdicts[0]
    made.verdicts[0] = replace(verdict, verdict="quarantined:not_utf8", document_id=bytes(16), scores=None)


def score_lost(made: Made) -> None:
    made.verdicts[2].scores = None


def verdict_missing(made: Made) -> None:
    del made.verdicts[1]


def verdicts_swapped(made: Made) -> None:
    made.verdicts[1], made.verdicts[3] = made.verdicts[3], made.verdicts[1]


def length_changed(made: Made) -> None:
    made.verdicts[4].source_tokens += 1


def document_moved(made: Made) -> None:
    made.documents[1].position += 1


def row_cluster_changed(made: Made) -> None:
    made.verdicts[2].cluster = 3


def row_id_changed(made: Made) -> None:
    verdict_row(made, "Too Small").document_id = document_id(b"Too small")


def score_invented(made: Made) -> None:
    for scored in (verdict_row(made, "ten chars."),):
        assert scored.scores is not None
        scored.scores["characters"] = 11_000_000


# --- lines, files, receipt ----------------------------------------------------------------------------------------


def line(field: str, value: object, at: int = 1) -> Callable[[Made], object]:
    return lambda made: made.lines[at].__setitem__(field, value)


def offsets_as_u32(made: Made) -> None:
    made.files[OFFSETS] = b"".join(cut.to_bytes(4, "little") for cut in made.offsets)


def offsets_as_u32_recounted(made: Made) -> None:
    made.files[OFFSETS] = b"".join(cut.to_bytes(4, "little") for cut in [*made.offsets, 0])
    made.items[OFFSETS] = len(made.files[OFFSETS]) // 8


def cases_one_short(made: Made) -> None:
    made.files[CASES] = made.files[CASES][:-2]
    made.items[CASES] -= 1


def line_not_ended(made: Made) -> None:
    made.files[DOCUMENTS] += made.files[DOCUMENTS].splitlines()[0]


def lines_doubled(made: Made) -> None:
    made.files[DOCUMENTS] *= 2
    made.items[DOCUMENTS] *= 2


def line_with_space(made: Made) -> None:
    made.files[DOCUMENTS] = made.files[DOCUMENTS].replace(b'"index":3,', b'"index": 3,')


def lines_miscounted(made: Made) -> None:
    made.items[DOCUMENTS] += 1


def dtype_misnamed(made: Made) -> None:
    made.dtypes[RAW_BYTES] = "<u2"


def file_not_listed(made: Made) -> None:
    made.receipt["files"] = made.receipt["files"][1:]


def receipt(*path: str, value: object) -> Callable[[Made], None]:
    """Set one field of the receipt before it is sealed."""

    def mutate(made: Made) -> None:
        at = made.receipt
        for name in path[:-1]:
            at = at[name]
        at[path[-1]] = value

    return mutate
