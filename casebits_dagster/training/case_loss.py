"""The case masks as a modelling target: the mixture of `codec.mixture` in floating point, for a loss and for sampling.

A model gives, of every token, logits of the components; P(mask | token) is then what the codec defines, with the shares
of a token divided by their sum, so that all masks that a token can have sum to 1. Any other mask has probability 0.
Arrays are numpy's or, where PyTorch is loaded, its tensors: what goes in comes out, and gradients pass.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from casebits_dagster.codec.decode import Codec
from casebits_dagster.codec.encode import MAX_TOKEN_BYTES
from casebits_dagster.codec.mixture import ONE, Mixture
from casebits_dagster.records.codec import CodecFiles

Array: TypeAlias = Any
"""A numpy array or a torch tensor."""


@dataclass(frozen=True, slots=True)
class CaseModel:
    """Parameters of K components and what the V tokens look like, all of one kind of array.

    `pi_logits` (V, K) and `theta_logits` (K, 16) are floats: logits of the components of a token, and of the chance
    that its first, second, ... letter is a capital. `places` (V, 16) are the bytes of these letters and `present`
    (V, 16) is 1 where there is one, both int64. Ids and masks are whole numbers of any shape; torch takes int64.
    """

    pi_logits: Array
    theta_logits: Array
    places: Array
    present: Array

    @classmethod
    def prior(cls, codec: Path) -> CaseModel:
        """Return the pinned mixture of a folder with `vocabulary.json` and `mixture.npz`, as float64."""
        mixture = Mixture.load(codec / CodecFiles.MIXTURE, Codec.load(codec).table)
        theta = mixture.theta / ONE
        letters = mixture.letters.astype(np.int64)
        places = np.argsort(1 - letters, axis=1, kind="stable")
        present = np.arange(MAX_TOKEN_BYTES) < letters.sum(axis=1)[:, None]
        return cls(np.log(mixture.pi / ONE), np.log(theta / (1 - theta)), places, present.astype(np.int64))

    def map(self, convert: Callable[[Array], Array]) -> CaseModel:
        """Return the model with `convert` applied to every array: `model.map(torch.from_numpy)`."""
        return CaseModel(*map(convert, (self.pi_logits, self.theta_logits, self.places, self.present)))

    def nll(self, ids: Array, masks: Array, pi_logits: Array | None = None) -> Array:
        """Return -ln P(mask | token) in nats, (...), for ids and masks (...) and, of each, logits (..., K).

        Without logits those of the tokens are taken. It is infinite where a mask has a bit that is no letter.
        """
        xp, logits = _namespace(ids), self.pi_logits[ids] if pi_logits is None else pi_logits
        places, present = self.places[ids], self.present[ids]
        capital = masks[..., None] >> places & present
        log_capital, log_small = self._log_thetas()
        given = xp.asarray(capital, dtype=log_capital.dtype) @ log_capital.T
        given = given + xp.asarray(present - capital, dtype=log_small.dtype) @ log_small.T
        nll = _log_sum_exp(logits) - _log_sum_exp(logits + given)
        return xp.where(masks & ~(present << places).sum(-1) != 0, xp.inf, nll)

    def sample(self, ids: Array, uniforms: Array, pi_logits: Array | None = None) -> Array:
        """Return a mask of each token, int64 (...), from 17 numbers of [0, 1): `uniforms` (..., 17).

        The first one draws the component, each of the others a letter: equal numbers are equal masks everywhere.
        """
        xp, logits = _namespace(ids), self.pi_logits[ids] if pi_logits is None else pi_logits
        ends = xp.exp(logits - xp.amax(logits, axis=-1, keepdims=True)).cumsum(-1)
        component = (uniforms[..., :1] * ends[..., -1:] >= ends[..., :-1]).sum(-1)
        theta = xp.exp(self._log_thetas()[0])[component]
        return ((uniforms[..., 1:] < theta) * self.present[ids] << self.places[ids]).sum(-1)

    def _log_thetas(self) -> tuple[Array, Array]:
        """Return the logs of theta and of 1 - theta, (K, 16) each."""
        logits = self.theta_logits
        xp, zeros = _namespace(logits), logits * 0
        return -xp.logaddexp(zeros, -logits), -xp.logaddexp(zeros, logits)


def _log_sum_exp(values: Array) -> Array:
    xp = _namespace(values)
    top = xp.amax(values, axis=-1, keepdims=True)
    return (top + xp.log(xp.exp(values - top).sum(-1)[..., None]))[..., 0]


def _namespace(array: Array) -> Any:
    """Return torch for a tensor, which cannot be there unless torch is loaded, else numpy."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(array, torch.Tensor) else np
