#!/usr/bin/env python3
"""Writes tests/data/golden/llama-tiny: a Llama saved by transformers in two files, and its logits, loss,
gradients and training in f64. Needs PyTorch and transformers.

    scripts/make_llama_reference.py

transformers computes rotary angles and norms in f32 in any model. Here both are computed in f64: the
frequencies by a formula that is compared with transformers' own, the norms by PyTorch's function.
"""

import functools
import math
import pathlib

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRMSNorm

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "golden" / "llama-tiny"
SCALING = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 64}
THETA, HEAD_DIM, STEPS = 1000.0, 8, 10


def config(scaling):
    return LlamaConfig(vocab_size=48, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=2, head_dim=HEAD_DIM,
                       max_position_embeddings=128, rms_norm_eps=1e-5, initializer_range=0.3,
                       tie_word_embeddings=False,
                       rope_parameters={**(scaling or {"rope_type": "default"}), "rope_theta": THETA})


def frequencies(scaling):
    values = []
    for i in range(0, HEAD_DIM, 2):
        f = THETA ** (-i / HEAD_DIM)
        if scaling:
            low = scaling["original_max_position_embeddings"] / scaling["low_freq_factor"]
            high = scaling["original_max_position_embeddings"] / scaling["high_freq_factor"]
            length = 2 * math.pi / f
            if length > low:
                f /= scaling["factor"]
            elif length > high:
                smooth = ((scaling["original_max_position_embeddings"] / length - scaling["low_freq_factor"])
                          / (scaling["high_freq_factor"] - scaling["low_freq_factor"]))
                f = (1 - smooth) * f / scaling["factor"] + smooth * f
        values.append(f)
    return torch.tensor(values, dtype=torch.float64)


def norm(module, x):
    return torch.nn.functional.rms_norm(x, module.weight.shape, module.weight, module.variance_epsilon)


def in_f64(model, scaling):
    """The model in f64, its angles and norms too."""
    model = model.double()
    f = frequencies(scaling)
    torch.testing.assert_close(model.model.rotary_emb.inv_freq.double(), f, rtol=1e-6, atol=0)

    def tables(x, position_ids):
        angles = position_ids[:, :, None].double() * f
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()

    model.model.rotary_emb.forward = tables
    for module in model.modules():
        if isinstance(module, LlamaRMSNorm):
            module.forward = functools.partial(norm, module)
    return model


def loss_of(model, tokens):
    logits = model(input_ids=tokens[:, :-1]).logits
    return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def train(model, tokens):
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.95), weight_decay=0.1)
    losses, norms = [], []
    for batch in tokens:
        _, loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.detach())
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        optimizer.step()
    return torch.stack(losses), torch.stack(norms)


def main():
    torch.manual_seed(7)
    model = LlamaForCausalLM(config(SCALING))
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(FOLDER, max_shard_size="16KB")
    plain = LlamaForCausalLM(config(None))
    plain.load_state_dict(model.state_dict())
    tokens = torch.randint(48, (STEPS, 3, 25))
    out = {"tokens": tokens}
    out["logits_default_rope"] = in_f64(plain, None)(input_ids=tokens[0][:, :-1]).logits
    model = in_f64(model, SCALING)
    out["logits"], out["loss"] = loss_of(model, tokens[0])
    out["loss"].backward()
    out |= {f"grad.{name}": p.grad.clone() for name, p in model.named_parameters()}
    out["train_losses"], out["grad_norms"] = train(model, tokens)
    out |= {f"after.{name}": p for name, p in model.named_parameters()}
    save_file({name: value.detach().clone().contiguous() for name, value in out.items()},
              FOLDER / "expected.safetensors",
              {"training": "AdamW lr 4e-3, betas (0.9, 0.95), weight_decay 0.1 on every parameter, "
                           "clip_grad_norm 1.0, step s uses tokens[s] (B x (T+1)); all in f64"})


if __name__ == "__main__":
    main()
