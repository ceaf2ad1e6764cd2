"""The repository as a whole: what the README says is so, the lock is exact, nothing names a registry."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from casebits_dagster.codec.bytetable import gpt2_alphabet
from casebits_dagster.definitions import build
from casebits_dagster.records.canonical import parse
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import REFUSAL_CODES
from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import load_generation
from casebits_dagster.records.vocabulary import gpt2_file

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def _source_files() -> list[Path]:
    return sorted([*ROOT.glob("casebits_dagster/**/*.py"), *ROOT.glob("assets/*.py")])


def test_the_lock_has_exact_versions_and_nothing_else() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!_-]+", line)] == []
    names = [_normal(line.split("==")[0]) for line in lines]
    assert names == sorted(names)


def test_the_lock_holds_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    locked = {_normal(line.split("==")[0]) for line in (ROOT / "requirements.lock").read_text().splitlines()}
    assert [name for name in asked if _normal(re.split(r"[<>=~!\[ ]", name)[0]) not in locked] == []


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_a_file_has_at_most_400_lines_and_says_first_what_it_is() -> None:
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in _source_files()}
    assert [name for name, text in texts.items() if text.count("\n") > 400] == []
    assert [name for name, text in texts.items() if not text.startswith('"""')] == []


def test_product_code_never_asserts() -> None:
    found = [path.name for path in _source_files() if re.search(r"^\s*assert\b", path.read_text(), re.MULTILINE)]
    assert found == []


def test_every_refusal_has_a_code_of_the_closed_list() -> None:
    pattern = re.compile(r"\bRefused\(\s*\"([A-Z_]+)\"")
    used = {code for path in _source_files() for code in pattern.findall(path.read_text())}
    assert used - REFUSAL_CODES == set()


def test_links_of_the_documents_lead_somewhere() -> None:
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), ROOT / "assets/pins/sample/README.md"]
    broken = []
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if not target.startswith("http") and not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")
    assert broken == []


def test_every_decision_is_listed() -> None:
    listed = re.findall(r"\((\d{4}-[^)]+)\)", (ROOT / "docs/adr/README.md").read_text())
    assert listed == sorted(path.name for path in (ROOT / "docs/adr").glob("0*.md"))


