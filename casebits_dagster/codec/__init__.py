"""The CaseBits codec: lower-case byte-level BPE ids plus a 16-bit mask of ASCII capitals a token."""
