"""The worked example, run as a person runs it: a tiny model learns from a mix, and not from scrambled copies of it."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from casebits_dagster.records.layout import Home

SCRIPT = Path(__file__).parents[2] / "examples" / "tiny_model.py"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_text_is_learned_and_scrambled_copies_stay_at_what_frequencies_tell(sample_home: Home) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is an extra: `make test-slow` installs it")
    command = [sys.executable, "-W", "error", str(SCRIPT), "--home", str(sample_home.root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    print(done.stdout)
    entropy = {name: float(nats) for name, nats in re.findall(r"^  (\S.*?) {2,}([\d.]+)$", done.stdout, re.M)}
    rows = re.findall(r"^  (\S.*?) {2,}([\d.]+) +([\d.]+) +([\d.]+) +\d+$", done.stdout, re.M)
    ids = {name: float(nats) for name, nats, _, _ in rows}
    masks = {name: (float(learned), float(prior)) for name, _, learned, prior in rows}
    unigram, of_domain = entropy["unigram"], entropy["unigram of the domain, these tokens"]
    # Text goes below every unigram entropy, towards the bigram's. Nothing can be learned where all is shuffled; inside
    # 1,024 tokens, only the topic.
    assert ids["text"] < of_domain - 0.3 < unigram - 0.9
    assert abs(ids["shuffled throughout"] - unigram) < 0.15
    assert of_domain < ids["shuffled inside 1,024"] < unigram
    assert ids["shuffled inside 1,024"] - ids["text"] > 0.5
    # What stands before a token tells of its capitals, in text alone.
    assert masks["text"][0] < 0.7 * masks["text"][1]
    assert masks["shuffled throughout"][0] > 0.8 * masks["shuffled throughout"][1]
    restored = done.stdout.partition("text restored from ids and masks, of the mix:\n")[2]
    assert [len(part) > 20 for part in restored.split("\n\nand written by the model:\n")] == [True, True]
