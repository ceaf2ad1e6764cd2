"""The model of the masks: a mixture of four casing patterns (lower, Capitalised, UPPER, mixed), frozen with a codec.

`P(mask | v) = sum_k pi_k(v) prod_j Bernoulli(bit_j; theta_kj)`, j = rank of the letter inside the token (1..16);
theta is global, pi belongs to the token, with a Dirichlet prior (weight 2) centred on the mean of the tokens that have
as many letters. Trained by EM from a fixed start; frozen as uint16 fixed point. Costs are integers, equal on every
machine: floating point proposes, and exact arithmetic decides the few costs that lie near a tie of the rounding.
"""

from __future__ import annotations

import functools
import math
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import ByteTable, Ids
from casebits_dagster.codec.encode import MAX_TOKEN_BYTES, Masks
from casebits_dagster.records.errors import RecordError

Evaluate: TypeAlias = Callable[[Ids, Masks], "NDArray[np.int64]"]
COMPONENTS = ("lower", "capitalised", "upper", "mixed")
COST_UNIT = 65_536
ONE = 65_535
# Ten thousand times what floating point can be off by, and still only one cost in 50,000 is computed twice.
_NEAR_TIE = 1e-5
_DIGITS = 60
_NO_LETTERS = 255
_PRIOR_WEIGHT = 2.0
_SWEEPS = 60
# Where EM starts, component by component: its share, and theta of the first letter, the second, and the others.
_STARTS = (
    (0.85, 0.01, 0.01, 0.01),
    (0.1, 0.95, 0.01, 0.01),
    (0.04, 0.95, 0.95, 0.95),
    (0.01, 0.4, 0.4, 0.4),
    (0.005, 0.05, 0.9, 0.2),
)


@dataclass(frozen=True, slots=True)
class Pairs:
    """How often each pair of id and mask stands in a text: `ids` "<u2", `masks` "<u2", `counts` "<i8" (P,), in rising
    order of id and mask. All that a mixture is fitted to, and all that a text costs."""

    ids: Ids
    masks: Masks
    counts: NDArray[np.int64]


class PairCounter:
    """Counts the pairs of a text that comes in blocks: 3 ns a token; memory: 4 bytes a token with a capital."""

    def __init__(self) -> None:
        self._counts = np.zeros(1 << 16, "<i8")
        self._cased: list[NDArray[np.uint32]] = []

    def add(self, ids: Ids, masks: Masks) -> None:
        """Count ids and masks "<u2" (n,)."""
        counts = np.bincount(ids.astype(np.intp))
        self._counts[: len(counts)] += counts
        cased = np.flatnonzero(masks != 0)
        self._cased.append(_keys(ids.take(cased), masks.take(cased)))

    def pairs(self) -> Pairs:
        """Return the counts up to now."""
        cased, counts = np.unique(np.concatenate([np.empty(0, "<u4"), *self._cased]), return_counts=True)
        lower = self._counts - np.bincount(cased >> np.uint32(16), counts, len(self._counts)).astype("<i8")
        seen = np.flatnonzero(lower).astype("<u4")
        keys, numbers = np.concatenate([seen << np.uint32(16), cased]), np.concatenate([lower[seen], counts])
        order = keys.argsort(kind="stable")
        ids, masks = _split(keys[order])
        return Pairs(ids, masks, numbers[order])


