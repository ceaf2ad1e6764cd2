"""The region plan of a generation, as lines for people: its totals, what it leaves out, and how far each region is."""

from __future__ import annotations

from casebits_dagster.filters.judge import require_metrics
from casebits_dagster.records.layout import ADMISSION, RECEIPT, Home, region_id
from casebits_dagster.records.pins import Generation, SourceFile
from casebits_dagster.records.plan import RegionSpec, Unit

_FIRST = 20


def plan_lines(generation: Generation, home: Home, *, whole: bool) -> list[str]:
    """Return the totals of a plan, which was computed again and checked as it was loaded, and its regions: the first
    ones, or all of them. Raises RecordError or Absent when its policy names a metric that cannot be computed."""
    require_metrics(generation.policy, generation.policy_file, generation.source.pin.format)
    shown = generation.plan if whole else generation.plan[:_FIRST]
    rest = len(generation.plan) - len(shown)
    return [
        *_totals(generation),
        "",
        f"{'region':<8}{'state':<10}{'begin':>12}{'end':>12}  unit  file",
        *(_row(generation, region, home) for region in shown),
        *([f"... and {rest:,} more: --all lists them"] if rest else []),
    ]


def human(size: int) -> str:
    """Return a number of bytes in the largest unit that it fills.

    >>> human(1023), human(268_435_456), human(560_351_531_447)
    ('1023 bytes', '256.0 MiB', '521.9 GiB')
    """
    for power, name in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size >= 1 << 10 * power:
            return f"{size / (1 << 10 * power):.1f} {name}"
    return f"{size} bytes"


def _totals(generation: Generation) -> list[str]:
    source, plan, pin = generation.source, generation.pin.plan, generation.source.pin
    size = sum(file.bytes for file in source.files)
    lines = [
        f"generation {generation.name}: {generation.pin.description}",
        f"  source     {pin.repo} at {pin.revision}",
        f"             {_files(len(source.files))}, {size:,} bytes ({human(size)})",
    ]
    if plan:
        tails = sum(region.end - region.begin < plan.region_bytes for region in generation.plan)
        each = f"of {plan.region_bytes:,} bytes ({human(plan.region_bytes)}) each"
        lines += [
            f"  cut into   {plan.regions:,} regions {each}, in the order of a salted hash",
            f"  selected   {len(generation.plan):,} regions, {tails} of them short tails of a file",
        ]
    else:
        lines.append(f"  selected   {len(generation.plan):,} regions, spelled out")
        lines += [f"  left out   {hole}" for hole in _holes(generation)]
    lines += [f"             {_share(generation, unit)}" for unit in sorted({r.unit for r in generation.plan})]
    lines.append(f"  sha256     {generation.plan_sha256}{', computed again now: as pinned' if plan else ''}")
    if generation.missing:
        lines.append(f"  cannot run {generation.missing}")
    return lines


def _files(count: int) -> str:
    return f"{count:,} file{'s' if count != 1 else ''}"


def _share(generation: Generation, unit: Unit) -> str:
    taken = sum(region.end - region.begin for region in generation.plan if region.unit == unit)
    units = ((generation.source.pin.unit(file.path), file) for file in generation.source.files)
    total = sum(_length(file, unit) for found, file in units if found == unit)
    size = f" ({human(taken)})" if unit == "bytes" else ""
    return f"{taken:,} {unit}{size} of {total:,}: {100 * taken / total:.2f} %"


def _length(file: SourceFile, unit: Unit) -> int:
    return file.bytes if unit == "bytes" else file.rows or 0


def _holes(generation: Generation) -> list[str]:
    """Return what no region holds, file by file."""
    said = []
    for file in generation.source.files:
        unit, cuts = generation.source.pin.unit(file.path), [0]
        for region in sorted((r for r in generation.plan if r.path == file.path), key=lambda r: r.begin):
            cuts += [region.begin, region.end]
        cuts.append(_length(file, unit))
        holes = [f"[{begin:,}, {end:,})" for begin, end in zip(cuts[::2], cuts[1::2], strict=True) if begin < end]
        if len(cuts) == 2:
            said.append(f"{file.path}: all of it")
        elif holes:
            said.append(f"{file.path}: {unit} {' '.join(holes)}")
    return said


def _row(generation: Generation, region: RegionSpec, home: Home) -> str:
    folder = home.generation(generation.name)
    path = folder.region(region.index)
    stages = {
        "admitted": path / ADMISSION,
        "refused": folder.rejections(region.index),
        "encoded": path / RECEIPT,
        "filtered": folder.verdicts(region.index),
    }
    state = next((name for name, record in stages.items() if record.exists()), "planned")
    row = f"{region_id(region.index):<8}{state:<10}{region.begin:>12}{region.end:>12}"
    return f"{row}  {region.unit:<5} {region.path}"
