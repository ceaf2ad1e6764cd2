"""`casebits`: what it prints, where it prints it, and its exit status."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from casebits_dagster import cli
from casebits_dagster.cli import main
from casebits_dagster.lineage.records import WindowAudit
from casebits_dagster.lineage.summary import summarise
from casebits_dagster.orchestration import demo
from casebits_dagster.orchestration.demo import Build, DemoResult
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.layout import ADMISSION, DOCUMENTS, IDS, RECEIPT, Home
from casebits_dagster.records.mix import REPORT
from casebits_dagster.records.pins import load_generation
from tests.mixing.streams import CLUSTERS, sample_stream, shuffle_blocks
from tests.sample import mix_reports

Output = pytest.CaptureFixture[str]


def _run(output: Output, home: Home, *arguments: str) -> tuple[int, str, str]:
    status = main(["--home", str(home.root), *arguments])
    said = output.readouterr()
    return status, said.out, said.err


@pytest.fixture
def copy(sample_home: Home, home: Home) -> Home:
    """A copy of the sample home, to be tampered with."""
    shutil.copytree(sample_home.root, home.root)
    return home


def test_help_teaches(capsys: Output) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    said = capsys.readouterr().out
    assert caught.value.code == 0
    for part in ("a first walk:", "exit status:", "environment:", *cli.EXIT_STATUS.values()):
        assert part in said


@pytest.mark.parametrize(
    "command",
    [
        "demo",
        "status",
        "plan",
        "verify",
        "read",
        "audit",
        "gates",
        "publish",
        "train-codec",
        "export-mixture",
        "coherence",
        "mix-diff",
    ],
)
def test_every_command_explains_itself(capsys: Output, command: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    paragraphs = capsys.readouterr().out.split("\n\n")
    assert (caught.value.code, len(paragraphs) >= 4) == (0, True)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nothing"],
        ["read", "sample/00000"],
        ["verify", "shard", "x"],
        ["--home", "", "status"],
        ["--pins", "", "status"],
        ["plan", "../sample"],
        ["read", "", "--document", "0"],
        ["read", "sample/00000", "--document", "-1"],
        ["verify", "mix", ""],
        ["verify", "frontier", "sample", "--full"],
        ["verify", "mix", "sample_aligned", "--full"],
        ["audit", "--mix", "../mixes/sample_aligned", "--window", "0"],
        ["audit", "--mix", "sample_aligned", "--window", "-1"],
        ["train-codec", "sample", "../small", "--size", "300"],
        ["train-codec", "./sample", "small", "--size", "300"],
        ["train-codec", "sample", "small", "--size", "256"],
        ["train-codec", "sample", "small", "--size", "many"],
        ["coherence", "", "--dtype", "u2"],
        ["coherence", "x.bin", "--dtype", "u8"],
        ["coherence", "x.bin", "--dtype", "u2", "--separator", "-1"],
        ["coherence", "x.bin", "--dtype", "u2", "--vocabulary-size", "0"],
        ["coherence", "x.bin", "--dtype", "u2", "--observed-loss", "nan"],
        ["coherence", "x.bin", "--dtype", "u2", "--format", "markdown"],
    ],
)
def test_usage_is_exit_status_2(capsys: Output, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    said = capsys.readouterr()
    assert (caught.value.code, said.out, "error: " in said.err) == (2, "", True)


def test_version(capsys: Output) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert (caught.value.code, capsys.readouterr().out) == (0, f"casebits-dagster {version('casebits-dagster')}\n")


@pytest.mark.parametrize(
    "arguments", [["--home", "FILE", "demo"], ["--home", "FILE/x", "status"], ["--pins", "FILE", "plan", "sample"]]
)
def test_what_cannot_be_read_is_one_line_and_exit_status_2(
    capsys: Output, tmp_path: Path, arguments: list[str]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    told = [part.replace("FILE", str(tmp_path / "file")) for part in arguments]
    status = main(told)
    said = capsys.readouterr()
    assert (status, said.out, said.err) == (2, "", f"casebits: UNREADABLE {told[1]}: Not a directory\n")


def test_a_receipt_that_is_a_folder_cannot_be_read(capsys: Output, copy: Home) -> None:
    receipt = copy.generation("sample").region(3) / RECEIPT
    receipt.unlink()
    receipt.mkdir()
    message = f"UNREADABLE {receipt}: Is a directory"
    assert _run(capsys, copy, "verify", "region", "sample/00003") == (2, "", f"casebits: {message}\n")
    status, out, _ = _run(capsys, copy, "status")
    assert (status, f"  BROKEN     {message}\n" in out) == (1, True)
    assert "  regions    14 planned, 14 filtered, 13 encoded" in out


def test_help_is_fast_and_needs_no_dagster() -> None:
    """`casebits --help` imports neither Dagster nor pyarrow."""
    code = (
        "import sys; from casebits_dagster import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: print(sorted({'dagster', 'pyarrow', 'tokenizers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_status_says_what_there_is(capsys: Output, sample_home: Home, home: Home) -> None:
    status, out, err = _run(capsys, sample_home, "status")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"home {sample_home.root}"
    assert lines[lines.index("generation sample") + 1] == (
        "  regions    14 planned, 14 filtered, 14 encoded (1 empty), 14 admitted, 0 refused"
    )
    assert "\nmix sample_aligned: " in out
    assert "  conserved  " in out
    status, out, _ = _run(capsys, home, "status")
    lines = out.splitlines()
    assert (status, lines[0], lines[-5:]) == (
        0,
        f"home {home.root}",
        [
            "  frontier   none yet: it starts when region 00000 is admitted",
            "mix sample_aligned: missing: declared, but not built",
            "mix sample_concatenated: missing: declared, but not built",
            "mix sample_interleaved: missing: declared, but not built",
            "mix sample_stratified: missing: declared, but not built",
        ],
    )
    assert lines[1].startswith("  does not exist yet: `casebits demo` builds the sample corpus there")


def test_a_broken_record_does_not_hide_the_rest(capsys: Output, copy: Home, pins: Path, tmp_path: Path) -> None:
    shutil.copytree(pins, tmp_path / "pins")
    (tmp_path / "pins/generations/other.toml").write_bytes(b"x")
    report, latest = copy.mix("sample_aligned") / REPORT, copy.generation("sample").latest
    report.write_bytes(b"{}\n")
    latest.write_bytes(b"{}\n")
    status, out, err = _run(capsys, copy, "--pins", str(tmp_path / "pins"), "status")
    broken = [line.split()[2].rstrip(":") for line in out.splitlines() if line.startswith("  BROKEN ")]
    assert (status, err) == (1, "")
    assert broken == [str(tmp_path / "pins/generations/other.toml"), str(latest), str(report)]
    assert "  regions    14 planned, 14 filtered, 14 encoded" in out
    assert "\nmix sample_concatenated: " in out


def test_plan_prints_every_region_with_its_state(capsys: Output, copy: Home) -> None:
    folder = copy.generation("sample")
    (folder.region(2) / ADMISSION).unlink()
    shutil.rmtree(folder.region(3))
    shutil.rmtree(folder.region(4))
    folder.verdicts(4).unlink()
    (folder.region(5) / ADMISSION).unlink()
    folder.rejections(5).mkdir(parents=True)
    status, out, _ = _run(capsys, copy, "plan", "sample")
    totals, _, table = out.partition("\n\n")
    rows = [line.split() for line in table.splitlines()]
    assert status == 0
    assert totals.splitlines() == [
        "generation sample: 1,358 public-domain and permissively licensed documents in ClimbMix's columns, in 14 "
        "regions.",
        "  source     sample/pd-mix at cff45be0f0ff62eb8d7946dc93ef951be47b434f",
        "             1 file, 2,718,487 bytes (2.6 MiB)",
        "  selected   14 regions, spelled out",
        "             1,358 rows of 1,358: 100.00 %",
        "  sha256     dcffb0bae55220fb651841fb0765b518295295391cdfa8ae7e69205f66a536c4",
    ]
    assert rows[0] == ["region", "state", "begin", "end", "unit", "file"]
    assert rows[1] == ["00000", "admitted", "0", "110", "rows", "pd_mix.parquet"]
    assert [row[1] for row in rows[1:8]] == [
        "admitted", "admitted", "encoded", "filtered", "planned", "refused", "admitted",
    ]  # fmt: skip
    assert len(rows) == 15


def test_plan_of_the_real_source_has_the_figures_of_its_pin(capsys: Output, home: Home) -> None:
    status, out, _ = _run(capsys, home, "plan", "climbmix-lower32k-v1")
    lines = out.splitlines()
    assert status == 0
    assert lines[1:11] == [
        "  source     nvidia/Nemotron-ClimbMix at 5eaa64b9c0c85b7f56af01d7dffdb0795816b12b",
        "             100 files, 1,987,970,304,099 bytes (1.8 TiB)",
        "  cut into   7,457 regions of 268,435,456 bytes (256.0 MiB) each, in the order of a salted hash",
        "  selected   2,100 regions, 22 of them short tails of a file",
        "             560,351,531,447 bytes (521.9 GiB) of 1,987,970,304,099: 28.19 %",
        "  sha256     0226c5e172a5d8e97390ff231ffad66a9599350b4477a60af80b60b3e09c28a2, computed again now: as pinned",
        "",
        "region  state            begin         end  unit  file",
        "00000   planned    20401094656 20669530112  bytes part_31.tokenized.jsonl",
        "00001   planned    10200547328 10468982784  bytes part_70.tokenized.jsonl",
    ]
    assert (len(lines), lines[-1]) == (30, "... and 2,080 more: --all lists them")
    status, out, _ = _run(capsys, home, "plan", "climbmix-lower32k-v1", "--all")
    assert (status, len(out.splitlines()), out.splitlines()[-1].split()[0]) == (0, 2109, "02099")


@pytest.fixture
def other_pins(pins: Path, tmp_path: Path) -> Path:
    """The sample's pins alone, to be changed."""
    for name in ("filters", "codecs/sample-lower-8192"):
        shutil.copytree(pins / name, tmp_path / "pins" / name)
    (tmp_path / "pins/generations").mkdir()
    shutil.copy(pins / "generations/sample.toml", tmp_path / "pins/generations")
    return tmp_path / "pins"


