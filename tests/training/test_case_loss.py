"""The case masks as a target: the loss is the codec's own cost, samples have the chances that the loss says."""

from __future__ import annotations

import dataclasses
import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import ByteTable, read_vocabulary
from casebits_dagster.codec.encode import Encoder
from casebits_dagster.codec.mixture import COST_UNIT, ONE, Mixture
from casebits_dagster.mixing.seeds import counter_keys
from casebits_dagster.records.pins import default_pins_folder
from casebits_dagster.training.case_loss import CaseModel

FOLDER = default_pins_folder() / "codecs" / "sample-lower-8192"
TOKENS = read_vocabulary(FOLDER / "vocabulary.json")
PRIOR = CaseModel.prior(FOLDER)
MIXTURE = Mixture.load(FOLDER / "mixture.npz", ByteTable.of(TOKENS))
SUMS = MIXTURE.pi.sum(axis=1, dtype=np.int64)
token_ids = st.integers(0, len(TOKENS) - 1)


def uniforms(tokens: int, seed: str) -> NDArray[np.float64]:
    words = (counter_keys(tokens * 17, seed) >> np.uint64(11)).reshape(-1, 17)
    return words.astype(np.float64) * 2.0**-53


def letters_of(token: int) -> list[int]:
    return [place for place, byte in enumerate(TOKENS[token]) if bytes([byte]).isalpha()]


def masks_of(token: int) -> list[int]:
    """Every mask that a token can have."""
    places = letters_of(token)
    return [
        sum(1 << place for place in chosen)
        for n in range(len(places) + 1)
        for chosen in itertools.combinations(places, n)
    ]


def nll(token: int, masks: list[int]) -> NDArray[np.float64]:
    return np.asarray(PRIOR.nll(np.full(len(masks), token), np.array(masks)))


@given(token_ids, st.integers(0, 2**16 - 1))
def test_the_loss_is_the_codec_s_exact_cost_of_the_normalised_mixture(token: int, bits: int) -> None:
    mask = bits & sum(1 << place for place in letters_of(token))
    # The codec's shares are fixed-point numbers that sum to 1 within 2 parts in 65,535; those of the loss sum to 1.
    exact = MIXTURE.exact_cost(token, mask) / COST_UNIT + math.log2(int(SUMS[token]) / ONE)
    assert nll(token, [mask])[0] / math.log(2) == pytest.approx(exact, abs=0.6 / COST_UNIT)


@given(token_ids.filter(lambda token: len(letters_of(token)) <= 8))
def test_all_masks_that_a_token_can_have_sum_to_one(token: int) -> None:
    assert float(np.exp(-nll(token, masks_of(token))).sum()) == pytest.approx(1, abs=1e-12)


@given(token_ids, st.integers(0, 2**16 - 1))
def test_a_mask_with_a_bit_that_is_no_letter_has_probability_zero(token: int, mask: int) -> None:
    possible = mask & ~sum(1 << place for place in letters_of(token)) == 0
    assert np.isinf(nll(token, [mask])[0]) == (not possible)


def test_a_text_costs_what_the_codec_says() -> None:
    text = np.frombuffer(b"The quick brown FOX, iPhone and McDonald's; \nNASA's eBay pages.", np.uint8)
    encoded = Encoder(FOLDER / "vocabulary.json").encode(text, np.array([0, len(text)]))
    costs = MIXTURE.costs(encoded.ids, encoded.cases) / COST_UNIT
    found = PRIOR.nll(encoded.ids, encoded.cases) / math.log(2)
    np.testing.assert_allclose(found, costs + np.log2(SUMS[encoded.ids] / ONE), rtol=0, atol=0.6 / COST_UNIT)


def test_shapes_are_kept_and_logits_of_the_components_are_the_model_s_to_give() -> None:
    ids, masks = np.arange(600).reshape(2, 300), np.zeros((2, 300), np.int64)
    assert PRIOR.nll(ids, masks).shape == (2, 300)
    given_logits = PRIOR.pi_logits[ids] + 5.0
    np.testing.assert_allclose(PRIOR.nll(ids, masks, given_logits), PRIOR.nll(ids, masks), atol=1e-12)
    # A component that is certain: what is left is a coin a letter.
    (token,) = (number for number, spelled in enumerate(TOKENS) if spelled == b" the")
    certain = np.array([[-1e4, -1e4, 0.0, -1e4]])
    coins = np.log(MIXTURE.theta[2, :3] / ONE)
    assert float(PRIOR.nll(np.array([token]), np.array([0b1110]), certain)[0]) == pytest.approx(-float(coins.sum()))


