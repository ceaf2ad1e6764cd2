"""Train a tiny causal model on a mix, and on scrambled copies of it: is the corpus trainable, and would a loss tell?

    casebits demo
    python examples/tiny_model.py [--home .casebits] [--mix sample_aligned] [--steps 320]

Needs the extra `torch`; takes less than three minutes on two free cores, without a GPU. The model reads ids and case
masks; it predicts the next id, and its mask by the four casing patterns of the pinned mixture: the mask head starts
from that.

A scrambled copy has the same ids as often, each with its mask, and looks healthy to every check of shapes. Shuffled
throughout, nothing can be learned from it but how frequent each id is: the loss stays at the unigram entropy. Shuffled
inside chunks of 1,024 tokens, what stands before a token still tells the topic: the loss moves towards the unigram
entropy of the domains, and no further. Only text goes below.
"""

from __future__ import annotations

import argparse
import itertools
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from casebits_dagster.codec.decode import Codec
from casebits_dagster.mixing.seeds import seeded_order
from casebits_dagster.records.mix import TABLE
from casebits_dagster.training import PackedMix
from casebits_dagster.training.case_loss import CaseModel

WIDTH, HEADS, LAYERS, CONTEXT, ROWS, RATE = 128, 4, 1, 128, 8, 4e-3
CLASSES, TEMPERATURE, PROMPT = (1024, 3072), 0.8, 48