def test_plan_says_what_its_regions_leave_out(capsys: Output, home: Home, other_pins: Path) -> None:
    path = other_pins / "generations/sample.toml"
    text = path.read_text().replace("folder", "dataset").replace('location = "sample"\n', "")
    text = text.replace("cuts = [0, 110,", "cuts = [10, 110,").replace("1300, 1358]", "1300]")
    unread = (
        '[[source.files]]\npath = "b.parquet"\nbytes = 7\n\n[[source.files]]\npath = "c.parquet"\nbytes = 1\nrows = 2\n'
    )
    part = '\n[[regions]]\npath = "c.parquet"\ncuts = [0, 2]\n'
    path.write_text(text.replace("[split]", f"{unread}\n[split]") + part)
    status, out, _ = _run(capsys, home, "--pins", str(other_pins), "plan", "sample")
    assert status == 0
    assert out.splitlines()[2:7] == [
        "             3 files, 2,718,495 bytes (2.6 MiB)",
        "  selected   14 regions, spelled out",
        "  left out   pd_mix.parquet: rows [0, 10) [1,300, 1,358)",
        "  left out   b.parquet: all of it",
        "             1,292 rows of 1,360: 95.00 %",
    ]


def test_a_plan_that_is_not_the_pinned_one_is_refused(capsys: Output, home: Home, other_pins: Path, pins: Path) -> None:
    for name in ("sources", "filters", "codecs/climbmix-lower-32768"):
        shutil.copytree(pins / name, other_pins / name, dirs_exist_ok=True)
    path = other_pins / "generations/climbmix-lower32k-v1.toml"
    path.write_text((pins / "generations" / path.name).read_text().replace("selected = 2100", "selected = 2101"))
    status, out, err = _run(capsys, home, "--pins", str(other_pins), "plan", path.stem)
    line = 1 + path.read_text().splitlines().index("selected_bytes = 560351531447")
    assert (status, out, err) == (
        2,
        "",
        f"casebits: PIN_INVALID {path}: line {line}: plan.selected_bytes: expected 560619966903, read 560351531447 "
        "(pins are written once: declare a change as a new file)\n",
    )


