"""Stores move finished files and folders: ranged reads, exclusive creates, folder publication. All network code."""
