"""`casebits`: build the sample corpus, look at it, verify it, read it, and ask where a window came from.

Every command works on the files below the home; only `demo` needs Dagster, and imports it when it is asked to.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from casebits_dagster import auditing, exporting, published, reading
from casebits_dagster import commands as verbs
from casebits_dagster.commands import ABSENT, BAD_INPUT, OK, REFUSED, UNDECIDED
from casebits_dagster.lineage.places import NAME, is_name
from casebits_dagster.lineage.summary import error_line
from casebits_dagster.records.errors import Absent, CasebitsError, RecordError

__all__ = ["ABSENT", "BAD_INPUT", "EXIT_STATUS", "OK", "REFUSED", "UNDECIDED", "main"]
EXIT_STATUS = {
    OK: "done; what was asked is proven",
    REFUSED: "refused: something does not verify or is not admitted, or a link of an audit is unproven",
    BAD_INPUT: "usage, or an input (a pin, an argument, a file) that is not well formed or cannot be read",
    ABSENT: "absent: what was asked for is not there",
    UNDECIDED: "undecided: `coherence` cannot tell from so few tokens, or `audit --recompute none` proved nothing",
}

_EPILOG = f"""\
a first walk:
  casebits demo                                    build the sample corpus and its mixes
  casebits status                                  what there is, and what is missing
  casebits read sample/00003 --document 0          the text of one document
  casebits verify region sample/00003              prove one region again, from its source
  casebits verify frontier sample                  check every file that the frontier names
  casebits audit --mix sample_aligned --window 7   follow one training window to its source rows

exit status:
{chr(10).join(f"  {status}  {meaning}" for status, meaning in EXIT_STATUS.items())}

environment:
  CASEBITS_HOME   where everything is kept when --home is not given (default: .casebits)
  CASEBITS_STORE  s3://bucket/prefix of the store that several machines share (default: none)
  CASEBITS_CACHE  where publications that are read from s3:// or hf:// are kept (default: ~/.cache/casebits)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. Errors are one text on stderr, without a traceback."""
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        status = command(options)
        sys.stdout.flush()
    except CasebitsError as error:
        print(f"casebits: {error}", file=sys.stderr)
        return _status_of(error)
    except BrokenPipeError:
        # The reader went away (`casebits plan sample | head -1`): what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except OSError as error:
        print(f"casebits: {error_line(error)}", file=sys.stderr)
        return BAD_INPUT
    return status


def _status_of(error: CasebitsError) -> int:
    if isinstance(error, Absent):
        return ABSENT
    return BAD_INPUT if isinstance(error, RecordError) or error.code.startswith("PIN_") else REFUSED


