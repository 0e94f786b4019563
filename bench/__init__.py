"""Benchmarks: ``python -m bench.<subject>`` prints ratios measured in one run. Not shipped."""
