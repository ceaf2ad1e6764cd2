"""The records that travel between rooms: frozen dataclasses, canonical JSON, digests, errors.

Guarantees: a record that parses has exactly the fields of its format, of the right type; its bytes are the only bytes
that parse to it. Costs nothing of ours: this package imports no other room.
"""
