"""Triton kernel text, and nothing else: the checks and the launches are in structgen/kernels/<op>.py."""
