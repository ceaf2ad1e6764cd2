"""Coherence: real text is not alarmed at, shuffled tokens are found, and too little is told as such."""

from __future__ import annotations

import json
import math
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from casebits_dagster.mixing.coherence import FILE_ORDER, ORDER, Coherence, _poisson_bound, examine
from casebits_dagster.mixing.coherence_report import reason, text_lines, to_json, write_plot
from casebits_dagster.mixing.seeds import counter_keys
from casebits_dagster.mixing.token_file import open_token_file
from casebits_dagster.records.errors import RecordError
from tests.mixing.streams import CLUSTERS, SEPARATOR, U2, examined, sample_stream, shuffle_blocks, stream_of

NOWHERE = "no order anywhere: the tokens were shuffled, or are random"
SHOWS = "the order of the tokens shows in the chunks"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a test writes its stream."""
    return tmp_path / "x.bin"


@pytest.fixture(scope="module")
def novels(pins: Path) -> U2:
    """The novels of the sample: 315,850 tokens, 308 chunks."""
    return sample_stream(pins, CLUSTERS["novels"])


def _random_ids(count: int, size: int) -> U2:
    return (counter_keys(count, f"ids below {size}") % np.uint64(size)).astype("<u2")


def _told(found: Coherence) -> tuple[str, str]:
    return found.verdict, reason(found)


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_text_is_coherent(pins: Path, file: Path, cluster: str) -> None:
    assert _told(examined(sample_stream(pins, CLUSTERS[cluster]), file)) == ("coherent", SHOWS)


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("tokens", [2_048, 5_000, 33_000])
def test_a_little_text_is_coherent(pins: Path, file: Path, cluster: str, tokens: int) -> None:
    assert examined(sample_stream(pins, CLUSTERS[cluster])[-tokens:], file).verdict == "coherent"


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("stream", [100, 500, 1_000, 2_000])
def test_a_tiny_file_is_never_called_scrambled(pins: Path, file: Path, cluster: str, stream: int) -> None:
    """Text shows its order or is too short; its shuffle is too short."""
    text = sample_stream(pins, CLUSTERS[cluster])[7 : 7 + stream]
    short = f"too short to tell: {stream:,} tokens, and 256 windows of 8 tokens are needed"
    assert _told(examined(text, file)) in {("coherent", SHOWS), ("undecided", short)}
    assert _told(examined(shuffle_blocks(text, stream), file)) == ("undecided", short)


@pytest.fixture(scope="module")
def shared_data() -> Path:
    """Texts beside the checkout, which may not be published with it."""
    folder = Path(__file__).parents[3] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the sample data beside the checkout is not there")
    return folder


@pytest.mark.parametrize("name", ["climblab_real_sample", "indonesian/libreoffice_help_id", "indonesian/other_id"])
def test_text_beside_the_checkout_is_coherent(shared_data: Path, file: Path, name: str) -> None:
    stream = stream_of(pq.read_table(shared_data / f"{name}.parquet", columns=["tokens"]))
    assert _told(examined(stream, file)) == ("coherent", SHOWS)


@pytest.mark.slow
def test_a_long_mixed_stream_is_coherent(shared_data: Path, file: Path) -> None:
    """38.5 M tokens of 20 domains, with passwords and tables in it."""
    paths = sorted((shared_data / "bench").glob("*.parquet"))
    found = examined(stream_of(pa.concat_tables([pq.read_table(path, columns=["tokens"]) for path in paths])), file)
    assert (found.verdict, int(found.without_order.sum()) <= 5) == ("coherent", True)


@pytest.mark.parametrize("block", [8, 16, 256, 1024, 63_170, 315_850])
def test_a_stream_shuffled_throughout_is_scrambled(novels: U2, file: Path, block: int) -> None:
    found = examined(shuffle_blocks(novels, block), file)
    assert _told(found) == ("scrambled", NOWHERE)
    assert int(found.without_order.sum()) >= 300


@pytest.mark.parametrize("block", [2, 4, 12])
def test_shuffles_that_do_not_fit_the_windows_are_found_all_the_same(novels: U2, file: Path, block: int) -> None:
    assert examined(shuffle_blocks(novels, block), file).verdict == "scrambled"


@pytest.mark.parametrize("block", [1024, 4096])
def test_a_run_of_5_percent_is_found_and_located(novels: U2, file: Path, block: int) -> None:
    chosen = [100 * 1024 // block + number for number in range(16 * 1024 // block)]
    # One shuffled chunk in 100 shows order by chance; with this seed none of these does.
    found = examined(shuffle_blocks(novels, block, chosen), file, seed=1)
    assert (*_told(found), found.spans) == ("scrambled", "no order in 16 of 308 chunks (5.2%)", [(100, 116)])


def test_scattered_blocks_of_5_percent_are_found_and_located(novels: U2, file: Path) -> None:
    chosen = list(range(3, 303, 20))
    found = examined(shuffle_blocks(novels, 1024, chosen), file)
    assert _told(found) == ("scrambled", "no order in 15 of 308 chunks (4.9%)")
    assert np.flatnonzero(found.without_order).tolist() == chosen


def test_a_chunk_by_chance_in_order_does_not_cut_a_run() -> None:
    z = np.array([5.0, 0, 3, 0, 5, 0, 4.1, 0, 0, np.nan, 0, 3])
    found = _of(excess=z)
    assert found.spans == [(1, 4), (5, 6), (7, 9), (10, 11)]


@pytest.mark.parametrize(
    ("chunks", "without", "z", "verdict"),
    [
        (2_600, 11, 0.0, "scrambled"),
        (2_600, 11, 1.1, "scrambled"),
        (2_600, 11, 1.3, "coherent"),
        (2_600, 26, 1.6, "coherent"),
        (2_600, 90, 1.6, "scrambled"),
        (2_600, 130, 1.6, "scrambled"),
    ],
)
def test_chunks_without_order_that_together_show_some_are_text(
    chunks: int, without: int, z: float, verdict: str
) -> None:
    excess = np.full(chunks, 9.0)
    excess[5 : 5 + 20 * without : 20] = z
    found = _of(excess=excess)
    assert (found.needed, int(found.without_order.sum()), found.verdict) == (11, without, verdict)


def _of(excess: Any) -> Coherence:
    """Return findings whose z of each chunk is `excess`."""
    found = Coherence.__new__(Coherence)
    windows = np.where(np.isnan(excess), 0, 128)
    values = {"excess": excess, "noise": np.ones(len(excess)), "windows": windows, "starts": np.arange(len(excess))}
    for name, value in values.items():
        object.__setattr__(found, name, value)
    return found


@pytest.mark.parametrize(
    ("stream", "told"),
    [
        (np.full(100_000, 7), ("undecided", "too little to shuffle: order can show in 0 windows, and 256 windows of "
                               "8 tokens are needed")),
        (np.full(100_000, SEPARATOR), ("undecided", "too little to shuffle: order can show in 0 windows, and 256 "
                                       "windows of 8 tokens are needed")),
        ([], ("undecided", "too short to tell: 0 tokens, and 256 windows of 8 tokens are needed")),
        ([5], ("undecided", "too short to tell: 1 tokens, and 256 windows of 8 tokens are needed")),
        (_random_ids(100_000, 50_257), ("scrambled", NOWHERE)),
        (_random_ids(100_000, 2), ("scrambled", NOWHERE)),
        *((np.tile(_random_ids(period, 50_257), 99_999 // period), ("coherent", SHOWS)) for period in (2, 7, 8, 999)),
    ],
)  # fmt: skip
def test_streams_that_are_no_text(file: Path, stream: Any, told: tuple[str, str]) -> None:
    assert _told(examined(stream, file, separator=SEPARATOR)) == told


def test_text_in_4_bytes_is_as_coherent(novels: U2, file: Path) -> None:
    found = examined(novels.astype("<u4") + 200_000, file, "u4")
    assert (found.verdict, found.largest_id) == ("coherent", 200_000 + SEPARATOR)


@pytest.mark.parametrize("dtype", [">u2", "<u8", "<i8"])
def test_an_array_of_any_integers_is_examined_alike(novels: U2, tmp_path: Path, file: Path, dtype: str) -> None:
    np.save(tmp_path / "x.npy", novels[:20_000].astype(dtype))
    found = examine(open_token_file(tmp_path / "x.npy", None))
    assert found.excess.tolist() == examined(novels[:20_000], file).excess.tolist()


def test_a_negative_id_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(-1, 5000))
    with pytest.raises(RecordError, match=r"x.npy: token 0: expected an id below 1,048,576, read -1 "):
        examine(open_token_file(tmp_path / "x.npy", None))


def test_two_streams_token_by_token_in_turn_are_scrambled(novels: U2, file: Path) -> None:
    """No token is tied to the one before it; the information at lag 2 tells why."""
    half = len(novels) // 2
    found = examined(np.stack([novels[:half], novels[half : 2 * half]], axis=1).ravel(), file)
    assert (found.verdict, found.points.information[2] > 10 * found.points.information[1]) == ("scrambled", True)


def test_reversed_text_and_shuffled_documents_are_no_scramble(novels: U2, file: Path) -> None:
    """What the test does not see: neighbours are still neighbours."""
    starts = np.flatnonzero(novels == SEPARATOR)
    documents = np.split(novels, starts[1:])
    assert examined(novels[::-1], file).verdict == "coherent"
    assert examined(np.concatenate(documents[::-1]), file).verdict == "coherent"


def test_the_edges_of_padding_are_no_order_when_the_separator_is_named(novels: U2, file: Path) -> None:
    rows = np.full((300, 1024), SEPARATOR, "<u2")
    rows[:, :300] = shuffle_blocks(novels[novels != SEPARATOR][:90_000], 300).reshape(300, 300)
    assert _told(examined(rows.ravel(), file, separator=SEPARATOR)) == ("scrambled", NOWHERE)
    rows[:, :300] = novels[novels != SEPARATOR][:90_000].reshape(300, 300)
    assert _told(examined(rows.ravel(), file, separator=SEPARATOR)) == ("coherent", SHOWS)


def test_z_of_shuffled_chunks_is_standard_normal(pins: Path, file: Path) -> None:
    """So 1 % of them reach 2.33: the chance that a shuffled chunk is taken for order."""
    z = examined(shuffle_blocks(sample_stream(pins), 1024), file).z
    z = z[np.isfinite(z)]
    assert (len(z) > 2300, abs(z.mean()) < 0.06, 0.95 < z.std() < 1.05) == (True, True, True)
    assert 0.002 < (z >= ORDER).mean() < 0.02


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), size=st.integers(2, 1000), skew=st.integers(1, 6))
def test_no_order_is_seen_in_random_ids_of_any_distribution(file: Path, seed: int, size: int, skew: int) -> None:
    ids = size * (counter_keys(8192, f"property {seed}") / 2.0**64) ** skew
    found = examined(ids, file, seed=seed)
    assert abs(found.total_z) < 5.5


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tokens=st.integers(0, 300_000), chunks=st.integers(1, 40))
def test_the_size_of_chunks_moves_no_sum(novels: U2, file: Path, tokens: int, chunks: int) -> None:
    fine = examined(novels[:tokens], file)
    coarse = examined(novels[:tokens], file, chunk_tokens=chunks * 1024)
    assert coarse.total_z == pytest.approx(fine.total_z)
    assert int(coarse.windows.sum()) == int(fine.windows.sum())
    assert coarse.starts.tolist() == fine.starts[::chunks].tolist()[: max(1, len(fine.starts) // chunks)]


def test_a_file_is_told_the_same_twice_and_by_another_seed_alike(novels: U2, file: Path) -> None:
    first, again, other = (examined(novels, file, seed=seed) for seed in (0, 0, 1))
    assert first.excess.tolist() == again.excess.tolist()
    assert to_json(first) == to_json(again)
    assert (first.excess.tolist() == other.excess.tolist(), other.verdict) == (False, "coherent")


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(pins: Path, file: Path) -> None:
    peaks = []
    for times in (2, 8):
        np.tile(sample_stream(pins), times).tofile(file)
        tracemalloc.start()
        examine(open_token_file(file, "u2"))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (peaks[1] < 1.1 * peaks[0], peaks[1] < 300e6) == (True, True)


@pytest.mark.parametrize("mean", [0.002, 0.06, 0.308, 2.3, 37.6, 1000.0, 2000.0])
def test_how_many_chunks_a_verdict_takes(mean: float) -> None:
    """By Poisson's law, summed from the far end."""
    bound = _poisson_bound(mean, 1e-4)

    def at_least(count: int) -> float:
        logs = [k * math.log(mean) - mean - math.lgamma(k + 1) for k in range(count, count + 5000)]
        return math.fsum(math.exp(log) for log in logs)

    assert at_least(bound) <= 1e-4 < at_least(bound - 1)


