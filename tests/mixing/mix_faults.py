"""The catalogue: what can be wrong with a mix, and the one check that must refuse it."""

from __future__ import annotations

from dataclasses import dataclass

import tests.mixing.mix_mutations as m
from tests.mixing.corpus import recipe


@dataclass(frozen=True)
class MixFault:
    """`sealed`: MANIFEST.txt was written anew over the changed files, so every hash agrees."""

    name: str
    check: str
    mutate: m.Change
    mix: str = m.MARKED
    sealed: bool = True


MIX_FAULTS = (
    MixFault("ids shuffled inside a chunk of a document (np.random.shuffle)", "MIX_TOKENS", m.shuffle_chunk(m.IDS)),
    MixFault("ids of a plain mix shuffled inside a chunk", "MIX_TOKENS", m.shuffle_chunk(m.BIN), m.PLAIN),
    MixFault("all ids of a shard shuffled", "MIX_TOKENS", m.shuffle_all),
    MixFault("windows off by one token, both streams", "MIX_TOKENS", m.tokens(m.roll, m.IDS, m.CASES)),
    MixFault("case stream shifted by one against the ids", "MIX_CASES", m.tokens(m.roll, m.CASES)),
    MixFault("one mask of a token changed", "MIX_CASES", m.tokens(m.first_up, m.CASES)),
    MixFault("one mask of a validation token changed", "MIX_CASES", m.tokens(m.first_up, "val_000000.case.u16le")),
    MixFault("one id changed", "MIX_TOKENS", m.tokens(m.first_up, m.IDS)),
    MixFault("a separator missing at a document's end", "MIX_SEPARATOR", m.lose_separator(m.IDS, "end")),
    MixFault("a separator missing before a plain document", "MIX_SEPARATOR", m.lose_separator(m.BIN, "start"), m.PLAIN),
    MixFault("a separator missing that was inserted before a tail", "MIX_SEPARATOR", m.overwrite_inserted, m.PLAIN),
    MixFault("the extra token of a shard changed", "MIX_SEPARATOR", m.tokens(lambda t: t.__setitem__(-1, 99), m.IDS)),
    MixFault("two segments of a window swapped, both streams", "MIX_TOKENS", m.swap_segments),
    MixFault("two windows swapped, both streams", "MIX_TOKENS", m.tokens(m.swap_windows, m.IDS, m.CASES)),
    MixFault("two shards swapped, both streams", "MIX_TOKENS", m.swap_shards),
    MixFault("a shard truncated", "MIX_SHARD", m.tokens(lambda t: t[:-5], m.IDS)),
    MixFault("a shard truncated by a disk", "FILE_SIZE", m.tokens(lambda t: t[:-5], m.IDS), sealed=False),
    MixFault("a shard missing from the numbering", "MIX_SHARD", m.rename_shard),
    MixFault("an id of next changed", "MIX_NEXT", m.tokens(m.first_up, "next.ids.u16le")),
    MixFault("an id of a plain next changed", "MIX_NEXT", m.tokens(m.first_up, "next.u16le"), m.PLAIN),
    MixFault("a mask of next changed", "MIX_NEXT", m.tokens(m.first_up, "next.case.u16le")),
    MixFault("next one window short", "MIX_NEXT", m.tokens(lambda t: t[:-1], "next.ids.u16le")),
    MixFault(
        "segment table off by one window",
        "MIX_SEGMENTS",
        m.table("segments.npy", m.next_window),
    ),
    MixFault(
        "a document begins a token early in another's place",
        "MIX_SEGMENTS",
        m.table("segments.npy", m.lengthen_document),
    ),
    MixFault("a chunk of a document skipped", "MIX_SEGMENTS", m.table("segments.npy", m.skip_a_chunk)),
    MixFault("a document cut, a separator in the place of its last token", "MIX_ALIGNMENT", m.cut_document),
    MixFault("a run called another kind than it is", "MIX_ALIGNMENT", m.table("segments.npy", m.other_kind)),
    MixFault("a document cut at the end of a concatenation", "MIX_CUT", m.drop_last_run, m.CONTROL),
    MixFault("a validation document in train", "MIX_SPLIT", m.validation_in_train),
    MixFault("a train document in validation", "MIX_SPLIT", m.train_in_validation),
    MixFault(
        "a document used twice", "MIX_EPOCHS", m.table("documents.npy", lambda rows: rows.__setitem__(1, rows[0]))
    ),
    MixFault(
        "a document under another's id",
        "MIX_DOCUMENT",
        m.table("documents.npy", lambda rows: rows["id"].__setitem__(0, rows["id"][1])),
    ),
    MixFault(
        "a document in another domain",
        "MIX_DOMAIN",
        m.table("documents.npy", lambda rows: rows["domain"].__setitem__(0, 1 - rows["domain"][0])),
    ),
    MixFault("a document in a domain of other scores", "MIX_DOMAIN", m.other_domain(0, 1), m.SCORED),
    MixFault("a document in a domain of other case classes", "MIX_DOMAIN", m.other_domain(0, 2), m.SCORED),
    MixFault("a document that was withdrawn before the mix was built", "MIX_WITHDRAWN", m.withdrawn(held=True)),
    MixFault("report: withdrawn documents", "MIX_WITHDRAWN", m.withdrawn(held=False)),
    MixFault("a document hidden from the choice", "MIX_SUPPLY", m.rebuilt(recipe, m.hide)),
    MixFault("a document missing in a merge", "MIX_COMPLETE", m.rebuilt(m.merge_recipe, m.hide), m.MERGE),
    MixFault("a document twice in a merge", "MIX_COMPLETE", m.rebuilt(m.merge_recipe, m.repeat), m.MERGE),
    MixFault("a document lost, counts and files adapted", "MIX_CONSERVATION", m.lose_window()),
    MixFault("a document lost, conservation adapted too", "MIX_CONSERVATION", m.lose_window("conservation")),
    MixFault(
        "a document lost, conservation and selection adapted too", "MIX_CONTEXT", m.lose_window("conservation", "cells")
    ),
    MixFault("the list of used documents changed", "MIX_SELECTED", m.change_selected),
    MixFault("a document of an excluded mix used", "MIX_EXCLUDED", m.exclude_itself, m.SECOND),
    MixFault(
        "a control with another document",
        "MIX_EARLIER",
        m.table("documents.npy", lambda rows: rows["copy"].__setitem__(0, 1)),
        m.CONTROL,
    ),
    MixFault("report: selected tokens", "MIX_CONSERVATION", m.number("conservation", "selected_tokens")),
    MixFault("report: context", "MIX_CONTEXT", m.number("context", 1, "tokens")),
    MixFault("report: share of the context", "MIX_CONTEXT", m.number("context", 2, "share")),
    MixFault("report: context of a concatenation", "MIX_CONTEXT", m.number("context", 0, "concatenated_tokens")),
    MixFault("report: achieved tokens of a cell", "MIX_TARGETS", m.number("selection", "cells", 2, "achieved_tokens")),
    MixFault(
        "report: achieved share of a domain", "MIX_TARGETS", m.number("selection", "domains", 1, "achieved_share")
    ),
    MixFault("report: supply of a cell", "MIX_SUPPLY", m.number("selection", "cells", 2, "supply_tokens")),
    MixFault("report: documents in the supply", "MIX_SUPPLY", m.number("selection", "cells", 0, "supply_documents")),
    MixFault("report: supply of a domain", "MIX_SUPPLY", m.number("selection", "domains", 1, "supply_tokens")),
    MixFault("report: supply of a length", "MIX_SUPPLY", m.number("selection", "lengths", 1, "supply_tokens")),
    MixFault("report: supply by score", "MIX_SUPPLY", m.number("selection", "cells", 1, "supply_tokens"), m.SCORED),
    MixFault("report: supply of a merge", "MIX_SUPPLY", m.number("selection", "cells", 0, "supply_tokens"), m.MERGE),
    MixFault("report: excluded documents", "MIX_SUPPLY", m.number("selection", "excluded_documents"), m.SECOND),
    MixFault("report: repeated documents", "MIX_SUPPLY", m.number("selection", "duplicate_documents")),
    MixFault("report: documents that no window can close", "MIX_SUPPLY", m.number("selection", "unfit_documents")),
    MixFault("report: tails", "MIX_TAILS", m.number("tails", "floated")),
    MixFault("report: domains in windows", "MIX_WINDOWS", m.number("window_domains", "mixed_windows")),
    MixFault("report: deviation of a step's shares", "MIX_ORDER", m.number("orders", 0, "step_tokens")),
    MixFault("report: entropy of the ids", "MIX_LOSS_REFERENCE", m.number("loss_reference", "unigram_nats")),
    MixFault(
        "report: entropy of a token given the one before",
        "MIX_LOSS_REFERENCE",
        m.number("loss_reference", "bigram", "low_nats"),
    ),
    MixFault("report: another recipe", "MIX_RECIPE", m.report(lambda value: value["recipe"].__setitem__("seed", "x"))),
    MixFault("report: a foreign frontier's hash", "MANIFEST_HASH", m.report(m.foreign_frontier)),
    MixFault(
        "report: the separator on the other side",
        "CODEC_PIN",
        m.report(lambda value: value["separator"].__setitem__("position", "start")),
    ),
    MixFault("a line missing in MANIFEST.txt", "MIX_MANIFEST", m.forget_a_line, sealed=False),
    MixFault("a line missing in MANIFEST.txt, its totals adapted", "FILE_EXTRA", m.forget_a_file, sealed=False),
    MixFault("an extra file", "FILE_EXTRA", m.extra_file, sealed=False),
    MixFault("a file changed by a disk", "FILE_HASH", m.other_readme, sealed=False),
    MixFault("a source region changed by a disk", "FILE_HASH", m.change_region),
    MixFault("a source region without its admission", "FILE_MISSING", m.withdraw_admission),
)
