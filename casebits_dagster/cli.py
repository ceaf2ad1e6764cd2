"""`casebits`: build the sample corpus, look at it, verify it, read it, and ask where a window came from.

Every command works on the files below the home; only `demo` needs Dagster, and imports it when it is asked to.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import inspect
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from casebits_dagster.lineage.mix_summary import context_lines, mix_lines
from casebits_dagster.lineage.places import NAME, find_folder, find_region, is_name, listable
from casebits_dagster.lineage.published import require_same_admission
from casebits_dagster.lineage.status import status_lines
from casebits_dagster.lineage.summary import error_line, generation_lines
from casebits_dagster.records.digests import sha256_file
from casebits_dagster.records.errors import Absent, CasebitsError, RecordError, Refused
from casebits_dagster.records.layout import ADMISSION, RECEIPT, Home, home_from_environment
from casebits_dagster.records.pins import default_pins_folder, generation_names, load_generation
from casebits_dagster.records.region import Receipt

OK, REFUSED, BAD_INPUT, ABSENT = 0, 1, 2, 3
EXIT_STATUS = {
    OK: "done; what was asked is proven",
    REFUSED: "refused: something does not verify or is not admitted, or a link of an audit is unproven",
    BAD_INPUT: "usage, or an input (a pin, an argument, a file) that is not well formed or cannot be read",
    ABSENT: "absent: what was asked for is not there",
}

_EPILOG = f"""\
a first walk:
  casebits demo                                    build the sample corpus and two mixes
  casebits status                                  what there is, and what is missing
  casebits read sample/00003 --document 0          the text of one document
  casebits verify region sample/00003              prove one region again, from its source
  casebits verify frontier sample                  check every file that the frontier names
  casebits audit --mix sample_aligned --window 7   follow one training window to its source rows

exit status:
{chr(10).join(f"  {status}  {meaning}" for status, meaning in EXIT_STATUS.items())}

