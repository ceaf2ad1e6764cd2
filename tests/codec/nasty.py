"""Texts that break encoders, as a table for every test that has text go through something: (name, text)."""

from __future__ import annotations

from casebits_dagster.codec.bytetable import END_MARKER

NASTY: tuple[tuple[str, str], ...] = (
    ("capital i with dot", "\u0130stanbul \u0130"),
    ("sharp s", "Stra\u00dfe STRA\u1e9eE \u1e9e"),
    ("kelvin and angstrom sign", "300 \u212a K k, 5 \u212b \u00c5"),
    ("dz digraphs", "\u01c4\u01c5\u01c6\u01c7\u01c8\u01c9\u01ca\u01cb\u01cc"),
    ("zwj emoji", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 Family \u2764\ufe0f\u200d\U0001f525"),
    ("flags and skin tones", "\U0001f1e9\U0001f1ea\U0001f44b\U0001f3fd"),
    ("nul", "A\0B\0\0c\0"),
    ("control characters", "".join(map(chr, [*range(32), 127, *range(128, 160)]))),
    ("byte order mark", "\ufeffHello \ufeff"),
    ("lone carriage returns", "one\rTWO\r\nThree\n\r\r\n"),
    ("line and paragraph separators", "a\u2028B\u2029c\x85D\x0b\x0cE"),
    ("capitals in a long run", "A" * 5_000 + "b" * 5_000 + "Ab" * 2_500),
    ("digits in a long run", "7" * 5_000),
    ("a very long line", "Lorem IPSUM dolor " * 4_000),
    ("blanks in a long run", " " * 5_000 + "x" + "\t" * 300 + "\n" * 300 + "Y"),
    ("end marker", f"{END_MARKER} <|ENDOFTEXT|> {END_MARKER}{END_MARKER}"),
    ("other markers", "<|im_start|>[CLS]</s><s><pad>[MASK]<unk>"),
    ("empty", ""),
    ("one capital", "Q"),
    ("one byte of each length", "a\u00e9\u4e2d\U0001f642"),
    ("white space", " \t\n\u00a0\u2003\u3000\u200b  \n\n"),
    ("no-break spaces", "A\u00a0B\u202fC\u2060D\u00a0\u00a0"),
    ("composed and decomposed", "\u00c9cole E\u0301cole \u1e69 s\u0323\u0307 S\u0307\u0323"),
    ("combining marks", "Z\u0351\u036b\u0343\u036a\u0302" * 50 + "\u0301"),
    ("right to left", "\u05e9\u05dc\u05d5\u05dd ABC \u202eDEF\u202c \u0645\u0631\u062d\u0628\u0627"),
    (
        "titles of other scripts",
        "\u0393\u0395\u0399\u0391 \u03c2 \u0410\u0411\u0412 \uff21\uff22\uff23 \U00010400\U00010428",
    ),
    ("non-characters", "\ufffe\uffff\U0001ffff\U0010ffff\ue000\ufffd"),
    ("contractions", "I'LL we'Re DON'T o'clock 'S's'T \u2019S"),
    ("bytes of the alphabet", "\u0120\u010a\u0100\u0143 \u0120the"),
)
