"""Operations of TensorFlow: their layers, and the performance indicators that stand for them.

The traces of TensorFlow hold no shapes of its operations.
"""

from __future__ import annotations

import re

from knowledge.domain.workload import Direction
from pi_runners.profile.timeline import Claim

_INDICATORS: tuple[tuple[str, Direction, re.Pattern[str]], ...] = (
    ("conv2d", "backward", re.compile(r"Conv2[dD].*Backprop")),
    ("conv3d", "backward", re.compile(r"Conv3D.*Backprop")),
    ("conv3d", "forward", re.compile(r"Conv3D")),
    ("conv2d", "forward", re.compile(r"Conv2D|Conv2d|DepthwiseConv")),
    ("matmul", "forward", re.compile(r"MatMul|Einsum")),
    ("normalisation", "backward", re.compile(r"(BatchNorm|LayerNorm).*Grad")),
    ("normalisation", "forward", re.compile(r"BatchNorm|LayerNorm")),
    ("softmax", "forward", re.compile(r"^_?(Mkl)?(Log)?Softmax|SoftmaxCrossEntropy")),
    ("recurrent", "backward", re.compile(r"^(CudnnRNN|LSTMBlock|GRUBlock|BlockLSTM).*(Grad|Backprop)")),
    ("recurrent", "forward", re.compile(r"^(CudnnRNN|LSTMBlock|GRUBlock|BlockLSTM)")),
    ("embedding", "backward", re.compile(r"^(UnsortedSegmentSum|SparseSegment.*Grad|ResourceScatter|ScatterNd)")),
    ("embedding", "forward", re.compile(r"^(ResourceGather|Gather(V2)?|GatherNd|SparseSegment)$")),
    ("reduction", "forward", re.compile(r"^(Sum|Mean|Max|Min|Prod|All|Any|ArgMax|ArgMin|L2Loss|BiasAddGrad)$")),
    ("sort", "forward", re.compile(r"^(TopK|TopKV2|Sort)$")),
    ("fft", "forward", re.compile(r"^(RFFT|FFT|IRFFT|IFFT)")),
    (
        "elementwise",
        "forward",
        re.compile(
            r"^_?(Mkl)?(Fused)?(Add|AddV2|AddN|Sub|Mul|Div|RealDiv|DivNoNan|BiasAdd|Relu|Relu6|ReluGrad|Tanh|TanhGrad|"
            r"Sigmoid|SigmoidGrad|Exp|Log|Sqrt|Rsqrt|RsqrtGrad|SqrtGrad|Square|Pow|Neg|Abs|Select|SelectV2|Maximum|"
            r"Minimum|Gelu|GeluGrad|Elu|Selu|Softplus|LeakyRelu|SquaredDifference|Erf|ClipByValue|Assign\w*VariableOp|"
            r"ResourceApply\w+|_FusedBinary\w*|Greater|Less|Equal|LogicalAnd|LogicalNot|Round|Floor)$"
        ),
    ),
)
_COPIES = re.compile(
    r"^_?(Mkl)?(Transpose|ConcatV2|Slice|StridedSlice|Pack|Unpack|Cast|Tile|Pad|Split|Reverse|Copy|_?MklToTf)"
)
_INPUT = re.compile(r"Iterator|Dataset|DecodeJpeg|DecodePng|DecodeImage|ParseExample|ReadFile")
_COMMUNICATION = re.compile(r"Collective|Nccl|AllReduce|^_?(Send|Recv)$|_HostSend|_HostRecv")


def claim_of(operator: str) -> Claim | None:
    """Return the indicator that stands for an operation, or ``None``."""
    for indicator, direction, pattern in _INDICATORS:
        if pattern.search(operator):
            return Claim(indicator, (), "", direction)
    return None


def layer_of(operator: str) -> str:
    """Return the layer of an operation."""
    if _COMMUNICATION.search(operator):
        return "communication"
    if _INPUT.search(operator):
        return "input pipeline"
    if "MatMul" in operator or "Einsum" in operator:
        return "BLAS"
    if "Conv" in operator or operator.startswith(("_Mkl", "CudnnRNN")):
        return "DNN library"
    return "memory copies" if _COPIES.search(operator) else "framework"
