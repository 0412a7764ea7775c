"""Benchmarks: each prints ratios against a peer or a physical limit measured in the same run. Never imported by the product."""
