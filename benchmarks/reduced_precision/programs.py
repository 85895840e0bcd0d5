"""The frameworks and settings of the experiment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from knowledge.catalogue.settings import Numerics


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Settings that are compared with float32.

    Attributes:
        settings: Values by name.
        numerics: What they do to results.
        how: How they are applied.
        environment: Environment variables; the program applies the rest.
    """

    settings: Mapping[str, str]
    numerics: Numerics
    how: str
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A framework.

    Attributes:
        framework: Its name.
        module: The program that runs in its environment.
        requirements: Packages of the environment.
        changes: Settings that are measured.
        training: Whether it trains; if not, it tests the weights that PyTorch trained.
    """

    framework: str
    module: str
    requirements: tuple[str, ...]
    changes: tuple[Change, ...]
    training: bool = True


def isa(**environment: str) -> Change:
    """Return the setting that changes rounding only, as the scale for the others: no AVX-512."""
    return Change(
        settings={"isa": "avx2"},
        numerics="reordered",
        how=" ".join(f"`{name}={value}`" for name, value in environment.items()),
        environment=environment,
    )


TORCH = Program(
    framework="torch",
    module="torch_program",
    requirements=("torch==2.13.0", "scikit-learn==1.9.1", "numpy==2.4.6"),
    changes=(
        isa(ONEDNN_MAX_CPU_ISA="AVX2", ATEN_CPU_CAPABILITY="avx2"),
        Change(settings={"amp": "bfloat16"}, numerics="reduced", how='`torch.autocast("cpu", dtype=torch.bfloat16)`'),
        Change(
            settings={"amp": "float16"},
            numerics="reduced",
            how='`torch.autocast("cpu", dtype=torch.float16)`, `torch.amp.GradScaler("cpu")`',
        ),
        Change(
            settings={"matmul_precision": "medium"},
            numerics="reduced",
            how='`torch.set_float32_matmul_precision("medium")`',
        ),
        Change(
            settings={"fpmath": "bfloat16"},
            numerics="reduced",
            how="`ONEDNN_DEFAULT_FPMATH_MODE=BF16`",
            environment={"ONEDNN_DEFAULT_FPMATH_MODE": "BF16"},
        ),
    ),
)

KERAS = Program(
    framework="tensorflow",
    module="keras_program",
    requirements=("tensorflow-cpu==2.21.0", "keras==3.15.1", "scikit-learn==1.9.1"),
    changes=(
        isa(ONEDNN_MAX_CPU_ISA="AVX2"),
        Change(settings={"xla": "on"}, numerics="reordered", how="`jit_compile=True`"),
        Change(
            settings={"amp": "bfloat16"},
            numerics="reduced",
            how='`keras.mixed_precision.set_global_policy("mixed_bfloat16")`',
        ),
        Change(
            settings={"amp": "bfloat16", "xla": "on"},
            numerics="reduced",
            how='`keras.mixed_precision.set_global_policy("mixed_bfloat16")`, `jit_compile=True`',
        ),
        Change(
            settings={"amp": "float16"},
            numerics="reduced",
            how='`keras.mixed_precision.set_global_policy("mixed_float16")`',
        ),
        Change(
            settings={"fpmath": "bfloat16"},
            numerics="reduced",
            how="`ONEDNN_DEFAULT_FPMATH_MODE=BF16`",
            environment={"ONEDNN_DEFAULT_FPMATH_MODE": "BF16"},
        ),
    ),
)

JAX = Program(
    framework="jax",
    module="jax_program",
    requirements=("jax==0.10.2", "jaxlib==0.10.2", "scikit-learn==1.9.1"),
    changes=(
        isa(XLA_FLAGS="--xla_cpu_max_isa=AVX2"),
        Change(
            settings={"amp": "bfloat16"},
            numerics="reduced",
            how="weights in float32, converted to `jnp.bfloat16` before the forward pass",
        ),
        Change(
            settings={"matmul_precision": "bfloat16"},
            numerics="reduced",
            how="`JAX_DEFAULT_MATMUL_PRECISION=bfloat16`",
            environment={"JAX_DEFAULT_MATMUL_PRECISION": "bfloat16"},
        ),
    ),
)

ONNXRUNTIME = Program(
    framework="onnxruntime",
    module="onnxruntime_program",
    requirements=(*TORCH.requirements, "onnx==1.23.2", "onnxscript==0.7.2", "onnxruntime==1.32.0"),
    changes=(
        Change(
            settings={"graph_optimisation": "disable"},
            numerics="reordered",
            how="`graph_optimization_level = ORT_DISABLE_ALL`",
        ),
        Change(
            settings={"model_type": "float16"},
            numerics="reduced",
            how="`onnxruntime.transformers.float16.convert_float_to_float16`",
        ),
        Change(
            settings={"quantisation": "int8"},
            numerics="reduced",
            how="`onnxruntime.quantization.quantize_dynamic`",
        ),
    ),
    training=False,
)

PROGRAMS = (TORCH, KERAS, JAX, ONNXRUNTIME)
