"""The verbs of `casebits`. Each takes its parsed options, prints, and returns the exit status.

A verb's docstring is its help. What only one of them needs is imported when it runs: Dagster by `demo` alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from casebits_dagster.lineage.mix_summary import context_lines, mix_lines
from casebits_dagster.lineage.places import find_folder, find_region, listable
from casebits_dagster.lineage.published import require_same_admission
from casebits_dagster.lineage.status import status_lines
from casebits_dagster.lineage.summary import generation_lines
from casebits_dagster.records.digests import sha256_file
from casebits_dagster.records.errors import Absent, Refused
from casebits_dagster.records.layout import (
    ADMISSION,
    LATEST,
    RECEIPT,
    Home,
    home_from_environment,
    shared_from_environment,
)
from casebits_dagster.records.pins import default_pins_folder, load_generation
from casebits_dagster.records.region import Receipt

OK, REFUSED, BAD_INPUT, ABSENT, UNDECIDED = range(5)

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


def program() -> str:
    """Return how this program was called, so that what it tells to type can be typed."""
    called = Path(sys.argv[0])
    return os.path.relpath(called) if called.name == "casebits" and not shutil.which("casebits") else "casebits"


def home_of(options: argparse.Namespace) -> Home:
    root = listable(options.home.absolute() if options.home else home_from_environment())
    return Home(root, shared_from_environment())


def pins_of(options: argparse.Namespace) -> Path:
    return listable(options.pins.absolute() if options.pins else default_pins_folder())


def demo(options: argparse.Namespace) -> int:
    """build the sample corpus and its mixes through Dagster, then say what came out

    Materialises every asset of generation `sample` and of its mixes in this process: filter, encode and admit each
    region, advance the frontier, stratify, build the mixes. Takes less than two minutes. Run it again and it says
    whether any byte changed. `make ui` then shows the same instance.
    """
    from casebits_dagster.definitions import build
    from casebits_dagster.orchestration.demo import run_demo

    home = home_of(options)
    print(f"building generation sample and its mixes below {home.root}", flush=True)
    done = run_demo(home.root, pins_of(options), lambda line: print(line, flush=True), build, shared=home.shared)
    mixes = [line for report in done.mixes.values() for line in ("", *mix_lines(report))]
    print("\n".join(["", *generation_lines(done.summary), *mixes, "", *context_lines(done.mixes), ""]))
    print(f"files      {home.root}/generations/{done.generation}/regions and {home.root}/mixes")
    print(f"           digest of all that a rerun must repeat: {done.tree_digest}")
    print(f"time       {done.seconds:.0f} s; {'first run here' if done.first_run else done.difference}")
    command = " ".join([program(), *(["--home", str(options.home)] if options.home else [])])
    failed = "\n".join(f"FAILED     {name}: {why}" for name, why in done.failures.items())
    print(failed or _NEXT.format(casebits=command))
    return REFUSED if done.failures or done.summary.broken else OK


def status(options: argparse.Namespace) -> int:
    """say what there is of every generation and mix

    Reads records only: nothing is hashed or proven. Use `casebits verify` for that. Exit status 1 when a record cannot
    be read; the rest is told all the same.
    """
    lines, whole = status_lines(home_of(options), pins_of(options))
    print("\n".join(lines))
    return OK if whole else REFUSED


def plan(options: argparse.Namespace) -> int:
    """print the region plan of a generation and how far each region is

    It is computed again, and refused when it is not what the pin says. A state is the furthest stage with a record.
    """
    from casebits_dagster.lineage.plan import plan_lines

    generation = load_generation(pins_of(options), options.generation)
    print(*plan_lines(generation, home_of(options), whole=options.all), sep="\n")
    return OK


def verify(options: argparse.Namespace) -> int:
    """verify a region, a frontier or a mix from its bytes

    region    PATH is GENERATION/REGION below the home, or a folder. An independent verifier decodes every document,
              reads the source again, and compares; what it proves must be what admission.json says.
    frontier  PATH is the name of a generation below the home, a folder, s3://bucket/prefix or
              hf://datasets/OWNER/NAME. LATEST, the manifest, its chain, the gates with their evidence, and every file
              of every region that it names are hashed and cross-checked. Of a remote place all that is fetched, and
              what was seen is remembered: an older version, or another one of the same number, is refused.
    mix       PATH is the name of a mix below the home, or its folder. Every token is compared with its source slice.
              Of a mix that is published elsewhere (a folder with LATEST.json, s3:// or hf://) every file is hashed.

    What is named below the home wins; the path of a folder contains a / or starts with a dot.
    """
    if options.full and options.kind != "region":
        options.usage_error(f"--full belongs to `verify region` alone; a {options.kind} is always verified in full")
    return {"region": _verify_region, "frontier": _verify_frontier, "mix": _verify_mix}[options.kind](options)


def _verify_region(options: argparse.Namespace) -> int:
    from casebits_dagster.admission import verify_region

    folder = find_region(options.path, home_of(options))
    receipt = Receipt.parse((folder / RECEIPT).read_bytes(), str(folder / RECEIPT))
    proven = verify_region(folder, load_generation(pins_of(options), receipt.generation), full=options.full)
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

    frontier = open_frontier(_location(options.path, home_of(options).generation(options.path).root))
    frontier.verify_all()
    manifest, latest = frontier.manifest, frontier.latest
    tokens = sum(entry.tokens for entry in manifest.regions)
    print(f"frontier of {frontier.generation}: verified, every file hashed")
    print(f"  version {manifest.version}, {manifest.count} of {manifest.plan.total} regions, {latest.status}")
    print(f"  {sum(entry.documents for entry in manifest.regions):,} documents, {tokens:,} tokens")
    print(f"  manifest {frontier.manifest_sha256}\n  tree root {manifest.tree_root}")
    if frontier.gates is None:
        print("  no gate was evaluated: nothing is said of coverage, stratification, packing and production")
    for line in frontier.gates.lines if frontier.gates else ():
        print(f"  {line}")
    return OK


def _verify_mix(options: argparse.Namespace) -> int:
    from casebits_dagster.mixing.verify import verify_mix
    from casebits_dagster.publication.open_gates import keep_verdict

    home = home_of(options)
    location = _location(options.path, home.mix(options.path))
    if not isinstance(location, Path) or (location / LATEST).exists():
        return _verify_published_mix(location)
    verified = verify_mix(location, home)
    if location == home.mix(verified.report.recipe.mix):
        keep_verdict(verified, home)
    recipe, train = verified.report.recipe, verified.report.train
    print(f"mix {recipe.mix}: proven, every token against its source slice")
    print(f"  {train.windows:,} windows of {recipe.sequence_length:,} tokens, {train.documents:,} documents")
    print(f"  manifest {verified.manifest_sha256}")
    for check in verified.checks:
        print(f"  {check.id:<20} {check.examined:>12,} examined")
    return OK


def _verify_published_mix(location: str | Path) -> int:
    from casebits_dagster.publication.open_mix import open_mix

    mix = open_mix(location)
    mix.verify_all()
    recipe, train = mix.report.recipe, mix.report.train
    print(f"mix {recipe.mix}: verified, every one of its {len(mix.files)} files hashed")
    print(f"  version {mix.latest.version if mix.latest else '-'}, manifest {mix.manifest_sha256}")
    print(f"  {train.windows:,} windows of {recipe.sequence_length:,} tokens, {train.documents:,} documents")
    print(
        "  not compared with its sources: that takes their frontiers (`casebits verify mix` in the home that built it)"
    )
    return OK


def _location(text: str, named: Path) -> str | Path:
    """Return a remote location as it is, else the folder that the text means."""
    return text if "://" in text else find_folder(text, named)


def mix_diff(options: argparse.Namespace) -> int:
    """say what differs between two mixes

    Recipe keys, sources, documents in one of them alone or in both, shares by domain and length, windows, context.
    Reads reports and tables only: nothing is hashed or proven.
    """
    from casebits_dagster.lineage import mix_diff as differences

    home = home_of(options)
    a, b = (find_folder(name, home.mix(name)) for name in (options.a, options.b))
    found = differences.mix_diff(a, b)
    print(found.to_bytes().decode().rstrip() if options.json else "\n".join(differences.diff_lines(found)))
    return OK


def read(options: argparse.Namespace) -> int:
    """write the text of one document to standard output

    REGION is GENERATION/REGION below the home (sample/00003), or a folder. The region's files are hashed first: text
    comes out of admitted regions only, byte for byte as it was in the source.
    """
    from casebits_dagster.codec.decode import Codec
    from casebits_dagster.publication.verify_region import verify_region_files
    from casebits_dagster.regions.read import Region

    folder = find_region(options.region, home_of(options))
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


def train_codec(options: argparse.Namespace) -> int:
    """train a lower-case vocabulary and its mask model, as a new pin

    Trains on every readable row of the generation's source and writes codec.toml, vocabulary.json and mixture.npz into
    a new folder of the pins (with --plain, no mixture). A codec is never overwritten. The same source and size give the
    same bytes on one machine.
    """
    from casebits_dagster.sources.training import train_from_source

    pins = pins_of(options)
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


def export_mixture(options: argparse.Namespace) -> int:
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

    folder = find_folder(options.codec, pins_of(options) / "codecs" / options.codec)
    if not (path := folder / CodecFiles.MIXTURE).exists():
        raise Absent("FILE_MISSING", str(path), "the codec has no mixture to export")
    mixture, digest = Mixture.load(path, Codec.load(folder).table), sha256_file(folder / CodecFiles.VOCABULARY)
    mixture.export(options.file, digest)
    print(f"mixture of {folder.name}: {len(mixture.pi):,} ids, components {', '.join(COMPONENTS)}")
    print(f"  vocabulary {digest}\n  in {options.file}")
    return OK


def coherence(options: argparse.Namespace) -> int:
    """say whether a file of token ids is text, or was shuffled

    For any flat file of ids: raw little-endian u2 or u4, or a one-dimensional .npy. A file whose tokens were shuffled
    inside blocks passes every check of shape, and the loss of a run on it flattens where only the frequencies of tokens
    are learned. Here every 8 tokens are compared with a shuffle of the same 8, by their pairs of neighbours.

    The verdict is the exit status:
    0  coherent    the order of the tokens shows, as in text
    1  scrambled   somewhere it does not: the tokens were shuffled, or are random; the ranges of tokens are listed
    4  undecided   too short to tell (2,048 tokens of text suffice), or nothing to shuffle, as in padding

    What is found: shuffles inside blocks of any size, of all of the file; of 5 % of it, when that is one run, or
    blocks that cover chunks (1,024 tokens from a multiple of 1,024, or 2,047 from anywhere), from 60,000 tokens on.
    What is not: a shuffle of whole documents, or of scattered smaller blocks. Of text, 1 chunk in 10,000 shows no
    order, and a few pass. Case masks are not ids. Shortly padded rows need --separator: without it, the edge of the
    padding is order, too.

    casebits coherence train_000000.bin --dtype u2 --separator 50256 --observed-loss 6.3

      train_000000.bin: scrambled: no order in 120 of 2,346 chunks (5.1%)
        tokens     2,402,890 ids of u2, the largest 50,256
        separator  50,256 stands here 1,358 times
        order      shows in 2,225 of 2,346 chunks of 1,024 tokens; 1 hold too little to tell
        without    tokens 1,201,152 to 1,324,032 (120 chunks)
        loss       nats a token, knowing nothing (50,257 ids): 10.82
                   knowing token frequencies: 6.21
                   knowing the token before, too: 3.63 to 4.32
        a token    tells of the one 1, 2, 4, 8 later, nats over a shuffle: 1.89, 1.37, 0.97, 0.77
        observed   6.3: has learned token frequencies only
    """
    from casebits_dagster.mixing.coherence import examine
    from casebits_dagster.mixing.coherence_report import text_lines, to_json, write_plot
    from casebits_dagster.mixing.token_file import open_token_file

    found = examine(
        open_token_file(options.file, options.dtype),
        chunk_tokens=options.chunk_tokens,
        seed=options.seed,
        separator=options.separator,
        vocabulary_size=options.vocabulary_size,
        progress=lambda line: print(line, file=sys.stderr, flush=True),
    )
    if options.plot:
        write_plot(found, options.plot)
    if options.format == "json":
        print(to_json(found, options.observed_loss))
    else:
        print(*text_lines(found, options.observed_loss), sep="\n")
    return {"coherent": OK, "scrambled": REFUSED, "undecided": UNDECIDED}[found.verdict]
