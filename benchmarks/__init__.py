"""Every figure of the README, one command each: `python -m benchmarks.<name>`, beside a peer in the same run."""
