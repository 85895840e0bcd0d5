"""Whole models from ``torch.nn``, trained with ``torch.optim``."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import nn
from torch.nn import functional

from pi_runners.frameworks.torch.operations import TorchBackend
from pi_runners.frameworks.torch.settings import without_gradients
from pi_runners.harness.contract import Array, Backend, Parameters, Unsupported
from pi_runners.models import initial
from pi_runners.models.layers import BuiltModel, Filters, Layers, ModelTraining, Pair
from pi_runners.models.network import Network


class TorchModel(nn.Module, Layers):
    """A module whose submodules are created in the first forward pass.

    Attributes:
        attends: Whether the model has attention.
    """

    def __init__(self, backend: Backend, network: Network, mode: str) -> None:
        super().__init__()
        self.attends = False
        self._backend = backend
        self._definition = network, mode
        self._named: Dict[str, Any] = {}

    def forward(self, p: Parameters, *inputs: Array) -> Array:
        network, mode = self._definition
        return network.forward(self, inputs, p, mode)

    def _layer(
        self,
        name: str,
        make: Callable[[], nn.Module],
        weights: Sequence[initial.InitialWeight],
        attributes: Sequence[str] = ("weight", "bias"),
    ) -> Any:
        """Return the layer of a name; make it with these initial weights in its attributes if there is none."""
        layer = self._named.get(name)
        if layer is None:
            layer = make().to(device=self._backend.device, dtype=getattr(torch, self._backend.dtype))
            with torch.no_grad():
                for attribute, weight in zip(attributes, weights):
                    value = weight.make(self._backend)
                    # The matrices and filters of these layers are transposed.
                    is_transposed = isinstance(layer, (nn.Linear, nn.ConvTranspose2d)) and value.dim() > 1
                    getattr(layer, attribute).copy_(value.transpose(0, 1) if is_transposed else value)
            self._add(name, layer)
        return layer

    def _add(self, name: str, layer: Any) -> None:
        self._named[name] = layer
        # A new module is in training mode, whatever the mode of its parent.
        if isinstance(layer, nn.Module):
            layer.train(self.training)
        plain = name.replace(".", "_")
        if isinstance(layer, nn.Parameter):
            self.register_parameter(plain, layer)
        else:
            self.add_module(plain, layer)

    def _weight(self, weight: initial.InitialWeight) -> Any:
        if weight.name not in self._named:
            self._add(weight.name, nn.Parameter(weight.make(self._backend)))
        return self._named[weight.name]

    def convolution(self, name: str, x: Array, filters: Filters) -> Array:
        channels, (number, kernel, stride, groups, bias) = x.shape[1], filters

        def make() -> nn.Module:
            return nn.Conv2d(channels, number, kernel, stride, filters.padding, groups=groups, bias=bias)

        return self._layer(name, make, filters.weights(name, channels))(x)

    def transposed_convolution(self, name: str, x: Array, filters: int) -> Array:
        channels = x.shape[1]
        weights = [initial.filters(name, (filters, channels, 2, 2)), initial.bias(name, filters)]
        return self._layer(name, lambda: nn.ConvTranspose2d(channels, filters, 2, 2), weights)(x)

    def batch_norm(self, name: str, x: Array, gain: float = 1.0) -> Array:
        width = x.shape[1]
        return self._layer(name, lambda: nn.BatchNorm2d(width), initial.norm(name, width, gain))(x)

    def dense(self, name: str, x: Array, width: int, bias: bool = True) -> Array:
        inputs = x.shape[-1]
        weights = initial.dense(name, inputs, width, bias)
        return self._layer(name, lambda: nn.Linear(inputs, width, bias=bias), weights)(x)

    def layer_norm(self, name: str, x: Array, epsilon: float = 1e-5) -> Array:
        width = x.shape[-1]
        return self._layer(name, lambda: nn.LayerNorm(width, eps=epsilon), initial.norm(name, width))(x)

    def embedding(self, name: str, indices: Array, rows: int, width: int) -> Array:
        return self._layer(name, lambda: nn.Embedding(rows, width), [initial.table(name, rows, width)])(indices)

    def tied_dense(self, name: str, x: Array) -> Array:
        """`linear` with the table of an `nn.Embedding`."""
        return functional.linear(x, self._named[name].weight)

    def prepend_token(self, name: str, x: Array) -> Array:
        token = self._weight(initial.table(name, 1, x.shape[-1]))
        return torch.cat([token.expand(x.shape[0], 1, -1), x], dim=1)

    def _heads(self, name: str, x: Array, heads: int) -> List[Array]:
        projected = [self.dense(name + part, x, x.shape[-1]) for part in (".query", ".key", ".value")]
        return [y.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2) for y in projected]

    def self_attention(self, name: str, x: Array, heads: int, causal: bool = False) -> Array:
        return self._merge(name, self._attention(*self._heads(name, x, heads), is_causal=causal))

    def cached_attention(self, name: str, x: Array, heads: int, cache: Pair) -> Tuple[Array, Pair]:
        q, *new = self._heads(name, x, heads)
        keys, values = (torch.cat(pair, dim=2) for pair in zip(cache, new))
        return self._merge(name, self._attention(q, keys, values)), (keys, values)

    def _attention(self, q: Array, k: Array, v: Array, **options: Any) -> Array:
        if not self.attends:
            self.attends = True
        return functional.scaled_dot_product_attention(q, k, v, **options)

    def _merge(self, name: str, mixed: Array) -> Array:
        joined = mixed.transpose(1, 2).reshape(mixed.shape[0], mixed.shape[2], -1)
        return self.dense(name + ".output", joined, joined.shape[-1])

    def lstm(self, name: str, x: Array, hidden: int, state: Optional[Pair] = None) -> Tuple[Array, Pair]:
        """`nn.LSTM`, whose second bias is 0."""
        inputs = x.shape[-1]
        attributes = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0")
        weights = initial.recurrent(name, inputs, hidden)
        is_new = name not in self._named
        layer = self._layer(name, lambda: nn.LSTM(inputs, hidden, batch_first=True), weights, attributes)
        if is_new:
            nn.init.zeros_(layer.bias_hh_l0)
        outputs, (h, c) = layer(x, None if state is None else tuple(s.unsqueeze(0) for s in state))
        return outputs, (h[0], c[0])

    relu = staticmethod(functional.relu)
    relu6 = staticmethod(functional.relu6)

    def gelu(self, x: Array, approximate: bool = False) -> Array:
        return functional.gelu(x, approximate="tanh" if approximate else "none")

    tanh = staticmethod(torch.tanh)

    max_pool = staticmethod(functional.max_pool2d)

    def global_mean(self, x: Array) -> Array:
        return functional.adaptive_avg_pool2d(x, 1).flatten(1)

    def join_channels(self, x: Array, y: Array) -> Array:
        return torch.cat([x, y], dim=1)

    def join(self, x: Array, y: Array) -> Array:
        return torch.cat([x, y], dim=-1)

    def as_sequence(self, x: Array) -> Array:
        return x.flatten(2).transpose(1, 2)

    def attend(self, queries: Array, memory: Array) -> Array:
        # The argument `scale` is newer than the function: multiply the queries instead.
        scaled = queries * memory.shape[-1] ** 0.5
        return self._attention(scaled, memory, memory)

    def pairwise_products(self, vectors: Sequence[Array]) -> Array:
        stacked = torch.stack(list(vectors), dim=1)
        rows, columns = torch.tril_indices(len(vectors), len(vectors), -1, device=stacked.device)
        return torch.bmm(stacked, stacked.transpose(1, 2))[:, rows, columns]

    def rows(self, x: Array) -> Array:
        return x.movedim(1, -1).reshape(-1, x.shape[1]) if x.dim() == 4 else x.reshape(-1, x.shape[-1])


def build(backend: TorchBackend, network: Network, p: Parameters, mode: str, inputs: Sequence[Array]) -> BuiltModel:
    """Return a model; see :meth:`Backend.build_model`. A setting that changes nothing in it is not supported."""
    wrap = backend.under_settings
    model = TorchModel(backend, network, mode).eval()
    with torch.no_grad():
        model(p, *inputs)
    _refuse_settings_without_effect(backend.settings, model, mode)
    if backend.settings.get("memory_format") == "channels_last":
        model = model.to(memory_format=torch.channels_last)

    def infer(p: Parameters, batch: Sequence[Array]) -> Callable[[], Any]:
        model.eval()
        compute = wrap(lambda *arrays: model(p, *arrays))

        def run() -> Any:
            with without_gradients(backend.settings):
                return compute(*batch)

        return run

    def train(p: Parameters, batch: Sequence[Array], labels: Array) -> ModelTraining:
        model.train()
        if network.optimiser == "adamw":
            optimiser: Any = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01)
        else:
            optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

        def loss_of(*arrays: Array) -> Array:
            return functional.cross_entropy(model(p, *arrays[:-1]).float(), arrays[-1])

        expected = None
        if backend.settings.get("compile", "off") != "off":
            # The gradient is checked without compilation, which would compile a small batch, too.
            with torch.no_grad():
                expected = float(wrap(loss_of, is_compiled=False)(*batch, labels))
        compute = wrap(loss_of)
        scaler = _gradient_scaler(backend)

        def step() -> Any:
            optimiser.zero_grad(set_to_none=True)
            loss = compute(*batch, labels)
            scaler.scale(loss).backward()
            scaler.step(optimiser)
            scaler.update()
            return loss.detach()

        return ModelTraining(step, expected)

    def gradient(p: Parameters, batch: Sequence[Array], labels: Array) -> Tuple[float, float]:
        model.train()
        mixed = wrap(lambda *arrays: functional.cross_entropy(model(p, *arrays).float(), labels), is_compiled=False)
        loss = mixed(*batch)
        parameters = list(model.parameters())
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        pairs = zip(gradients, parameters)
        derivative = sum(float((g.float() * w.detach().float() ** 2).sum()) for g, w in pairs if g is not None)
        return float(loss.detach()), derivative

    return BuiltModel(infer, train, gradient)


def _refuse_settings_without_effect(settings: Parameters, model: TorchModel, mode: str) -> None:
    if settings.get("memory_format") == "channels_last" and all(w.dim() != 4 for w in model.parameters()):
        raise Unsupported("`memory_format` changes nothing: the model has no images")
    if "sdpa" in settings and not model.attends:
        raise Unsupported("`sdpa` changes nothing: the model has no attention")
    if mode == "training" and settings.get("grad_mode", "enabled") != "enabled":
        raise Unsupported("`grad_mode={}` is for inference: training needs gradients".format(settings["grad_mode"]))


def _gradient_scaler(backend: Backend) -> Any:
    """Return a scaler of the loss, which mixed precision with float16 needs; without it, it does nothing."""
    enabled = backend.settings.get("amp") == "float16"
    # `torch.amp.GradScaler` exists since PyTorch 2.3.
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(backend.device, enabled=enabled)
    return torch.cuda.amp.GradScaler(enabled=enabled)
