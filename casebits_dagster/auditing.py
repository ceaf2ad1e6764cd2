"""The verbs of `casebits` that say where things came from. Written like those of `commands`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from casebits_dagster.commands import OK, REFUSED, UNDECIDED, home_of, pins_of
from casebits_dagster.records.pins import generation_names, load_generation

if TYPE_CHECKING:
    from casebits_dagster.lineage.ask import Question

FORMATS = ("text", "json", "markdown", "html", "prov")
RECOMPUTE = ("slices", "all", "none")


def audit(options: argparse.Namespace) -> int:
    """say where something came from, or where it went

    --mix NAME                  the whole mix: its shares by source, licence, domain, cluster and region
    --mix NAME --window K       one training window, token by token
    --mix NAME --shard N        one shard of the train stream
    --mix NAME --tokens A:B     tokens A up to B of the train stream
    --region GEN/IDX            a region, and the mixes that use it
    --document ID               every region, frontier version, mix and window that holds it
    --source-row GEN FILE ROW   the same of a source row; of one that was dropped, why
    --withdrawn                 the same of everything that the pins in withdrawals/ name

    The chain: window, segments, documents, region, receipt, admission, manifest (with an inclusion proof), source
    file and row. With slices (the default) the tokens of what is followed are read again, its documents decoded and
    hashed; with all every file on the way is hashed, too, and the source range; with none nothing is, and nothing
    proven. Exit status 1 when any link is unproven, 4 when nothing was recomputed.
    """
    from casebits_dagster.lineage import ask, prov, render
    from casebits_dagster.records.withdrawal import load_withdrawals

    pins, wanted = pins_of(options), _question(options)
    generations = {name: load_generation(pins, name) for name in generation_names(pins)}
    withdrawals = load_withdrawals(pins) if wanted.withdrawn else {}
    found = ask.audit(
        home_of(options), wanted, generations=generations, recompute=options.recompute, withdrawals=withdrawals
    )
    if options.format == "json":
        print(found.to_bytes().decode(), end="")
    else:
        writers = {
            "text": render.audit_text,
            "markdown": render.audit_markdown,
            "html": render.audit_html,
            "prov": prov.audit_prov,
        }
        print(writers[options.format](found), end="")
    return OK if found.proven else REFUSED if found.failures else UNDECIDED


def _question(options: argparse.Namespace) -> Question:
    """Return what the options ask. Ends the program with the usage when they do not fit together."""
    from casebits_dagster.lineage.asked import asked
    from casebits_dagster.records.errors import RecordError

    names = ("mix", "window", "shard", "tokens", "region", "document", "source_row", "withdrawn")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    try:
        return asked(**given)
    except RecordError as error:
        options.usage_error(error)
        raise


def report(options: argparse.Namespace) -> int:
    """write one page that tells of a mix, to be mailed

    Shares, lengths, context, sources and licences, and audits of ten windows picked by --seed. It needs nothing else:
    no script, no other file, no network. Exit status 1 when a window is unproven.
    """
    from casebits_dagster.lineage.mix_page import write_mix_page

    pins = pins_of(options)
    generations = {name: load_generation(pins, name) for name in generation_names(pins)}
    proven = write_mix_page(home_of(options), options.mix, options.out, generations=generations, seed=options.seed)
    print(f"{options.out}: {options.out.stat().st_size:,} bytes, {'proven' if proven else 'UNPROVEN'}")
    return OK if proven else REFUSED
