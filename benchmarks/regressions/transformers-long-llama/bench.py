"""Generate text with a Llama whose longest sequence is long (https://github.com/huggingface/transformers/issues/29412).

The model of the report, Code Llama with 7 billion weights, would be a large download. This one is small and has random
weights, but the same longest sequence of 16384 tokens. So the ratio can be larger: less of the time is in the products.
"""

import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

TOKENS = 20

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=1000,
    hidden_size=512,
    intermediate_size=1376,
    num_hidden_layers=8,
    num_attention_heads=8,
    max_position_embeddings=16384,
)
model = LlamaForCausalLM(config).eval()
prompt = torch.arange(3, 13).reshape(1, -1)
options = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0, "attention_mask": torch.ones_like(prompt)}
model.generate(prompt, max_new_tokens=2, **options)

start = time.perf_counter()
model.generate(prompt, max_new_tokens=TOKENS, **options)
print(f"seconds: {time.perf_counter() - start:.6f}")
