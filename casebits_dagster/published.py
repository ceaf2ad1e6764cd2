"""The verbs of `casebits` that give a frontier or a mix to others. Written like those of `commands`."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta

from casebits_dagster.commands import OK, home_of, pins_of, program
from casebits_dagster.records.pins import generation_names, load_generation


def publish(options: argparse.Namespace) -> int:
    """publish a frontier or a mix for others to read

    WHAT is the name of a generation below the home, or with --mix that of a mix; --to is a folder, s3://bucket/prefix
    or hf://datasets/OWNER/NAME (made as a private dataset when it is not there). Every file is hashed as it
    leaves. Regions and manifest are there before LATEST.json names them, so a reader never sees half of it; what was
    cut off is completed by the same command. Nothing leaves without a clearance pin for the source. Tokens are read
    from the environment (HF_TOKEN, AWS_*).
    """
    from casebits_dagster.publication.send import publish_frontier, publish_mix

    home, pins, now = home_of(options), pins_of(options), datetime.now(UTC)
    valid = timedelta(days=options.valid_days) if options.valid_days else None
    if options.mix:
        generations = [load_generation(pins, name) for name in generation_names(pins)]
        sent = publish_mix(options.what, generations, home, options.to, now=now, valid=valid)
    else:
        sent = publish_frontier(load_generation(pins, options.what), home, options.to, now=now, valid=valid)
    print(f"{sent.name}, version {sent.version}: {sent.files:,} files, {sent.size_bytes:,} bytes at {sent.destination}")
    print(f"  sent now: {sent.published.sent_files:,} files, {sent.published.sent_bytes:,} bytes")
    print(f"  {'LATEST.json names it now' if sent.published.changed else 'it stood there before: nothing changed'}")
    print(f"  a reader verifies it with: {program()} verify {'mix' if options.mix else 'frontier'} {options.to}")
    return OK


def gates(options: argparse.Namespace) -> int:
    """evaluate the gates of a frontier and publish them beside it

    Coverage, stratification, packing and production: each is open when its evidence says so, and closed with the reason
    otherwise. The packing gate rests on `casebits verify mix`, the production gate on a pin that a person signs.
    """
    from casebits_dagster.publication.open_gates import write_gates

    done = write_gates(load_generation(pins_of(options), options.generation), home_of(options))
    print(*done.gates.lines, sep="\n")
    return OK
