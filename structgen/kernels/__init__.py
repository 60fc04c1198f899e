"""Hot loops on masks, logits and tries: one operation per file, which checks once and then chooses by device.

Each operation has a plain reference beside it. Nothing here knows a grammar or a model, and nothing here is imported
with the package: numba, torch and triton are only loaded by the operation that needs them.
"""