@pytest.mark.parametrize(
    ("dtype", "options", "problem"),
    [
        ("u4", {}, "{path}: token 0: expected an id below 1,048,576, read "),
        ("u2", {"vocabulary_size": 50_256}, "{path}: token 0: expected an id below 50,256, read 50,256 (is --dtype, "),
        ("u2", {"chunk_tokens": 1000}, "chunk_tokens: expected a multiple of 1,024, read 1000"),
        ("u2", {"chunk_tokens": 0}, "chunk_tokens: expected a multiple of 1,024, read 0"),
    ],
)
def test_ids_that_cannot_be_are_refused(
    novels: U2, file: Path, dtype: str, options: dict[str, int], problem: str
) -> None:
    novels[:2048].tofile(file)
    with pytest.raises(RecordError) as caught:
        examine(open_token_file(file, dtype), **options)  # type: ignore[arg-type]
    expected = "TOKENS_INVALID " + problem.format(path=file)
    assert str(caught.value)[: len(expected)] == expected


def test_the_report_of_a_short_text(novels: U2, file: Path) -> None:
    found = examined(novels[:50_000], file, separator=SEPARATOR, vocabulary_size=50_257)
    lines = list(text_lines(found, observed_loss=2.5))
    assert lines[:4] == [
        f"{file}: coherent: {SHOWS}",
        "  tokens     50,000 ids of u2, the largest 50,256",
        f"  separator  50,256 stands here {np.count_nonzero(novels[:50_000] == SEPARATOR)} times",
        "  order      shows in 48 of 48 chunks of 1,024 tokens; 0 hold too little to tell",
    ]
    assert [line.split(":")[0].strip() for line in lines[4:]] == [
        "loss       nats a token, knowing nothing (50,257 ids)",
        "knowing token frequencies",
        "knowing the token before, too",
        "a token    tells of the one 1, 2, 4, 8 later, nats over a shuffle",
        "observed   2.5",
    ]


