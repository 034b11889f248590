#!/usr/bin/env python3
"""The losses that PyTorch gets from the weights and tokens of inputs.py, one a line.

  reference.py [--ranks N] [--bf16] [--steps N] [--beta2 X] [--clip X]

With --bf16 the weights begin rounded as in model_bf16.bin, and all else is computed in f32."""

import argparse

import torch
import torch.nn.functional as F

import inputs


def weights(bf16):
    named = {}
    for name, shape, values in inputs.parameters():
        tensor = torch.tensor(values.tolist()).reshape(shape)
        named[name] = (tensor.bfloat16().float() if bf16 else tensor).requires_grad_()
    return named


def loss_of(w, tokens, targets):
    width, heads = inputs.CHANNELS, inputs.HEADS
    rows, length = tokens.shape
    x = w["wte"][tokens] + w["wpe"][:length]
    for i in range(inputs.LAYERS):
        h = F.layer_norm(x, (width,), w["ln1w"][i], w["ln1b"][i])
        q, k, v = F.linear(h, w["qkvw"][i], w["qkvb"][i]).split(width, dim=2)
        q, k, v = (part.view(rows, length, heads, -1).transpose(1, 2) for part in (q, k, v))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(rows, length, width)
        x = x + F.linear(h, w["attprojw"][i], w["attprojb"][i])
        h = F.layer_norm(x, (width,), w["ln2w"][i], w["ln2b"][i])
        h = F.gelu(F.linear(h, w["fcw"][i], w["fcb"][i]), approximate="tanh")
        x = x + F.linear(h, w["fcprojw"][i], w["fcprojb"][i])
    x = F.layer_norm(x, (width,), w["lnfw"], w["lnfb"])
    return F.cross_entropy((x @ w["wte"][: inputs.TOKENS].T).flatten(0, 1), targets.flatten())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--beta2", type=float, default=0.95)
    parser.add_argument("--clip", type=float, default=1.0)
    options = parser.parse_args()
    stream = [token for number in range(options.ranks) for token in inputs.batch(number)]
    shape = (options.ranks * inputs.ROWS, inputs.POSITIONS)
    tokens = torch.tensor(stream).reshape(shape)
    targets = torch.tensor(stream[1:] + stream[:1]).reshape(shape)
    w = weights(options.bf16)
    optimizer = torch.optim.AdamW(w.values(), lr=3e-4, betas=(0.9, options.beta2), eps=1e-8, weight_decay=0)
    for _ in range(options.steps):
        optimizer.zero_grad()
        loss = loss_of(w, tokens, targets)
        loss.backward()
        if options.clip:
            torch.nn.utils.clip_grad_norm_(w.values(), options.clip)
        optimizer.step()
        print(f"{loss.item():.6f}")


if __name__ == "__main__":
    main()
