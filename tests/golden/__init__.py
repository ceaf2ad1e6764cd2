"""One tiny generation and mix, byte for byte: a change of any format shows as a difference to review.

`python -m tests.golden.rebuild` (`make golden`) rewrites `expected/`; the test builds it anew and compares bytes.
"""