environment:
  CASEBITS_HOME  where everything is kept when --home is not given (default: .casebits)
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


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        print(f"casebits-dagster {importlib.metadata.version('casebits-dagster')}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    raw, about = argparse.RawDescriptionHelpFormatter, "Proven, packed pre-training corpora from pinned text sources."
    parser = argparse.ArgumentParser(prog="casebits", description=about, epilog=_EPILOG, formatter_class=raw)
    parser.add_argument("--home", type=_path, metavar="DIR", help="where everything is kept (default: $CASEBITS_HOME)")
    parser.add_argument("--pins", type=_path, metavar="DIR", help="the pins (default: assets/pins of the checkout)")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")

    def add(name: str, command: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        """Add a command. Its docstring is its help; the first line of it stands in the list of commands."""
        text = inspect.cleandoc(command.__doc__ or "")
        added = commands.add_parser(name, help=text.partition("\n")[0], description=text, formatter_class=raw)
        added.set_defaults(command=command, usage_error=added.error)
        return added

    add("demo", _demo)
    add("status", _status)
    plan = add("plan", _plan)
    plan.add_argument("generation", type=_name, metavar="GENERATION", help="name of a pinned generation")
    plan.add_argument("--all", action="store_true", help="list every region, not the first ones alone")
    verify = add("verify", _verify)
    verify.add_argument("kind", choices=("region", "frontier", "mix"), help="what to verify")
    verify.add_argument("path", type=_text, metavar="PATH", help="its name below the home, or its folder (./...)")
    full = "region only: examine everything where the default is a seeded sample"
    verify.add_argument("--full", action="store_true", help=full)
    read = add("read", _read)
    read.add_argument("region", type=_text, metavar="REGION", help="GENERATION/REGION below the home, or its folder")
    read.add_argument(
        "--document", type=_at_least(0), required=True, metavar="I", help="its index in the region, from 0"
    )
    audit = add("audit", _audit)
    audit.add_argument("--mix", type=_name, required=True, metavar="NAME", help="name of a mix below the home")
    audit.add_argument("--window", type=_at_least(0), required=True, metavar="K", help="number of the window, from 0")
    audit.add_argument("--format", choices=("text", "json", "markdown"), default="text")
    audit.add_argument(
        "--recompute", choices=("slices", "all"), default="slices", help="all: hash every file on the way, too"
    )
    train = add("train-codec", _train_codec)
    pinned = "its pinned source is what is trained on"
    train.add_argument("generation", type=_name, metavar="GENERATION", help=pinned)
    train.add_argument("codec", type=_name, metavar="NAME", help="name of the new folder in the pins' codecs/")
    size = f"entries of the vocabulary, at least {_LEAST_VOCABULARY}"
    train.add_argument("--size", type=_at_least(_LEAST_VOCABULARY), required=True, metavar="N", help=size)
    train.add_argument("--plain", action="store_true", help="keep the capitals in the vocabulary; no masks, no model")
    export = add("export-mixture", _export_mixture)
    where = "its name in the pins' codecs/, or a folder with its files (./.../codec)"
    export.add_argument("codec", type=_text, metavar="CODEC", help=where)
    export.add_argument("file", type=_path, metavar="FILE.npz", help="the new file; it is never overwritten")
    return parser


_NEXT = """
what next
  make ui
      the same in Dagster: the graph, its checks and plots
  {casebits} read sample/00003 --document 0
      the text of one document
  {casebits} verify region sample/00003
      prove a region again, from its source
  {casebits} audit --mix sample_aligned --window 0
      follow one training window to its source rows
  {casebits} demo
      run it again: no byte may change"""


def _program() -> str:
    """Return how this program was called, so that what it tells to type can be typed."""
    called = Path(sys.argv[0])
    return os.path.relpath(called) if called.name == "casebits" and not shutil.which("casebits") else "casebits"


def _home(options: argparse.Namespace) -> Home:
    return Home(listable(options.home.absolute() if options.home else home_from_environment()))


def _pins(options: argparse.Namespace) -> Path:
    return listable(options.pins.absolute() if options.pins else default_pins_folder())


def _demo(options: argparse.Namespace) -> int:
    """build the sample corpus and its mixes through Dagster, then say what came out

    Materialises every asset of generation `sample` and of its mixes in this process: filter, encode and admit each
    region, advance the frontier, stratify, build the mixes. Takes less than two minutes. Run it again and it says
    whether any byte changed. `make ui` then shows the same instance.
    """
    from casebits_dagster.definitions import build
    from casebits_dagster.orchestration.demo import run_demo

    home = _home(options)
    print(f"building generation sample and its mixes below {home.root}", flush=True)
    done = run_demo(home.root, _pins(options), lambda line: print(line, flush=True), build)
    mixes = [line for report in done.mixes.values() for line in ("", *mix_lines(report))]
    print("\n".join(["", *generation_lines(done.summary), *mixes, "", *context_lines(done.mixes), ""]))
    print(f"files      {home.root}/generations/{done.generation}/regions and {home.root}/mixes")
    print(f"           digest of all that a rerun must repeat: {done.tree_digest}")
    print(f"time       {done.seconds:.0f} s; {'first run here' if done.first_run else done.difference}")
    command = " ".join([_program(), *(["--home", str(options.home)] if options.home else [])])
    failed = "\n".join(f"FAILED     {name}: {why}" for name, why in done.failures.items())
    print(failed or _NEXT.format(casebits=command))
    return REFUSED if done.failures or done.summary.broken else OK


def _status(options: argparse.Namespace) -> int:
    """say what there is of every generation and mix

    Reads records only: nothing is hashed or proven. Use `casebits verify` for that. Exit status 1 when a record cannot
    be read; the rest is told all the same.
    """
    lines, whole = status_lines(_home(options), _pins(options))
    print("\n".join(lines))
    return OK if whole else REFUSED


def _plan(options: argparse.Namespace) -> int:
    """print the region plan of a generation and how far each region is

    It is computed again, and refused when it is not what the pin says. A state is the furthest stage with a record.
    """
    from casebits_dagster.lineage.plan import plan_lines

    generation = load_generation(_pins(options), options.generation)
    print(*plan_lines(generation, _home(options), whole=options.all), sep="\n")
    return OK


def _verify(options: argparse.Namespace) -> int:
    """verify a region, a frontier or a mix from its bytes

    region    PATH is GENERATION/REGION below the home, or a folder. An independent verifier decodes every document,
              reads the source again, and compares; what it proves must be what admission.json says.
    frontier  PATH is the name of a generation below the home, or a folder. LATEST, the manifest, its chain, and every
              file of every region that it names are hashed and cross-checked.
    mix       PATH is the name of a mix below the home, or a folder. Every token is compared with its source slice.

    What is named below the home wins; the path of a folder contains a / or starts with a dot.
    """
    if options.full and options.kind != "region":
        options.usage_error(f"--full belongs to `verify region` alone; a {options.kind} is always verified in full")
    return {"region": _verify_region, "frontier": _verify_frontier, "mix": _verify_mix}[options.kind](options)


def _verify_region(options: argparse.Namespace) -> int:
    from casebits_dagster.admission import verify_region

    folder = find_region(options.path, _home(options))
    receipt = Receipt.parse((folder / RECEIPT).read_bytes(), str(folder / RECEIPT))
    proven = verify_region(folder, load_generation(_pins(options), receipt.generation), full=options.full)
    print(f"region {receipt.generation}/{receipt.region.id}: proven from its bytes and its source")
    print(f"  {receipt.counts.documents:,} documents, {receipt.counts.tokens:,} tokens, content {receipt.content_id}")
    for check in proven.checks:
        print(f"  {check.id:<20} {check.examined:>10,} of {check.population:>10,}  {check.mode}")
    if not (folder / ADMISSION).exists():
        print(f"  not admitted yet: there is no {ADMISSION}")
        return REFUSED
    require_same_admission(folder / ADMISSION, proven)
    print(f"  {ADMISSION} says what was proven now")
    return OK


def _verify_frontier(options: argparse.Namespace) -> int:
    from casebits_dagster.publication.consume import open_frontier

    frontier = open_frontier(find_folder(options.path, _home(options).generation(options.path).root))
    frontier.verify_all()
    manifest, latest = frontier.manifest, frontier.latest
    tokens = sum(entry.tokens for entry in manifest.regions)
    print(f"frontier of {frontier.generation}: verified, every file hashed")
    print(f"  version {manifest.version}, {manifest.count} of {manifest.plan.total} regions, {latest.status}")
    print(f"  {sum(entry.documents for entry in manifest.regions):,} documents, {tokens:,} tokens")
    print(f"  manifest {frontier.manifest_sha256}\n  tree root {manifest.tree_root}")
    return OK


def _verify_mix(options: argparse.Namespace) -> int:
    from casebits_dagster.mixing.verify import verify_mix

    home = _home(options)
    verified = verify_mix(find_folder(options.path, home.mix(options.path)), home)
    recipe, train = verified.report.recipe, verified.report.train
    print(f"mix {recipe.mix}: proven, every token against its source slice")
    print(f"  {train.windows:,} windows of {recipe.sequence_length:,} tokens, {train.documents:,} documents")
    print(f"  manifest {verified.manifest_sha256}")
    for check in verified.checks:
        print(f"  {check.id:<20} {check.examined:>12,} examined")
    return OK


def _audit(options: argparse.Namespace) -> int:
    """follow one window of a mix back to its source rows

    The chain: window, segments, documents, region, receipt, admission, manifest (with an inclusion proof), source
    file and row. Each document is decoded and hashed now. The report counts the hashes that were recomputed and names
    what was not checked; json and markdown say it for every hash. Exit status 1 when any link is unproven.
    """
    from casebits_dagster.lineage.audit import audit_window
    from casebits_dagster.lineage.render import audit_markdown, audit_text

    home, pins = _home(options), _pins(options)
    generations = {name: load_generation(pins, name) for name in generation_names(pins)}
    audit = audit_window(home, options.mix, options.window, generations=generations, recompute=options.recompute)
    if options.format == "json":
        print(audit.to_bytes().decode(), end="")
    else:
        print({"text": audit_text, "markdown": audit_markdown}[options.format](audit), end="")
    return OK if audit.proven else REFUSED


def _read(options: argparse.Namespace) -> int:
    """write the text of one document to standard output

    REGION is GENERATION/REGION below the home (sample/00003), or a folder. The region's files are hashed first: text
    comes out of admitted regions only, byte for byte as it was in the source.
    """
    from casebits_dagster.codec.decode import Codec
    from casebits_dagster.publication.verify_region import verify_region_files
    from casebits_dagster.regions.read import Region

    folder = find_region(options.region, _home(options))
    pinned = verify_region_files(folder, str(folder)).receipt.pins.codec.vocab_sha256
    vocabulary = folder.parent.parent / "codec" / "vocabulary.json"
    if not vocabulary.exists():
        remedy = "advance the frontier: it puts the codec beside the regions"
        raise Absent("FILE_MISSING", str(vocabulary), "the vocabulary is not there", remedy=remedy)
    if (found := sha256_file(vocabulary)) != pinned:
        raise Refused("VOCAB_MISMATCH", str(vocabulary), expected=f"sha256 {pinned}", read=found)
    text = Region.open(folder).document(options.document, Codec.load(vocabulary.parent))
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()
    return OK


def _train_codec(options: argparse.Namespace) -> int:
    """train a lower-case vocabulary and its mask model, as a new pin

    Trains on every readable row of the generation's source and writes codec.toml, vocabulary.json and mixture.npz into
    a new folder of the pins (with --plain, no mixture). A codec is never overwritten. The same source and size give the
    same bytes on one machine.
    """
    from casebits_dagster.sources.training import train_from_source

    pins = _pins(options)
    folder = pins / "codecs" / options.codec
    pin = train_from_source(
        pins,
        options.generation,
        folder,
        options.size,
        plain=options.plain,
        progress=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(f"codec {pin.codec}: {pin.vocabulary_size} entries\n  vocabulary {pin.vocabulary_sha256}")
    print(f"  mixture    {pin.mixture_sha256 or '-'}\n  in {folder}")
    return OK


def _export_mixture(options: argparse.Namespace) -> int:
    """write the model of the case masks as arrays that a model head can start from

    FILE.npz is not compressed and holds, for V ids and K components (lower, capitalised, upper, mixed):

    pi                 float32 (V, K)   share of each component in each id; rows sum to 1
    theta              float32 (K, 16)  chance that the first, second, ... letter of a token is a capital
    components         text (K,)        names of the components
    vocabulary_sha256  text ()          the vocabulary whose ids these are

    P(mask | id) = sum over k of pi[id, k] * product over the letters j of the token of theta[k, j] where the mask has
    the letter's bit, else 1 - theta[k, j]. Only ASCII letters count; their bits are those of their bytes.
    """
    from casebits_dagster.codec.decode import Codec
    from casebits_dagster.codec.mixture import COMPONENTS, Mixture
    from casebits_dagster.records.codec import CodecFiles

    folder = find_folder(options.codec, _pins(options) / "codecs" / options.codec)
    if not (path := folder / CodecFiles.MIXTURE).exists():
        raise Absent("FILE_MISSING", str(path), "the codec has no mixture to export")
    mixture, digest = Mixture.load(path, Codec.load(folder).table), sha256_file(folder / CodecFiles.VOCABULARY)
    mixture.export(options.file, digest)
    print(f"mixture of {folder.name}: {len(mixture.pi):,} ids, components {', '.join(COMPONENTS)}")
    print(f"  vocabulary {digest}\n  in {options.file}")
    return OK


if __name__ == "__main__":
    sys.exit(main())