@pytest.mark.parametrize("supplied", [b"", None])
def test_a_generation_without_its_vocabulary_is_planned_and_says_what_it_needs(
    capsys: Output, home: Home, other_pins: Path, supplied: bytes | None
) -> None:
    path = other_pins / "codecs/sample-lower-8192/vocabulary.json"
    pinned = sha256(path.read_bytes())
    path.unlink()
    why = (
        f"PIN_MISSING {path}: the pinned file cannot be read: No such file or directory "
        f"(put the file whose sha256 is {pinned} there; any other is refused)"
    )
    if supplied is not None:
        path.write_bytes(supplied)
        other = f"expected sha256 {pinned}, read {sha256(supplied)}"
        why = f"PIN_HASH {path}: {other} (put the file that is expected there; any other is refused)"
    asked = ("--pins", str(other_pins))
    status, out, _ = _run(capsys, home, *asked, "status")
    assert (status, out.splitlines()[-1]) == (0, f"  cannot run {why}")
    status, out, _ = _run(capsys, home, *asked, "plan", "sample")
    assert (status, out.splitlines()[6]) == (0, f"  cannot run {why}")


def test_read_writes_the_text_of_one_document(capfdbinary: pytest.CaptureFixture[bytes], sample_home: Home) -> None:
    folder = sample_home.generation("sample").region(3)
    line = json.loads((folder / DOCUMENTS).read_bytes().splitlines()[7])
    for region in ("sample/00003", str(folder)):
        assert main(["--home", str(sample_home.root), "read", region, "--document", "7"]) == 0
        text = capfdbinary.readouterr().out
        assert sha256(text)[:32] == line["id"]


