"""The verb of `casebits` that lets a person read a mix. Written like those of `commands`."""

from __future__ import annotations

import argparse
import sys

from casebits_dagster.commands import OK, home_of


def show(options: argparse.Namespace) -> int:
    """show one window of a mix as a person reads it

    Its text, document by document: the number that a document has in the window (its segment id), its tokens, domain,
    region, and the row of the source file it was. Separators and the places where a document is cut are marked in
    brackets; control characters are made visible, line breaks kept. With --format json the text is as it was.

    What is read is hashed first. Whether it is what the source says, `casebits audit` proves.
    """
    from casebits_dagster.lineage.show import show_text, show_window

    shown = show_window(home_of(options), options.mix, options.window, options.split)
    told = shown.to_bytes() if options.format == "json" else show_text(shown).encode()
    sys.stdout.buffer.write(told)
    sys.stdout.buffer.flush()
    return OK
