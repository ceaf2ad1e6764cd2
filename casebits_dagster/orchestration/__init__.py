"""Dagster's side of the house: partitions, resources, checks, metadata, run records, the instance, the demo.

Nothing here decides a byte of the corpus: an asset calls one verb of a room below, and this room says what came of it.
"""