@dataclass(frozen=True)
class Mixture:
    """Frozen parameters of K components: `pi` "<u2" (V, K) and `theta` "<u2" (K, 16), each divided by 65,535."""

    pi: NDArray[np.uint16]
    theta: NDArray[np.uint16]
    letters: NDArray[np.uint8]

    @classmethod
    def load(cls, path: Path, table: ByteTable) -> Mixture:
        """Return the mixture of a `mixture.npz`. Raises RecordError (CODEC_PIN) on one of another vocabulary."""
        letters = letter_table(table)
        try:
            with np.load(path, allow_pickle=False) as found:
                pi, theta = found["pi"], found["theta"]
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise RecordError("CODEC_PIN", str(path), f"not a mixture: {error}") from error
        if pi.shape != (len(letters), len(theta)) or theta.shape[1:] != (MAX_TOKEN_BYTES,):
            expected = f"pi ({len(letters)}, K) and theta (K, {MAX_TOKEN_BYTES})"
            raise RecordError("CODEC_PIN", str(path), expected=expected, read=f"{pi.shape} and {theta.shape}")
        return cls(pi, theta, letters)

    def save(self, path: Path) -> None:
        """Write the parameters as an uncompressed npz: the same bytes on every machine."""
        np.savez(path, pi=self.pi, theta=self.theta)

    def export(self, path: Path, vocabulary_sha256: str) -> None:
        """Write probabilities for a model head into a new npz: `pi` "<f4" (V, K), rows of sum 1, `theta` "<f4" (K, 16),
        `components` (K,) their names, `vocabulary_sha256` (). Raises FileExistsError on a path that is taken."""
        pi = self.pi / self.pi.sum(axis=1, keepdims=True, dtype="<f8")
        with path.open("xb") as stream:
            np.savez(
                stream,
                pi=pi.astype("<f4"),
                theta=(self.theta / ONE).astype("<f4"),
                components=np.array(COMPONENTS[: len(self.theta)]),
                vocabulary_sha256=np.array(vocabulary_sha256),
            )

    def joint(self, ids: Ids, masks: Masks) -> NDArray[np.float64]:
        """Return P(component, mask | id), (n, K), for pairs of ids and masks (n,): right to 1 part in 10^14."""
        states = _letter_states(self.letters[ids], masks)
        # By state of a letter: absent, small, capital.
        factors = np.stack([np.ones(self.theta.T.shape), (ONE - self.theta.T) / ONE, self.theta.T / ONE])
        joint = self.pi[ids] / ONE
        for rank in range(int((states != 0).sum(axis=1).max(initial=0))):
            joint *= factors[states[:, rank], rank]
        return joint

    def costs(self, ids: Ids, masks: Masks) -> NDArray[np.int64]:
        """Return -log2 P(mask | id) in 1/65,536 bit, "<i8" (n,), of the exact P, rounded half to even."""
        return self._by_pair(self._common_costs, self._pair_costs, ids, masks)

    def components(self, ids: Ids, masks: Masks) -> NDArray[np.int64]:
        """Return the most probable component of every token, (n,); 255 where the token has no letter."""
        return self._by_pair(self._common_components, self._pair_components, ids, masks)

    def cost(self, pairs: Pairs) -> int:
        """Return what a text costs, in 1/65,536 bit."""
        return int((self.costs(pairs.ids, pairs.masks) * pairs.counts).sum())

    def independent_bits(self, pairs: Pairs) -> float:
        """Return what a text would cost, in bits, were every bit of an id a coin of its own.

        Each coin has the chance that the mixture gives its bit, so the two differ in one thing: what the bits of a
        token say of each other.
        """
        states = _letter_states(self.letters[pairs.ids], pairs.masks)
        chances = (self.pi / self.pi.sum(axis=1, keepdims=True, dtype="<f8"))[pairs.ids] @ (self.theta / ONE)
        coins = np.where(states == 2, chances, 1 - chances)
        spent = np.where(states == 0, 0.0, -np.log2(coins)).sum(axis=1)
        return float(spent @ pairs.counts)

    def exact_cost(self, token: int, mask: int) -> int:
        """Return the cost of one pair by exact arithmetic: P is a quotient of integers, its logarithm has 60 digits.

        No P lies on a tie, since 2 ** (odd / 131,072) is no quotient of integers.
        """
        states = _letter_states(self.letters[[token]], np.array([mask], "<u2"))[0]
        letters = np.flatnonzero(states)
        share = 0
        for pi, theta in zip(self.pi[token].tolist(), self.theta[:, letters].tolist(), strict=True):
            bits = zip(theta, states[letters].tolist(), strict=True)
            share += pi * math.prod(one if state == 2 else ONE - one for one, state in bits)
        with localcontext(prec=_DIGITS):
            bits_spent = (Decimal(ONE ** (len(letters) + 1)) / share).ln() / Decimal(2).ln()
            return int((bits_spent * COST_UNIT).to_integral_value(ROUND_HALF_EVEN))

    @functools.cached_property
    def _common(self) -> NDArray[np.uint16]:
        """The masks that nearly all tokens have, "<u2" (3, V): no capital, the first letter, all letters."""
        place = np.uint16(1) << np.arange(MAX_TOKEN_BYTES, dtype="<u2")
        every = (self.letters * place).sum(axis=1).astype("<u2")
        first = every & (np.uint16(0) - every)
        return np.stack([np.zeros_like(every), first, every])

    @functools.cached_property
    def _common_costs(self) -> NDArray[np.int64]:
        return self._table(self._pair_costs)

    @functools.cached_property
    def _common_components(self) -> NDArray[np.int64]:
        return self._table(self._pair_components)

    def _table(self, evaluate: Evaluate) -> NDArray[np.int64]:
        ids = np.arange(len(self.pi)).astype("<u2")
        return np.stack([evaluate(ids, masks) for masks in self._common])

    def _by_pair(self, table: NDArray[np.int64], evaluate: Evaluate, ids: Ids, masks: Masks) -> NDArray[np.int64]:
        """Return `evaluate` for every (id, mask): by table where the mask is common, once a distinct pair elsewhere."""
        result: NDArray[np.int64] = table[0].take(ids)
        cased = np.flatnonzero(masks != 0)
        token, mask = ids[cased], masks[cased]
        other = np.ones(len(cased), bool)
        for values, common in zip(table[1:], self._common[1:], strict=True):
            equal = other & (common.take(token) == mask)
            result[cased[equal]] = values.take(token[equal])
            other &= ~equal
        keys, inverse = np.unique(_keys(token[other], mask[other]), return_inverse=True)
        result[cased[other]] = evaluate(*_split(keys))[inverse]
        return result

    def _pair_costs(self, ids: Ids, masks: Masks) -> NDArray[np.int64]:
        bits = -np.log2(self.joint(ids, masks).sum(axis=1)) * COST_UNIT
        costs: NDArray[np.int64] = np.rint(bits).astype("<i8")
        for near in np.flatnonzero(np.abs(bits - np.floor(bits) - 0.5) < _NEAR_TIE):
            costs[near] = self.exact_cost(int(ids[near]), int(masks[near]))
        return costs

    def _pair_components(self, ids: Ids, masks: Masks) -> NDArray[np.int64]:
        likely = self.joint(ids, masks).argmax(axis=1)
        return np.where(self.letters[ids].any(axis=1), likely, _NO_LETTERS)


