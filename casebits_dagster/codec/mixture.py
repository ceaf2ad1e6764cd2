"""The model of the masks: a mixture of four casing patterns (lower, Capitalised, UPPER, mixed), frozen with a codec.

`P(mask | v) = sum_k pi_k(v) prod_j Bernoulli(bit_j; theta_kj)`, j = rank of the letter inside the token (1..16);
theta is global, pi belongs to the token, with a Dirichlet prior (weight 2) centred on the mean of the tokens that have
as many letters. Trained by EM from a fixed start; frozen as uint16 fixed point, so that costs are integers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import ByteTable, Ids
from casebits_dagster.codec.encode import MAX_TOKEN_BYTES, Masks

COMPONENTS = ("lower", "capitalised", "upper", "mixed")
COST_UNIT = 65_536
_ONE = 65_535
_PRIOR_WEIGHT = 2.0
_SWEEPS = 60


@dataclass(frozen=True, slots=True)
class Mixture:
    """Frozen parameters: `pi` "<u2" (V, 4) and `theta` "<u2" (4, 16), each divided by 65,535."""

    pi: NDArray[np.uint16]
    theta: NDArray[np.uint16]
    letters: NDArray[np.uint8]

    @classmethod
    def load(cls, path: Path, table: ByteTable) -> Mixture:
        """Return the mixture of a codec's `mixture.npz`."""
        with np.load(path) as found:
            return cls(found["pi"], found["theta"], letter_table(table))

    def save(self, path: Path) -> None:
        """Write the parameters as an uncompressed npz: the same bytes on every machine."""
        np.savez(path, pi=self.pi, theta=self.theta)

    def joint(self, ids: Ids, masks: Masks) -> NDArray[np.float64]:
        """Return P(component, mask | id), (n, 4), for pairs of ids and masks (n,)."""
        bits, present = _letter_bits(self.letters, ids, masks)
        likelihood = _likelihood(self.theta / _ONE, bits, present)
        joint: NDArray[np.float64] = likelihood * (self.pi[ids] / _ONE)
        return joint

    def costs(self, ids: Ids, masks: Masks) -> NDArray[np.int64]:
        """Return -log2 P(mask | id) in 1/65,536 bit, "<i8" (n,), rounded half to even."""
        return _by_pair(self._pair_costs, len(self.pi), ids, masks)

    def components(self, ids: Ids, masks: Masks) -> NDArray[np.int64]:
        """Return the most probable component of every token, (n,); 255 where the token has no letter."""
        return _by_pair(self._pair_components, len(self.pi), ids, masks)

    def _pair_costs(self, ids: Ids, masks: Masks) -> NDArray[np.int64]:
        bits = -np.log2(self.joint(ids, masks).sum(axis=1))
        costs: NDArray[np.int64] = np.rint(bits * COST_UNIT).astype("<i8")
        return costs

    def _pair_components(self, ids: Ids, masks: Masks) -> NDArray[np.int64]:
        likely = self.joint(ids, masks).argmax(axis=1)
        return np.where(self.letters[ids].any(axis=1), likely, 255)


def train_mixture(table: ByteTable, ids: Ids, masks: Masks) -> Mixture:
    """Return the mixture fitted to a stream of ids and masks. Deterministic: fixed start, fixed number of sweeps."""
    letters = letter_table(table)
    keys, counts = np.unique(_keys(ids, masks), return_counts=True)
    token, mask = _split(keys)
    bits, present = _letter_bits(letters, token, mask)
    weight = counts * present.any(axis=1)
    seen = np.bincount(token, weight, len(letters)).astype("<f8")
    group = letters.sum(axis=1)
    theta = np.full((len(COMPONENTS), MAX_TOKEN_BYTES), 0.01)
    theta[1, 0], theta[2], theta[3] = 0.95, 0.95, 0.4
    pi = np.tile([0.85, 0.1, 0.04, 0.01], (len(letters), 1))
    for _ in range(_SWEEPS):
        joint = _likelihood(theta, bits, present) * pi[token]
        share = joint / joint.sum(axis=1, keepdims=True) * weight[:, None]
        up = share.T @ (bits & present)
        theta = np.clip((up + 0.01) / (share.T @ present + 1.0), 1 / _ONE, 1 - 1 / _ONE)
        pi = _token_shares(share, token, seen, group)
    return Mixture(_freeze(pi), _freeze(theta), letters)


def letter_table(table: ByteTable) -> NDArray[np.uint8]:
    """Return which bytes of each token are ASCII letters: 0 or 1, (V, 16)."""
    padded = np.zeros((len(table.lengths), MAX_TOKEN_BYTES), np.uint8)
    found = np.ascontiguousarray(table.words.T).view(np.uint8)[:, :MAX_TOKEN_BYTES]
    padded[:, : found.shape[1]] = found
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


def _letter_bits(letters: NDArray[np.uint8], ids: Ids, masks: Masks) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return, by rank of the letter inside its token, whether it is a capital and whether there is one: (n, 16)."""
    order = np.argsort(1 - letters, axis=1, kind="stable")
    capital = (masks[:, None] >> order[ids]) & 1 == 1
    present = np.arange(MAX_TOKEN_BYTES) < letters.sum(axis=1)[ids][:, None]
    return capital & present, present


def _likelihood(theta: NDArray[np.float64], bits: NDArray[np.bool_], present: NDArray[np.bool_]) -> NDArray[np.float64]:
    capital, small = np.log(theta), np.log1p(-theta)
    result: NDArray[np.float64] = np.exp(bits @ capital.T + (present & ~bits) @ small.T)
    return result


def _freeze(share: NDArray[np.float64]) -> NDArray[np.uint16]:
    return np.clip(np.rint(share * _ONE), 1, _ONE - 1).astype("<u2")


def _keys(ids: Ids, masks: Masks) -> NDArray[np.uint32]:
    return ids.astype("<u4") << np.uint32(16) | masks


def _split(keys: NDArray[np.uint32]) -> tuple[Ids, Masks]:
    return (keys >> np.uint32(16)).astype("<u2"), (keys & np.uint32(0xFFFF)).astype("<u2")


def _by_pair(
    evaluate: Callable[[Ids, Masks], NDArray[np.int64]], size: int, ids: Ids, masks: Masks
) -> NDArray[np.int64]:
    """Return `evaluate` for every (id, mask): by table where the mask is 0, once a distinct pair elsewhere."""
    result: NDArray[np.int64] = evaluate(np.arange(size).astype("<u2"), np.zeros(size, "<u2"))[ids]
    cased = np.flatnonzero(masks)
    if len(cased):
        keys, inverse = np.unique(_keys(ids[cased], masks[cased]), return_inverse=True)
        result[cased] = evaluate(*_split(keys))[inverse]
    return result