class Block(nn.Module):
    """Causal self-attention and a perceptron, each behind a norm and added to what came in."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.mixed, self.joined = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        heads = self.mixed(self.norms[0](x)).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.joined(attended.transpose(1, 2).reshape(rows, length, -1))
        return x + self.narrow(functional.gelu(self.wide(self.norms[1](x))))


class TinyModel(nn.Module):
    """Ids and masks (B, L) in; out come features (B, L, WIDTH), from which the next id is predicted, and logits (B, L,
    4) that are added to those of the casing patterns of that id.

    It starts as the unigram model, with the pinned prior of the masks. Ids are predicted in three classes, by how
    frequent they are: exact, and a quarter of the work of one softmax over all of them.
    """

    def __init__(self, prior: CaseModel, unigram: NDArray[np.float64]) -> None:
        super().__init__()
        self.ids, self.places = nn.Embedding(len(unigram), WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.masks = nn.Linear(16, WIDTH, bias=False)
        self.blocks, self.norm = nn.Sequential(*[Block() for _ in range(LAYERS)]), nn.LayerNorm(WIDTH)
        order = np.argsort(-unigram, kind="stable")
        self.order, self.rank = torch.from_numpy(order), torch.from_numpy(np.argsort(order))
        self.next = nn.AdaptiveLogSoftmaxWithLoss(WIDTH + 1, len(unigram), list(CLASSES), div_value=1)
        self.patterns = nn.Linear(WIDTH, 4, bias=False)
        for embedding in (self.ids, self.places):
            nn.init.normal_(embedding.weight, std=0.05)
        nn.init.zeros_(self.patterns.weight)
        self._start_at(torch.from_numpy(unigram[order]).float())
        self.prior = prior.map(lambda array: torch.from_numpy(array if array.dtype.kind == "i" else np.float32(array)))
        self.pi, self.theta = nn.Parameter(self.prior.pi_logits), nn.Parameter(self.prior.theta_logits)

    @torch.no_grad()
    def _start_at(self, unigram: Tensor) -> None:
        """Let the constant that stands behind the features say how frequent each id is, and the others nothing yet."""
        edges = [*CLASSES, len(unigram)]
        tails = [unigram[begin:end] for begin, end in itertools.pairwise(edges)]
        head = torch.cat([unigram[: edges[0]], torch.stack([tail.sum() for tail in tails])])
        self.next.head.weight.zero_()[:, -1] = head.log()
        for (inner, outer), tail in zip(self.next.tail, tails, strict=True):
            nn.init.eye_(inner.weight)
            outer.weight.zero_()[:, -1] = tail.log()

    @property
    def cases(self) -> CaseModel:
        """The model of the masks, with what was learned."""
        return replace(self.prior, pi_logits=self.pi, theta_logits=self.theta)

    def forward(self, ids: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
        bits = (masks[..., None] >> torch.arange(16) & 1).float()
        x = self.ids(ids) + self.masks(bits) + self.places(torch.arange(ids.shape[1]))
        x = self.norm(self.blocks(x))
        return torch.cat([x, torch.ones_like(x[..., :1])], dim=-1), self.patterns(x)

    def losses(self, ids: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
        """Return nats a token of the next ids and of their masks, for rows (B, L + 1)."""
        features, patterns = self(ids[:, :-1], masks[:, :-1])
        targets = ids[:, 1:]
        of_ids = self.next(features.flatten(0, 1), self.rank[targets].flatten()).loss
        return of_ids, self.cases.nll(targets, masks[:, 1:], self.pi[targets] + patterns).mean()

    @torch.no_grad()
    def write(self, ids: Tensor, masks: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
        """Go on behind ids and masks (L,): draw an id, then its mask given that id."""
        for _ in range(tokens):
            features, patterns = self(ids[None, -CONTEXT:], masks[None, -CONTEXT:])
            chances = (self.next.log_prob(features[0, -1:]) / TEMPERATURE).softmax(-1)
            token = self.order[torch.multinomial(chances[0], 1)]
            mask = self.cases.sample(token, torch.rand(1, 17), self.pi[token] + patterns[:, -1])
            ids, masks = torch.cat([ids, token]), torch.cat([masks, mask])
        return ids, masks


@dataclass(frozen=True)
class Run:
    """A trained model and its losses, in nats a token, over the last quarter of the steps. No token is seen twice, so
    these are losses on tokens that the model has not seen. `prior` is what the pinned mixture gives for those masks."""

    model: TinyModel
    ids: float
    masks: float
    prior: float


def read_stream(mix: PackedMix, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return ids, masks and domains of the first windows, int64 (steps * ROWS * CONTEXT + 1,)."""
    tokens = steps * ROWS * CONTEXT + 1
    windows = mix.batch(np.arange(min(len(mix), -(-tokens // mix.sequence_length))))
    if windows.cases is None or windows.ids.size < tokens:
        raise SystemExit(f"wanted: {tokens:,} tokens with case masks, no token twice; fewer --steps, another --mix?")
    runs = windows.runs
    domains = np.load(mix.folder / TABLE)["domain"][runs.rows["document"]].repeat(runs.ends - runs.starts)
    columns = (windows.ids, windows.cases, domains)
    ids, masks, domain = (torch.from_numpy(column.astype(np.int64).reshape(-1)[:tokens]) for column in columns)
    return ids, masks, domain


def shuffled_inside(tokens: int, chunk: int) -> Tensor:
    """Return a seeded order of the tokens that leaves each in its chunk."""
    return torch.from_numpy(seeded_order(np.arange(tokens) // chunk, f"scrambled/{chunk}"))


def entropy(ids: Tensor, given: Tensor) -> float:
    """Return the entropy of an id in nats, given the number beside it."""
    pairs, groups = (np.unique(numbers, return_counts=True)[1] for numbers in (given << 16 | ids, given))
    return float((groups * np.log(groups)).sum() - (pairs * np.log(pairs)).sum()) / len(ids)


def train(ids: Tensor, masks: Tensor, prior: CaseModel, vocabulary_size: int, steps: int) -> Run:
    """Train on every token of the stream once; a step takes its rows from places far apart."""
    torch.manual_seed(0)
    unigram = np.bincount(ids, minlength=vocabulary_size) + 0.5
    model = TinyModel(prior, unigram / unigram.sum())
    starts = torch.arange(steps * ROWS).view(ROWS, steps).T * CONTEXT
    places = starts[..., None] + torch.arange(CONTEXT + 1)
    optimizer, losses = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01), []
    for step, rows in enumerate(places):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / 20, 1.1 - step / steps)
        of_ids, of_masks = model.losses(ids[rows], masks[rows])
        optimizer.zero_grad()
        (of_ids + of_masks).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append((of_ids.item(), of_masks.item()))
    last = steps - steps // 4
    seen = places[last:, :, 1:]
    found = np.mean(losses[last:], axis=0)
    return Run(model, float(found[0]), float(found[1]), float(model.prior.nll(ids[seen], masks[seen]).mean()))


def main() -> None:
    """Train on all copies and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, default=Path(".casebits"))
    parser.add_argument("--mix", default="sample_aligned")
    parser.add_argument("--steps", type=int, default=320)
    options = parser.parse_args()
    mix = PackedMix.open(options.home, name=options.mix)
    codec = options.home / "generations" / mix.report.sources[0].generation / "codec"
    ids, masks, domain = read_stream(mix, options.steps)
    prior, reference = CaseModel.prior(codec), mix.report.loss_reference
    print(f"{options.mix}: {len(ids):,} tokens, each seen once, in {options.steps} steps\n\nnats an id")
    lines = {"uniform": float(reference.uniform_nats), "unigram": float(reference.unigram_nats)}
    lines["unigram of the domain, these tokens"] = entropy(ids, domain)
    if reference.bigram:
        lines |= {"bigram, at most": float(reference.bigram.high_nats)}
        lines |= {"bigram, at least": float(reference.bigram.low_nats)}
    for name, nats in lines.items():
        print(f"  {name:<38}{nats:>6.2f}")
    orders = {"text": torch.arange(len(ids))}
    orders |= {"shuffled inside 1,024": shuffled_inside(len(ids), 1024)}
    orders |= {"shuffled throughout": shuffled_inside(len(ids), len(ids))}
    print("\nlosses                   nats an id   nats a mask   by the pinned prior   seconds")
    runs = {}
    for name, order in orders.items():
        begin = time.perf_counter()
        runs[name] = run = train(ids[order], masks[order], prior, reference.vocabulary_size, options.steps)
        spent = time.perf_counter() - begin
        print(f"  {name:<22}{run.ids:>11.2f}{run.masks:>14.3f}{run.prior:>22.3f}{spent:>10.0f}", flush=True)
    show(runs["text"].model, Codec.load(codec), ids[:PROMPT], masks[:PROMPT])


def show(model: TinyModel, codec: Codec, ids: Tensor, masks: Tensor) -> None:
    """Print text that was restored from ids and masks: those of the mix, and behind them those that the model wrote."""
    torch.manual_seed(1)
    all_ids, all_masks = (numbers.numpy().astype("<u2") for numbers in model.write(ids, masks, 96))
    given = codec.decode(all_ids[: len(ids)], all_masks[: len(ids)]).decode(errors="replace")
    written = codec.decode(all_ids[len(ids) :], all_masks[len(ids) :]).decode(errors="replace")
    print(f"\ntext restored from ids and masks, of the mix:\n{given}\n\nand written by the model:\n{written}")


if __name__ == "__main__":
    main()