def train_mixture(table: ByteTable, pairs: Pairs, components: int = len(COMPONENTS)) -> Mixture:
    """Return the mixture of 1 to 5 components fitted to the pairs of a text.

    Deterministic: fixed start, fixed number of sweeps. Two of three random starts end in a worse optimum.
    """
    letters, token = letter_table(table), pairs.ids
    states = _letter_states(letters[token], pairs.masks)
    capital, present = states == 2, states != 0
    weight = pairs.counts * present.any(axis=1)
    seen = np.bincount(token, weight, len(letters)).astype("<f8")
    group = letters.sum(axis=1)
    starts = np.array(_STARTS[:components])
    theta = np.repeat(starts[:, 1:], [1, 1, MAX_TOKEN_BYTES - 2], axis=1)
    pi = np.tile(starts[:, 0], (len(letters), 1))
    for _ in range(_SWEEPS):
        joint = _likelihood(theta, capital, present) * pi[token]
        share = joint / joint.sum(axis=1, keepdims=True) * weight[:, None]
        theta = np.clip((share.T @ capital + 0.01) / (share.T @ present + 1.0), 1 / ONE, 1 - 1 / ONE)
        pi = _token_shares(share, token, seen, group)
    return Mixture(_freeze(pi), _freeze(theta), letters)


def letter_table(table: ByteTable) -> NDArray[np.uint8]:
    """Return which bytes of each token are ASCII letters: 0 or 1, (V, 16)."""
    tokens = (token[:MAX_TOKEN_BYTES].ljust(MAX_TOKEN_BYTES, b"\0") for token in table.tokens.to_pylist())
    padded = np.frombuffer(b"".join(tokens), np.uint8).reshape(-1, MAX_TOKEN_BYTES)
    return ((padded | 0x20) - np.uint8(0x61) < 26).astype(np.uint8)


def _token_shares(
    share: NDArray[np.float64], token: Ids, seen: NDArray[np.float64], group: NDArray[np.uint64]
) -> NDArray[np.float64]:
    sums = np.stack([np.bincount(token, column, len(seen)) for column in share.T], axis=1)
    by_group = np.stack([np.bincount(group, column, MAX_TOKEN_BYTES + 1) for column in sums.T], axis=1)
    total = sums.sum(axis=0)
    centre = by_group + total / max(1.0, total.sum())
    centre /= centre.sum(axis=1, keepdims=True)
    shares: NDArray[np.float64] = (sums + _PRIOR_WEIGHT * centre[group]) / (seen[:, None] + _PRIOR_WEIGHT)
    return shares


def _letter_states(letters: NDArray[np.uint8], masks: Masks) -> NDArray[np.uint8]:
    """Return, by rank of the letter inside its token, 0 where there is none, 1 where it is small, 2 a capital: (n, 16).

    `letters` (n, 16) are the tokens' bytes that are letters, `masks` "<u2" (n,) theirs.
    """
    order = np.argsort(1 - letters, axis=1, kind="stable").astype("<u2")
    present = np.arange(MAX_TOKEN_BYTES) < letters.sum(axis=1)[:, None]
    capital = (masks[:, None] >> order & np.uint16(1)).astype(np.uint8)
    states: NDArray[np.uint8] = present * (capital + np.uint8(1))
    return states


def _likelihood(
    theta: NDArray[np.float64], capital: NDArray[np.bool_], present: NDArray[np.bool_]
) -> NDArray[np.float64]:
    logs = capital @ np.log(theta).T + (present & ~capital) @ np.log1p(-theta).T
    result: NDArray[np.float64] = np.exp(logs)
    return result


def _freeze(share: NDArray[np.float64]) -> NDArray[np.uint16]:
    return np.clip(np.rint(share * ONE), 1, ONE - 1).astype("<u2")


def _keys(ids: Ids, masks: Masks) -> NDArray[np.uint32]:
    return ids.astype("<u4") << np.uint32(16) | masks


def _split(keys: NDArray[np.uint32]) -> tuple[Ids, Masks]:
    return (keys >> np.uint32(16)).astype("<u2"), keys.astype("<u2")
