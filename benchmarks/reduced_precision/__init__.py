"""Measures what settings that change rounding or precision do to the results of models.

`python -m benchmarks.reduced_precision` makes an environment for each framework and runs `torch_program`,
`keras_program`, `jax_program` and `onnxruntime_program` in it: these modules, `digits` and `experiment` import nothing
else of this repository.
"""