def _graph_table() -> list[list[str]]:
    lines = [line for line in README.splitlines() if line.startswith("|") and "assets/" in line and "](" in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_graph_table_is_the_graph(pins: Path, tmp_path: Path) -> None:
    """Every asset key of the definitions is in the README's table, in the file that the table names, and no other."""
    keys = {key.to_user_string() for key in build(pins, Home(tmp_path)).resolve_asset_graph().get_all_asset_keys()}
    names = {
        "<generation>": {key.split("/")[0] for key in keys} - {"mixes", "codecs"},
        "<recipe>": {key.split("/")[1] for key in keys if key.startswith("mixes/")},
        "<codec>": {key.split("/")[1] for key in keys if key.startswith("codecs/")},
    }
    rows = [(key.strip("`"), kind) for _, key, *_ in _graph_table() for kind in names if kind in key]
    named = {key.replace(kind, name) for key, kind in rows for name in names[kind]}
    assert named == keys
    files = {re.search(r"\((assets/[a-z_]+\.py)\)", row[2]).group(1) for row in _graph_table()}  # type: ignore[union-attr]
    assert files == {f"assets/{path.name}" for path in ROOT.glob("assets/*.py") if path.name != "__init__.py"}


def test_the_graph_table_names_verbs_that_exist() -> None:
    for row in _graph_table():
        module, _, verb = row[3].strip("`").rpartition(".")
        assert callable(getattr(__import__(f"casebits_dagster.{module}", fromlist=[verb]), verb)) is True


def test_the_reading_recipe_works_as_it_stands_on_every_region(sample_home: Home, tmp_path: Path, pins: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    folder = sample_home.generation("sample")
    seen = []
    for region in load_generation(pins, "sample").plan:
        path = folder.region(region.index)
        script = tmp_path / "recipe.py"
        script.write_text("\n".join(blocks).replace(".casebits/generations/sample/regions/00003", str(path)))
        read = runpy.run_path(str(script))
        lines = [json.loads(line) for line in (path / "documents.jsonl").read_bytes().splitlines()]
        assert [sha256(text.encode())[:32] for text in read["texts"]] == [line["id"] for line in lines]
        assert [len(document) for document in read["documents"]] == [
            len(read["ids"][a:b]) for a, b in zip(read["offsets"], read["offsets"][1:], strict=False)
        ]
        seen.append(len(read["documents"]))
    assert seen.count(0) == 1


def test_every_row_of_the_sample_is_the_text_that_its_notice_names(pins: Path) -> None:
    """Row, cluster, licence and the hash of the decoded text: the notices belong to these very documents."""
    encoder = json.loads(gpt2_file("encoder.json").read_bytes())
    alphabet = gpt2_alphabet()
    spelled = {number: bytes(alphabet.get(c, 0) for c in token) for token, number in encoder.items() if number != 50256}
    rows = pq.read_table(pins / "sample/pd_mix.parquet")["tokens"].to_pylist()
    lines = (pins / "sample/documents.jsonl").read_bytes().splitlines(keepends=True)
    notices = [parse(line, "documents.jsonl") for line in lines]
    texts = [b"".join(spelled[token] for token in (row[:-1] if row[-1] == 50256 else row)) for row in rows]
    found = [{"row": number, "sha256": sha256(text)} for number, text in enumerate(texts)]
    assert found == [
        {"row": notice["row"], "sha256": notice["sha256"]} for notice in notices if isinstance(notice, dict)
    ]
    licences = {notice["licence"] for notice in notices if isinstance(notice, dict)}
    assert licences == {"CC0-1.0", "LicenseRef-public-domain", "PSF-2.0"}


def test_the_sample_readme_counts_its_sources(pins: Path) -> None:
    lines = (pins / "sample/documents.jsonl").read_text().splitlines()
    sources = [json.loads(line)["source"] for line in lines]
    table = re.findall(
        r"^\| `([a-z0-9-]+)` \|.*\| ([\d,]+) \| [\d,]+ \|$", (pins / "sample/README.md").read_text(), re.M
    )
    assert {name: int(count.replace(",", "")) for name, count in table} == {n: sources.count(n) for n in set(sources)}


def test_the_licence_of_the_sample_covers_every_document(pins: Path) -> None:
    expression = load_generation(pins, "sample").pin.source.licence_spdx
    lines = (pins / "sample/documents.jsonl").read_text().splitlines()
    assert set(expression.split(" AND ")) == {json.loads(line)["licence"] for line in lines}


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("casebits_dagster/records/canonical.py", "import casebits_dagster.stores.local", "Imports go down"),
        ("casebits_dagster/orchestration/instance.py", "import assets", "Imports go down"),
        ("casebits_dagster/admission/source.py", "import casebits_dagster.codec.decode", "The verifier of a region"),
        ("casebits_dagster/lineage/audit.py", "import dagster", "Dagster stays"),
        ("casebits_dagster/cli.py", "from dagster_shared import yaml_utils", "Dagster stays"),
        ("casebits_dagster/sources/detokenise.py", "from urllib.request import urlopen", "Network clients stay"),
        ("assets/packed_mix.py", "import huggingface_hub", "Network clients stay"),
    ],
)
def test_an_import_that_breaks_a_contract_is_found(tmp_path: Path, module: str, line: str, contract: str) -> None:
    for package in ("assets", "casebits_dagster"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("pins", "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / module).open("a") as text:
        text.write(f"\n{line}\n")
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", "--no-logo", "pyproject.toml"]
    done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    broken = [row.split(" BROKEN")[0] for row in done.stdout.splitlines() if " BROKEN" in row]
    assert (done.returncode, [name.startswith(contract) for name in broken]) == (1, [True])


@pytest.mark.parametrize("no_skip", ["", "1"])
@pytest.mark.parametrize(
    "skip", ["def test_it():\n    pytest.skip('why')", "pytest.skip('why', allow_module_level=True)"]
)
def test_a_skipped_test_is_a_failure_in_ci(tmp_path: Path, no_skip: str, skip: str) -> None:
    shutil.copy(ROOT / "tests/conftest.py", tmp_path)
    passes = "def test_that_runs():\n    pass\n"
    fails = "@pytest.mark.xfail\ndef test_that_fails_as_expected():\n    raise ValueError\n"
    (tmp_path / "test_a.py").write_text(f"import pytest\n\n{passes}\n{fails}")
    (tmp_path / "test_b.py").write_text(f"import pytest\n\n{skip}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    env = {**os.environ, "CASEBITS_NO_SKIP": no_skip}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=False)
    assert (done.returncode != 0) == (no_skip == "1")