def test_read_refuses_what_does_not_verify(capsys: Output, copy: Home) -> None:
    folder = copy.generation("sample").region(3)
    with (folder / IDS).open("r+b") as stream:
        stream.write(b"\xff")
    status, out, err = _run(capsys, copy, "read", "sample/00003", "--document", "0")
    assert (status, out) == (1, "")
    assert err.startswith(f"casebits: FILE_HASH {folder}/{IDS}: expected sha256 ")
    assert err.count("\n") == 1


def test_read_needs_the_vocabulary_of_the_region(capsys: Output, copy: Home) -> None:
    vocabulary = copy.generation("sample").codec / "vocabulary.json"
    vocabulary.write_bytes(vocabulary.read_bytes() + b" ")
    status, _, err = _run(capsys, copy, "read", "sample/00003", "--document", "0")
    assert (status, err.startswith(f"casebits: VOCAB_MISMATCH {vocabulary}: expected sha256 ")) == (1, True)
    vocabulary.unlink()
    status, _, err = _run(capsys, copy, "read", "sample/00003", "--document", "0")
    assert (status, err) == (
        3,
        f"casebits: FILE_MISSING {vocabulary}: the vocabulary is not there "
        "(advance the frontier: it puts the codec beside the regions)\n",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["read", "sample/00099", "--document", "0"], "REGION_MISSING sample/00099: no region is published in "),
        (
            ["read", "elsewhere", "--document", "0"],
            "REGION_MISSING elsewhere: it is neither GENERATION/REGION nor a path",
        ),
        (["read", "./elsewhere", "--document", "0"], "REGION_MISSING ./elsewhere: no region is published in "),
        (["read", "sample/00008", "--document", "0"], "the region has 0 documents"),
        (["read", "sample/00003", "--document", "73"], "the region has 73 documents"),
        (["verify", "region", "sample/00099"], "REGION_MISSING sample/00099"),
        (["verify", "frontier", "none"], "FILE_MISSING none: there is no folder "),
        (["verify", "mix", "none"], "FILE_MISSING none: there is no folder "),
        (["verify", "mix", "None"], "FILE_MISSING None: expected a name of a-z, 0-9, _, . and -, or a path with a /"),
        (["plan", "none"], "PIN_MISSING "),
        (["audit", "--mix", "none", "--window", "0"], "no mix is published here"),
        (["audit", "--mix", "sample_aligned", "--window", "100000"], "the mix has windows 0 to "),
    ],
)
def test_what_is_not_there_is_exit_status_3(
    capsys: Output, sample_home: Home, arguments: list[str], message: str
) -> None:
    status, out, err = _run(capsys, sample_home, *arguments)
    assert (status, out, message in err, err.count("\n")) == (3, "", True, 1)


@pytest.mark.parametrize("region", ["sample/00000", "sample/00008"])
def test_verify_region_proves_it_again(capsys: Output, sample_home: Home, region: str) -> None:
    status, out, err = _run(capsys, sample_home, "verify", "region", region)
    assert (status, err) == (0, "")
    assert out.splitlines()[0] == f"region {region}: proven from its bytes and its source"
    assert out.splitlines()[-1] == "  admission.json says what was proven now"


