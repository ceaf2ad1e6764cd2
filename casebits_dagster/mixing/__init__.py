"""Mixes: whole documents chosen to targets, laid out in windows of exactly T tokens, written as flat token files.

Who decides an order never holds tokens, who copies tokens never decides an order.
"""
