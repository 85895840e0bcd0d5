"""Fine-tunes a language model."""

import torch

model = torch.nn.Transformer(d_model=512)
optimiser = torch.optim.AdamW(model.parameters())
