"""Crashes: real kills and errors at every system call of publishing, and a model of what a power cut may leave."""