def test_verify_region_without_an_admission(capsys: Output, copy: Home) -> None:
    (copy.generation("sample").region(8) / ADMISSION).unlink()
    status, out, _ = _run(capsys, copy, "verify", "region", "sample/00008")
    assert (status, out.splitlines()[-1]) == (1, "  not admitted yet: there is no admission.json")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("no text altered", "all text altered", "ADMISSION_HASH {path}: attribution: expected "),
        ('"generation":"sample"', '"generation":"simple"', "ADMISSION_HASH {path}: generation: expected sample, "),
        ('"index":8', '"index":9', "ADMISSION_HASH {path}: region: expected "),
        ('"id":"L1_HASH"', '"id":"L1_HUSH"', "ADMISSION_HASH {path}: checks: expected "),
        ('"result":"passed"', '"result":"failed"', "JSON_INVALID {path}: checks[0].result: expected "),
        ('"verdict":"admitted"', '"verdict":"refused"', "JSON_INVALID {path}: verdict: expected "),
    ],
)
def test_verify_region_refuses_an_admission_that_says_something_else(
    capsys: Output, copy: Home, old: str, new: str, problem: str
) -> None:
    path = copy.generation("sample").region(8) / ADMISSION
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    status, _, err = _run(capsys, copy, "verify", "region", "sample/00008")
    assert (status, err.startswith(f"casebits: {problem.format(path=path)}"), err.count("\n")) == (1, True, 1)


def test_a_full_proof_after_a_sampled_one_proves_the_same(capsys: Output, sample_home: Home) -> None:
    status, out, _ = _run(capsys, sample_home, "verify", "region", "sample/00002", "--full")
    assert (status, out.splitlines()[-1]) == (0, "  admission.json says what was proven now")