Add: TypeAlias = Callable[[str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]
_LEAST_VOCABULARY = 257  # 256 bytes and the end marker


def _name(text: str) -> str:
    if not is_name(text):
        raise argparse.ArgumentTypeError(f"expected {NAME.meaning}, read {text!r}")
    return text


def _text(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("it is empty")
    return text


def _path(text: str) -> Path:
    return Path(_text(text))


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if (found := int(text)) < least:
            raise argparse.ArgumentTypeError(f"expected {least} or more, read {text}")
        return found

    return number


def _loss(text: str) -> float:
    if not 0 <= (found := float(text)) < float("inf"):
        raise argparse.ArgumentTypeError(f"expected nats a token, read {text}")
    return found


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        print(f"casebits-dagster {importlib.metadata.version('casebits-dagster')}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    raw, about = argparse.RawDescriptionHelpFormatter, "Proven, packed pre-training corpora from pinned text sources."
    parser = argparse.ArgumentParser(prog="casebits", description=about, epilog=_EPILOG, formatter_class=raw)
    parser.add_argument("--home", type=_path, metavar="DIR", help="where everything is kept (default: $CASEBITS_HOME)")
    parser.add_argument("--pins", type=_path, metavar="DIR", help="the pins (default: $CASEBITS_PINS, or assets/pins)")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")

    def add(name: str, command: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        """Add a command. Its docstring is its help; the first line of it stands in the list of commands."""
        text = inspect.cleandoc(command.__doc__ or "")
        added = commands.add_parser(name, help=text.partition("\n")[0], description=text, formatter_class=raw)
        added.set_defaults(command=command, usage_error=added.error)
        return added

    add("demo", verbs.demo)
    _looking(add)
    _giving(add)
    _making(add)
    return parser


def _looking(add: Add) -> None:
    """What is there, whether it is proven, and where it comes from."""
    add("status", verbs.status)
    plan = add("plan", verbs.plan)
    plan.add_argument("generation", type=_name, metavar="GENERATION", help="name of a pinned generation")
    plan.add_argument("--all", action="store_true", help="list every region, not the first ones alone")
    verify = add("verify", verbs.verify)
    verify.add_argument("kind", choices=("region", "frontier", "mix"), help="what to verify")
    verify.add_argument("path", type=_text, metavar="PATH", help="its name below the home, or its folder (./...)")
    full = "region only: examine everything where the default is a seeded sample"
    verify.add_argument("--full", action="store_true", help=full)
    read = add("read", verbs.read)
    read.add_argument("region", type=_text, metavar="REGION", help="GENERATION/REGION below the home, or its folder")
    read.add_argument(
        "--document", type=_at_least(0), required=True, metavar="I", help="its index in the region, from 0"
    )
    _audit_arguments(add("audit", auditing.audit))
    report = add("report", auditing.report)
    report.add_argument("--mix", type=_name, required=True, metavar="NAME", help="name of a mix below the home")
    report.add_argument("--out", type=_path, required=True, metavar="FILE.html", help="the page; it is overwritten")
    report.add_argument("--seed", default="", help="picks the ten windows (default: the mix's own)")
    show = add("show", reading.show)
    show.add_argument("--mix", type=_name, required=True, metavar="NAME", help="name of a mix below the home")
    show.add_argument("--window", type=_at_least(0), required=True, metavar="K", help="number of the window, from 0")
    show.add_argument("--split", choices=("train", "val"), default="train")
    show.add_argument("--format", choices=("text", "json"), default="text")
    diff = add("mix-diff", verbs.mix_diff)
    for name in ("a", "b"):
        diff.add_argument(name, type=_text, metavar=name.upper(), help="name of a mix below the home, or its folder")
    diff.add_argument("--json", action="store_true", help="one canonical JSON record")
    _coherence_arguments(add("coherence", verbs.coherence))


def _giving(add: Add) -> None:
    """What goes to others."""
    exported = add("export", exporting.export)
    named = "name of a mix below the home, its folder, s3:// or hf://"
    exported.add_argument("mix", type=_text, metavar="MIX", help=named)
    exported.add_argument("--format", choices=("nanogpt", "megatron", "datasets"), required=True)
    layout = "default: windows of nanogpt, else documents"
    exported.add_argument("--layout", choices=("windows", "documents"), help=layout)
    exported.add_argument("--to", type=_path, required=True, metavar="DIR", help="the new folder; never overwritten")
    codec = "name in the pins' codecs/, or a folder (default: the home's)"
    exported.add_argument("--codec", type=_text, metavar="CODEC", help=codec)
    gates = add("gates", published.gates)
    gates.add_argument("generation", type=_name, metavar="GENERATION", help="name of a pinned generation")
    publish = add("publish", published.publish)
    publish.add_argument("what", type=_name, metavar="WHAT", help="name of a generation, or with --mix of a mix")
    publish.add_argument("--mix", action="store_true", help="WHAT is a mix below the home")
    publish.add_argument("--to", type=_text, required=True, metavar="PLACE", help="a folder, s3:// or hf://datasets/")
    days = "readers refuse it after so many days (default: never)"
    publish.add_argument("--valid-days", type=_at_least(1), metavar="N", help=days)


def _making(add: Add) -> None:
    """What pins are made of."""
    train = add("train-codec", verbs.train_codec)
    pinned = "its pinned source is what is trained on"
    train.add_argument("generation", type=_name, metavar="GENERATION", help=pinned)
    train.add_argument("codec", type=_name, metavar="NAME", help="name of the new folder in the pins' codecs/")
    size = f"entries of the vocabulary, at least {_LEAST_VOCABULARY}"
    train.add_argument("--size", type=_at_least(_LEAST_VOCABULARY), required=True, metavar="N", help=size)
    train.add_argument("--plain", action="store_true", help="keep the capitals in the vocabulary; no masks, no model")
    export = add("export-mixture", verbs.export_mixture)
    where = "its name in the pins' codecs/, or a folder with its files (./.../codec)"
    export.add_argument("codec", type=_text, metavar="CODEC", help=where)
    export.add_argument("file", type=_path, metavar="FILE.npz", help="the new file; it is never overwritten")


def _audit_arguments(audit: argparse.ArgumentParser) -> None:
    audit.add_argument("--mix", type=_name, metavar="NAME", help="name of a mix below the home")
    audit.add_argument("--window", type=_at_least(0), metavar="K", help="of the mix: one window, from 0")
    audit.add_argument("--shard", type=_at_least(0), metavar="N", help="of the mix: one shard, from 0")
    audit.add_argument("--tokens", type=_text, metavar="A:B", help="of the mix: tokens A up to B of the train stream")
    audit.add_argument("--region", type=_text, metavar="GEN/IDX", help="a region")
    audit.add_argument("--document", type=_text, metavar="ID", help="a document id, 32 hex digits")
    audit.add_argument("--source-row", nargs=3, metavar=("GEN", "FILE", "ROW"), help="a row of a source")
    audit.add_argument("--withdrawn", action="store_true", help="all that withdrawals/ names")
    audit.add_argument("--format", choices=auditing.FORMATS, default="text")
    every = "all: every file; none: nothing (default: slices)"
    audit.add_argument("--recompute", choices=auditing.RECOMPUTE, default="slices", help=every)


def _coherence_arguments(coherence: argparse.ArgumentParser) -> None:
    coherence.add_argument("file", type=_path, metavar="FILE", help="a flat file of ids, or an .npy")
    coherence.add_argument("--dtype", choices=("u2", "u4"), help="little-endian; needed but for an .npy")
    coherence.add_argument("--separator", type=_at_least(0), metavar="ID", help="8 tokens that hold it do not count")
    size = "ids are below it (default: one more than the largest)"
    coherence.add_argument("--vocabulary-size", type=_at_least(1), metavar="V", help=size)
    chunk = "what a verdict is given on: a multiple of 1,024 (the default)"
    coherence.add_argument("--chunk-tokens", type=_at_least(1), default=1024, metavar="N", help=chunk)
    coherence.add_argument("--seed", type=_at_least(0), default=0, metavar="S", help="of the shuffles (default 0)")
    coherence.add_argument("--observed-loss", type=_loss, metavar="L", help="nats a token: say what a run has learned")
    coherence.add_argument("--format", choices=("text", "json"), default="text")
    coherence.add_argument("--plot", type=_path, metavar="FILE.png", help="draw the order of every chunk")


if __name__ == "__main__":
    sys.exit(main())
