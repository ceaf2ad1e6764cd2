"""Source formats: pinned rows in, columns of documents out. One module a format, one line a module here."""

from casebits_dagster.sources import parquet_tokens
from casebits_dagster.sources.columns import RangeDigest, RowCount, RowReader

ROW_READERS: dict[str, RowReader] = {"parquet_tokens": parquet_tokens.read_rows}
ROW_COUNTS: dict[str, RowCount] = {"parquet_tokens": parquet_tokens.count_rows}
RANGE_DIGESTS: dict[str, RangeDigest] = {"parquet_tokens": parquet_tokens.range_digest}