def test_what_is_named_below_the_home_wins(
    capsys: Output, sample_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("sample/00008", "sample_aligned"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "sample/00008" / RECEIPT).write_bytes(b"{}\n")
    monkeypatch.chdir(tmp_path)
    assert _run(capsys, sample_home, "verify", "region", "sample/00008")[0] == 0
    assert _run(capsys, sample_home, "verify", "frontier", "sample")[0] == 0
    assert _run(capsys, sample_home, "verify", "region", "./sample/00008")[0] == 2
    status, _, err = _run(capsys, sample_home, "verify", "frontier", "./sample")
    assert (status, err.startswith("casebits: LATEST_MISSING ")) == (1, True)


def test_verify_region_names_the_check_that_fails(capsys: Output, copy: Home) -> None:
    with (copy.generation("sample").region(3) / IDS).open("r+b") as stream:
        stream.write(b"\xff")
    status, _, err = _run(capsys, copy, "verify", "region", "sample/00003")
    assert (status, err.startswith("casebits: L1_HASH ")) == (1, True)


def test_verify_frontier_and_mix(capsys: Output, sample_home: Home) -> None:
    for place in ("sample", str(sample_home.generation("sample").root)):
        status, out, _ = _run(capsys, sample_home, "verify", "frontier", place)
        assert (status, out.splitlines()[0]) == (0, "frontier of sample: verified, every file hashed")
    for place in ("sample_aligned", str(sample_home.mix("sample_aligned"))):
        status, out, _ = _run(capsys, sample_home, "verify", "mix", place)
        assert (status, out.splitlines()[0]) == (0, "mix sample_aligned: proven, every token against its source slice")


def test_verify_refuses_what_was_changed(capsys: Output, copy: Home) -> None:
    shard = copy.mix("sample_aligned") / "train_000000.ids.u16le"
    content = shard.read_bytes()
    shard.write_bytes(b"\xff\xff" + content[2:])
    assert _run(capsys, copy, "verify", "mix", "sample_aligned")[0] == 1
    copy.generation("sample").latest.write_bytes(b"{}\n")
    assert _run(capsys, copy, "verify", "frontier", "sample")[0] == 1


def test_audit_in_its_three_forms(capsys: Output, sample_home: Home) -> None:
    asked = ("audit", "--mix", "sample_aligned", "--window", "7", "--format")
    status, text, _ = _run(capsys, sample_home, *asked, "text")
    assert (status, text.splitlines()[0]) == (0, "window 7 of mix sample_aligned (aligned): proven.")
    status, page, _ = _run(capsys, sample_home, *asked, "markdown")
    assert (status, page.splitlines()[0]) == (0, "# Window 7 of mix sample_aligned")
    status, record, _ = _run(capsys, sample_home, *asked, "json")
    audit = WindowAudit.parse(record.encode(), "audit")
    assert (status, audit.window, audit.proven) == (0, 7, True)


def test_an_audit_that_is_not_proven_is_exit_status_1(capsys: Output, copy: Home) -> None:
    (copy.generation("sample").codec / "mixture.npz").write_bytes(b"")
    status, out, err = _run(capsys, copy, "audit", "--mix", "sample_aligned", "--window", "7")
    assert (status, err) == (1, "")
    assert "  FAILED codec, sample/codec/mixture.npz: expected " in out


def test_a_pin_that_is_not_well_formed_is_exit_status_2(
    capsys: Output, sample_home: Home, pins: Path, tmp_path: Path
) -> None:
    for name in ("generations", "filters", "codecs"):
        shutil.copytree(pins / name, tmp_path / "pins" / name)
    path = tmp_path / "pins/generations/sample.toml"
    path.write_text(path.read_text().replace("codec =", "codek ="))
    status, out, err = _run(capsys, sample_home, "--pins", str(tmp_path / "pins"), "plan", "sample")
    assert (status, out) == (2, "")
    assert err.startswith(f"casebits: JSON_INVALID {path}: line 3: codek: unknown field (known here: ")


def test_train_codec_writes_a_new_pin_once(capsys: Output, home: Home, pins: Path, tmp_path: Path) -> None:
    shutil.copytree(pins / "generations", tmp_path / "pins/generations")
    (tmp_path / "pins/sample").symlink_to(pins / "sample")
    asked = ("--pins", str(tmp_path / "pins"), "train-codec", "sample", "small", "--size", "300")
    status, out, _ = _run(capsys, home, *asked)
    folder = tmp_path / "pins/codecs/small"
    assert (status, out.splitlines()[0]) == (0, "codec small: 300 entries")
    assert sorted(path.name for path in folder.iterdir()) == ["codec.toml", "mixture.npz", "vocabulary.json"]
    status, _, err = _run(capsys, home, *asked)
    assert (status, err) == (
        2,
        f"casebits: PIN_INVALID {folder}: the codec exists (pins are written once: name a new folder)\n",
    )


def _stream(path: Path, stream: NDArray[np.uint16]) -> str:
    stream.tofile(path)
    return str(path)


def test_the_ids_of_a_region_and_of_a_mix_are_coherent(capsys: Output, sample_home: Home) -> None:
    region, mix = sample_home.generation("sample").region(3) / IDS, sample_home.mix("sample_aligned")
    for path in (region, mix / "train_000000.ids.u16le"):
        status, out, err = _run(capsys, sample_home, "coherence", str(path), "--dtype", "u2", "--separator", "0")
        assert (status, err) == (0, "")
        assert out.startswith(f"{path}: coherent: the order of the tokens shows in the chunks\n")


def test_mix_diff_compares_two_mixes(sample_home: Home, capsys: Output) -> None:
    mixes = ("sample_aligned", "sample_concatenated")
    status, out, _ = _run(capsys, sample_home, "mix-diff", *mixes)
    assert (status, all(mix in out for mix in mixes)) == (0, True)
    status, out, _ = _run(capsys, sample_home, "mix-diff", *mixes, "--json")
    assert (status, json.loads(out)["only_a"]["documents"]) == (0, 0)
    assert _run(capsys, sample_home, "mix-diff", "sample_aligned", "none")[0] == 3


def test_coherence_has_a_status_for_each_verdict(capsys: Output, home: Home, pins: Path, tmp_path: Path) -> None:
    path, text = tmp_path / "x.bin", sample_stream(pins, CLUSTERS["chess"])
    for stream, expected in (
        (text, (0, "coherent")),
        (shuffle_blocks(text, 1024), (1, "scrambled")),
        (text[:100], (4, "undecided")),
    ):
        asked = ("coherence", _stream(path, stream), "--dtype", "u2", "--format", "json")
        status, out, err = _run(capsys, home, *asked)
        assert (status, json.loads(out)["verdict"], err) == (*expected, "")


def test_coherence_draws_and_says_what_a_run_has_learned(
    capsys: Output, home: Home, pins: Path, tmp_path: Path
) -> None:
    path = _stream(tmp_path / "x.bin", sample_stream(pins, CLUSTERS["chess"]))
    asked = ("coherence", path, "--dtype", "u2", "--observed-loss", "30", "--plot", str(tmp_path / "x.png"))
    status, out, _ = _run(capsys, home, *asked)
    worse = "  observed   30: worse than guessing: a fault in the loss, the data or the vocabulary's size"
    assert (status, out.splitlines()[-1]) == (0, worse)
    assert (tmp_path / "x.png").read_bytes()[1:4] == b"PNG"


@pytest.mark.parametrize(
    ("asked", "status", "problem"),
    [
        (["none.bin", "--dtype", "u2"], 3, "FILE_MISSING none.bin: there is no such file"),
        (["x.bin"], 2, "TOKENS_INVALID x.bin: its bytes do not say what they are (give --dtype u2 or --dtype u4)"),
        ([".", "--dtype", "u2"], 2, "UNREADABLE .: Is a directory"),
        (["x.bin", "--dtype", "u2", "--chunk-tokens", "1000"], 2, "TOKENS_INVALID chunk_tokens: expected a multiple "
         "of 1,024, read 1000"),
        (["x.bin", "--dtype", "u2", "--vocabulary-size", "50256"], 2, "TOKENS_INVALID x.bin: token 0: expected an id "
         "below 50,256, read 50,256 (is --dtype, the byte order or the vocabulary another one?)"),
        (["x.bin", "--dtype", "u2", "--plot", "none/x.png"], 2, "UNREADABLE none/x.png: No such file or directory"),
    ],
)  # fmt: skip
def test_what_coherence_cannot_read(
    capsys: Output,
    home: Home,
    pins: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: list[str],
    status: int,
    problem: str,
) -> None:
    _stream(tmp_path / "x.bin", sample_stream(pins, CLUSTERS["chess"])[:4096])
    monkeypatch.chdir(tmp_path)
    assert _run(capsys, home, "coherence", *asked) == (status, "", f"casebits: {problem}\n")


def test_the_example_in_the_help_of_coherence_is_what_comes_out(
    capsys: Output, home: Home, pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample with 5 % of it shuffled."""
    _stream(tmp_path / "train_000000.bin", shuffle_blocks(sample_stream(pins), 1024, range(1173, 1293)))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["coherence", "--help"])
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    begin = lines.index("casebits coherence train_000000.bin --dtype u2 --separator 50256 --observed-loss 6.3")
    status, out, _ = _run(capsys, home, *lines[begin].split()[1:])
    told = [line.strip() for line in out.splitlines()]
    assert (status, told) == (1, lines[begin + 2 : begin + 2 + len(told)])


@pytest.mark.parametrize(
    ("failures", "first_run", "status", "ending"),
    [
        ({}, True, 0, "time       3 s; first run here"),
        ({}, False, 0, "time       3 s; no byte changed: the 7 files are what they were before"),
        ({"region 00003": "L1_HASH 00003/x: why"}, True, 1, "FAILED     region 00003: L1_HASH 00003/x: why"),
    ],
)
def test_demo_says_what_came_out(
    capsys: Output,
    sample_home: Home,
    pins: Path,
    monkeypatch: pytest.MonkeyPatch,
    failures: dict[str, str],
    first_run: bool,
    status: int,
    ending: str,
) -> None:
    """The summary alone; the demo through Dagster is a test of the orchestration."""

    def run(home: Path, pins_folder: Path, echo: Callable[[str], None], build: Build, *, shared: str) -> DemoResult:
        echo("[ 1/14] region 00000")
        return DemoResult(
            generation="sample",
            home=home,
            summary=summarise(load_generation(pins_folder, "sample"), Home(home)),
            mixes=mix_reports(Home(home)),
            failures=failures,
            first_run=first_run,
            unchanged=not first_run,
            difference="no byte changed: the 7 files are what they were before",
            tree_digest="0" * 64,
            seconds=3.4,
        )

    monkeypatch.setattr(demo, "run_demo", run)
    got, out, _ = _run(capsys, sample_home, "demo")
    lines = out.splitlines()
    assert got == status
    assert lines[:2] == [
        f"building generation sample and its mixes below {sample_home.root}",
        "[ 1/14] region 00000",
    ]
    assert ending in lines
    assert [line for line in lines if line.endswith(": holds")] == [line for line in lines if " rest: " in line]
    assert [line.split()[:2] for line in lines if line.startswith("  sample_")] == [
        ["sample_aligned", "aligned"],
        ["sample_concatenated", "concatenated"],
        ["sample_interleaved", "interleaved"],
        ["sample_stratified", "aligned,"],
    ]
    assert ("what next" in lines) == (not failures)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_is_no_error(sample_home: Home, unbuffered: str) -> None:
    command = [sys.executable, "-m", "casebits_dagster.cli", "--home", str(sample_home.root), "plan", "sample"]
    env = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, env=env, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_gates_are_evaluated_after_a_mix_was_verified(capsys: Output, copy: Home) -> None:
    shutil.rmtree(copy.root / "checked", ignore_errors=True)
    status, said, _ = _run(capsys, copy, "gates", "sample")
    assert (status, [line.split()[:2] for line in said.splitlines()]) == (
        0,
        [["coverage", "open"], ["stratification", "closed"], ["packing", "closed"], ["production", "closed"]],
    )
    assert _run(capsys, copy, "verify", "mix", "sample_interleaved")[0] == 0
    status, said, _ = _run(capsys, copy, "gates", "sample")
    assert said.splitlines()[2] == (
        "packing        open            built on this version and verified: sample_interleaved"
    )
    status, said, _ = _run(capsys, copy, "verify", "frontier", "sample")
    assert (status, "  coverage       open            14 of the 14 planned regions are admitted" in said) == (0, True)


def test_a_frontier_is_published_and_verified_where_it_lies(capsys: Output, copy: Home, tmp_path: Path) -> None:
    place = str(tmp_path / "there")
    status, said, _ = _run(capsys, copy, "publish", "sample", "--to", place, "--valid-days", "30")
    lines = said.splitlines()
    assert (status, lines[-4].startswith("sample, version 1: "), lines[-2]) == (0, True, "  LATEST.json names it now")
    assert lines[-1].endswith(f"verify frontier {place}")
    status, said, _ = _run(capsys, copy, "verify", "frontier", place)
    assert (status, said.splitlines()[0]) == (0, "frontier of sample: verified, every file hashed")
    assert "no gate was evaluated" in said
    (tmp_path / "there" / "regions" / "00003" / RECEIPT).unlink()
    status, _, told = _run(capsys, copy, "verify", "frontier", place)
    assert (status, "FILE_MISSING regions/00003/receipt.json" in told) == (1, True)
    assert _run(capsys, copy, "publish", "sample", "--to", place)[0] == 0
    assert _run(capsys, copy, "verify", "frontier", place)[0] == 0


def test_a_mix_is_published_and_verified_where_it_lies(capsys: Output, copy: Home, tmp_path: Path) -> None:
    place = str(tmp_path / "there")
    status, said, _ = _run(capsys, copy, "publish", "sample_aligned", "--mix", "--to", place)
    assert (status, said.splitlines()[-1].endswith(f"verify mix {place}")) == (0, True)
    status, said, _ = _run(capsys, copy, "verify", "mix", place)
    assert (status, "version 1, manifest" in said, "not compared with its sources" in said) == (0, True, True)


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["publish", "climbmix-lower32k-v1", "--to", "there"], 1, "CLEARANCE_MISSING clearances: climbmix-lower32k-v1"),
        (["publish", "none", "--to", "there"], 3, "PIN_MISSING"),
        (["publish", "none", "--mix", "--to", "there"], 3, "MANIFEST_MISSING"),
        (["publish", "sample", "--to", "gs://there"], 2, "PATH_UNSAFE destination: expected a folder, s3://"),
        (["verify", "frontier", "ftp://there"], 2, "PATH_UNSAFE location: expected a folder, s3://"),
        (["gates", "none"], 3, "PIN_MISSING"),
    ],
)
def test_what_cannot_be_published_says_why(
    capsys: Output, sample_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    arguments: list[str], status: int, told: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    found, _, said = _run(capsys, sample_home, *arguments)
    assert (found, told in said, list(tmp_path.iterdir())) == (status, True, []), said


def test_a_mix_is_exported_once(capsys: Output, sample_home: Home, tmp_path: Path) -> None:
    to = str(tmp_path / "gpt")
    status, said, _ = _run(capsys, sample_home, "export", "sample_aligned", "--format", "nanogpt", "--to", to)
    ids = np.fromfile(tmp_path / "gpt" / "train.bin", "<u2")
    assert (status, len(ids), "train 819,201 tokens" in said) == (0, 400 * 2048 + 1, True)
    status, _, told = _run(capsys, sample_home, "export", "sample_aligned", "--format", "nanogpt", "--to", to)
    assert (status, "EXPORT_EXISTS" in told) == (1, True)