def test_a_separator_that_is_not_there_is_told(novels: U2, file: Path) -> None:
    for separator in (int(np.setdiff1d(np.arange(SEPARATOR), novels)[0]), 60_000):
        lines = list(text_lines(examined(novels, file, separator=separator)))
        assert lines[2] == f"  separator  {separator:,} stands here never: is it another id?"


def test_the_report_lists_the_first_places_and_json_all(novels: U2, file: Path) -> None:
    chosen = list(range(3, 303, 20))
    found = examined(shuffle_blocks(novels, 1024, chosen), file)
    lines = list(text_lines(found))
    assert lines[3] == "  without    tokens 3,072 to 4,096 (1 chunk)"
    assert lines[14:16] == [
        "             tokens 228,352 to 229,376 (1 chunk)",
        "             and 3 more places: --format json lists them",
    ]
    record = json.loads(to_json(found, observed_loss=6.6))
    assert record["without_order"] == [{"begin": k * 1024, "end": (k + 1) * 1024, "chunks": 1} for k in chosen]
    assert (record["verdict"], record["chunks_without_order"], record["chunks"]) == ("scrambled", 15, 308)
    assert record["observed_loss"] == {"nats": 6.6, "meaning": "has learned token frequencies only"}


def test_the_last_chunk_ends_with_the_file(novels: U2, file: Path) -> None:
    found = examined(shuffle_blocks(novels[:204_900], 1024, range(190, 200)), file)
    assert json.loads(to_json(found))["without_order"] == [{"begin": 190 * 1024, "end": 204_900, "chunks": 10}]


@pytest.mark.parametrize("tokens", [0, 2_000, 315_850])
def test_the_plot_is_a_picture(novels: U2, tmp_path: Path, file: Path, tokens: int) -> None:
    write_plot(examined(shuffle_blocks(novels, 1024, range(10))[:tokens], file), tmp_path / "x.png")
    content = (tmp_path / "x.png").read_bytes()
    assert (content[:8], struct.unpack(">II", content[16:24])) == (b"\x89PNG\r\n\x1a\n", (800, 300))


def test_a_few_chunks_without_order_pass_for_text_and_are_told(novels: U2, file: Path) -> None:
    found = examined(shuffle_blocks(novels, 1024, [50, 60, 70]), file, seed=1)
    assert (found.needed, found.total_z > FILE_ORDER) == (5, True)
    few = f"{SHOWS}; 3 do not, which passes for tables and passwords in text"
    assert _told(found) == ("coherent", few)
