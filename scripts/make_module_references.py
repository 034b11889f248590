#!/usr/bin/env python3
"""Writes tests/data/reference/modules.safetensors: results of PyTorch for layers with several inputs, in the form
of layers.safetensors (see the README there). Needs PyTorch; run it again only to add cases.

    scripts/make_module_references.py
"""

import torch

from make_references import FOLDER, References, randn

TIMES, KEYS = 4, 5


def add_module(to, name, op, module, inputs, args, **given):
    """Inputs, then the parameters in PyTorch's order. Those that start at 0 are moved."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    names, parameters = zip(*module.named_parameters())

    def run(*leaves):
        x, weights = leaves[:len(inputs)], dict(zip(names, leaves[len(inputs):]))
        return torch.func.functional_call(module, weights, (x[0], x[1:]) if op == "lstm_cell" else x, given)

    to.add(name, op, {**args, "count": len(inputs), "parameters": list(names)}, [*inputs, *parameters], run)


def causal():
    return torch.triu(torch.ones(TIMES, TIMES, dtype=torch.bool), 1)


def add_transformers(to):
    """Masks are given by name: "causal", and "padding", which hides the last place from the second sequence."""
    hidden = torch.zeros(2, TIMES, dtype=torch.bool)
    hidden[1, -1] = True
    for name, args, masks in (
            ("relu", {}, []),
            ("gelu", {"activation": "gelu", "norm_first": True}, ["causal"]),
            ("no_bias", {"bias": False, "layer_norm_eps": 1e-2}, ["padding"]),
            ("first", {"norm_first": True}, [])):
        layer = {"d_model": 6, "nhead": 2, "dim_feedforward": 5, **args}
        given = {**layer, "dropout": 0.0, "batch_first": True, "dtype": torch.float64}
        encoder = torch.nn.TransformerEncoder(
            torch.nn.TransformerEncoderLayer(**given), 2, torch.nn.LayerNorm(6, dtype=torch.float64)
            if name == "relu" else None, enable_nested_tensor=False)
        add_module(to, f"encoder_{name}", "transformer_encoder", encoder, [randn(2, TIMES, 6)],
                   {**layer, "masks": masks}, **({"mask": causal()} if "causal" in masks else {}),
                   **({"src_key_padding_mask": hidden} if "padding" in masks else {}))
        decoder = torch.nn.TransformerDecoder(
            torch.nn.TransformerDecoderLayer(**given), 1, torch.nn.LayerNorm(6, dtype=torch.float64)
            if name == "gelu" else None)
        add_module(to, f"decoder_{name}", "transformer_decoder", decoder,
                   [randn(2, TIMES, 6), randn(2, KEYS, 6)], {**layer, "masks": masks},
                   **({"tgt_mask": causal()} if "causal" in masks else {}),
                   **({"tgt_key_padding_mask": hidden} if "padding" in masks else {}))


def add_convolutions(to):
    """Cases without a padding are of "same"."""
    for name, layer, shape, args in (
            ("same", torch.nn.Conv1d, (2, 2, 7), {"kernel_size": 4, "dilation": 3}),
            ("reflected", torch.nn.Conv1d, (2, 2, 7), {"kernel_size": 3, "padding": 2, "padding_mode": "reflect"}),
            ("same_circular", torch.nn.Conv1d, (1, 2, 6), {"kernel_size": 4, "padding_mode": "circular"}),
            ("same", torch.nn.Conv2d, (2, 2, 5, 6), {"kernel_size": [2, 3]}),
            ("same_reflected", torch.nn.Conv2d, (1, 2, 5, 6), {"kernel_size": [4, 2], "padding_mode": "reflect"}),
            ("replicated", torch.nn.Conv2d, (1, 2, 4, 5), {"kernel_size": [3, 3], "padding": [2, 5], "stride": 2,
                                                            "padding_mode": "replicate"})):
        module = layer(2, 3, **{"padding": "same", **args}, dtype=torch.float64)
        add_module(to, f"{layer.__name__}_{name}", layer.__name__, module, [randn(*shape)], args)


def add_cells(to):
    for op, layer, states in (("lstm_cell", torch.nn.LSTMCell, 2), ("gru_cell", torch.nn.GRUCell, 1)):
        for bias in (True, False):
            cell = layer(4, 3, bias=bias, dtype=torch.float64)
            add_module(to, f"{op}_{'bias' if bias else 'no_bias'}", op, cell,
                       [randn(2, 4), *[randn(2, 3) for _ in range(states)]], {"bias": bias})


def main():
    torch.manual_seed(8)
    references = References()
    for add in (add_transformers, add_convolutions, add_cells):
        add(references)
    path = FOLDER / "modules.safetensors"
    references.write(path)
    print(f"{path}: {len(references.cases)} cases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