@pytest.mark.parametrize("spelled", [b" the", b"i", b" united", b"1"])
def test_sampled_masks_have_the_chances_that_the_loss_says(spelled: bytes) -> None:
    token, draws = TOKENS.index(spelled), 40_000
    drawn = PRIOR.sample(np.full(draws, token), uniforms(draws, f"draw/{spelled!r}"))
    masks = masks_of(token)
    expected = draws * np.exp(-nll(token, masks))
    counts = np.array([np.count_nonzero(drawn == mask) for mask in masks])
    assert int(counts.sum()) == draws
    # Pearson's statistic over masks that are expected often enough, the others taken together: mean n, variance 2 n.
    often = expected >= 5
    counts, expected = (np.append(values[often], values[~often].sum()) for values in (counts, expected))
    statistic = float(((counts - expected) ** 2 / np.maximum(expected, 1)).sum())
    assert statistic <= len(counts) + 5 * math.sqrt(2 * len(counts))


def test_equal_numbers_draw_equal_masks_of_any_shape() -> None:
    ids, numbers = np.arange(6000) % len(TOKENS), uniforms(6000, "shapes")
    drawn = PRIOR.sample(ids, numbers)
    assert drawn.dtype == np.int64
    np.testing.assert_array_equal(PRIOR.sample(ids.reshape(3, 2000), numbers.reshape(3, 2000, 17)).reshape(-1), drawn)


def test_nothing_here_loads_torch() -> None:
    code = f"""import sys
from pathlib import Path
from casebits_dagster.training.case_loss import CaseModel
import casebits_dagster.training.exports
import numpy as np
CaseModel.prior(Path({str(FOLDER)!r})).nll(np.array([5]), np.array([0]))
print(sorted({{"torch", "datasets", "megatron"}} & sys.modules.keys()))"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


@pytest.mark.slow
def test_torch_agrees_with_numpy_in_values_and_samples() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an extra: `make test-slow` installs it")
    ids = np.arange(40_000) % len(TOKENS)
    numbers = uniforms(len(ids), "torch")
    masks = np.where(ids % 7 == 0, 1, PRIOR.sample(ids, numbers))
    model, of_ids, of_masks = PRIOR.map(torch.from_numpy), torch.from_numpy(ids), torch.from_numpy(masks)
    np.testing.assert_allclose(model.nll(of_ids, of_masks).numpy(), PRIOR.nll(ids, masks), rtol=1e-12)
    np.testing.assert_array_equal(model.sample(of_ids, torch.from_numpy(numbers)).numpy(), PRIOR.sample(ids, numbers))


@pytest.mark.slow
def test_gradients_lead_from_another_start_back_to_the_parameters_that_masks_were_drawn_from() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an extra: `make test-slow` installs it")
    ids = np.full(4_000, TOKENS.index(b" the"))
    masks = torch.from_numpy(PRIOR.sample(ids, uniforms(len(ids), "gradients")))
    model, of_ids = PRIOR.map(torch.from_numpy), torch.from_numpy(ids)
    logits = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    theta = model.theta_logits.clone().requires_grad_()
    learned = dataclasses.replace(model, theta_logits=theta)
    optimizer = torch.optim.LBFGS([logits, theta], line_search_fn="strong_wolfe")

    def loss() -> float:
        optimizer.zero_grad()
        mean = learned.nll(of_ids, masks, logits.expand(len(ids), 4)).mean()
        mean.backward()
        return mean.item()  # type: ignore[no-any-return]

    start = loss()
    optimizer.step(loss)
    drawn_from = float(model.nll(of_ids, masks).mean())
    # The best fit to a sample is a little better than what it was drawn from, and far better than equal shares.
    assert drawn_from - 0.01 <= loss() <= drawn_from < start - 0.5


@pytest.mark.slow
def test_an_impossible_mask_is_an_infinite_loss_and_leaves_no_nan_in_the_gradient() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an extra: `make test-slow` installs it")
    model = PRIOR.map(torch.from_numpy)
    logits = torch.zeros(2, 4, dtype=torch.float64, requires_grad=True)
    found = model.nll(torch.tensor([TOKENS.index(b" the")] * 2), torch.tensor([1, 2]), logits)
    assert found.isinf().tolist() == [True, False]
    found[1].backward()
    assert logits.grad.isnan().any().item() is False
