#!/usr/bin/env python3
"""Makes tiny checkpoints with reference logits from the transformers library's own model code.

    scripts/make-fixtures.py OUT_FOLDER [NAME ...]

Needs torch, transformers 5.17 and safetensors. Weights are random bf16, norms and biases far from
neutral, so that leaving one out shows. Everything in expected.safetensors is computed in float32 on
the stored weights: input_ids [T], logits [T, V], generated [16] (greedy, recomputed from scratch
each step) and margin [16] (best minus second-best logit).
"""
import json
import os
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, MixtralConfig, Qwen3MoeConfig

COMMON = dict(
    hidden_size=64,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=160,
    max_position_embeddings=512,
    bos_token_id=1,
    eos_token_id=2,
)
QWEN3 = dict(
    COMMON,
    head_dim=16,
    intermediate_size=96,
    moe_intermediate_size=32,
    num_hidden_layers=3,
    num_experts=8,
    num_experts_per_tok=2,
    norm_topk_prob=True,
)
FIXTURES = {
    "qwen3_moe_window": (
        Qwen3MoeConfig,
        dict(QWEN3, use_sliding_window=True, sliding_window=12, max_window_layers=0,
             attention_bias=True),
    ),
    "qwen3_moe_llama3": (
        Qwen3MoeConfig,
        dict(QWEN3, rope_parameters=dict(
            rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0,
            high_freq_factor=4.0, original_max_position_embeddings=32)),
    ),
    "qwen3_moe_linear": (
        Qwen3MoeConfig,
        dict(QWEN3, tie_word_embeddings=True,
             rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)),
    ),
    "mixtral_window": (
        MixtralConfig,
        dict(COMMON, intermediate_size=96, num_hidden_layers=2, num_local_experts=4,
             num_experts_per_tok=2, sliding_window=12),
    ),
}
N_TOKEN = 48
N_NEW = 16


def randomise(model, generator):
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            value = torch.randn(p.shape, generator=generator) * 0.5
        elif p.dim() == 1:
            value = 1 + 0.3 * torch.randn(p.shape, generator=generator)
        else:
            value = torch.randn(p.shape, generator=generator) * p.shape[-1] ** -0.5 * 1.5
        p.data = value.to(torch.bfloat16).float()


@torch.no_grad()
def make(name, out):
    config_class, fields = FIXTURES[name]
    generator = torch.Generator().manual_seed(len(name) * 1009 + sum(map(ord, name)))
    model = AutoModelForCausalLM.from_config(
        config_class(**fields), attn_implementation="eager").float().eval()
    randomise(model, generator)
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    ids = torch.randint(3, fields["vocab_size"], (N_TOKEN,), generator=generator)
    logits = model(ids[None]).logits[0]
    sequence, generated, margin = ids, [], []
    for _ in range(N_NEW):
        last = model(sequence[None], use_cache=False).logits[0, -1]
        best = torch.topk(last, 2)
        generated.append(best.indices[0])
        margin.append(best.values[0] - best.values[1])
        sequence = torch.cat([sequence, best.indices[:1]])
    save_file({"input_ids": ids, "logits": logits.contiguous(), "generated": torch.stack(generated),
               "margin": torch.stack(margin)}, os.path.join(folder, "expected.safetensors"))
    model.to(torch.bfloat16).save_pretrained(folder)
    for extra in ("generation_config.json",):
        path = os.path.join(folder, extra)
        if os.path.exists(path):
            os.remove(path)
    with open(os.path.join(folder, "config.json")) as f:
        print(name, json.dumps(json.load(f)))


if __name__ == "__main__":
    for wanted in sys.argv[2:] or FIXTURES:
        make(wanted, sys.argv[1])
