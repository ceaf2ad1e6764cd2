"""The seven files of a region: written once, read as memory maps."""
