"""Calls of single ops by PyTorch, on request: those of benchmarks/support/op_cases.hpp.

    torch_ops.py THREADS
"""

import json
import sys
import time

import torch
import torch.nn.functional as F

MANY = 1 << 22
MATRIX = (4096, 1024)


def places(shape, end):
    """Numbers in [0, end) in no order, which any program can make without a generator."""
    i = torch.arange(torch.Size(shape).numel())
    return ((i * i * 7919 + i * 104729) % 1000003 % end).reshape(shape)


def values(*shape):
    """Values in [-0.5, 0.5) of the same kind."""
    return (places(shape, 1000003).double() / 1000003 - 0.5).float()


def leaf(*shape):
    return values(*shape).requires_grad_()


def forward(op, *shapes):
    """A case without gradients."""
    def make():
        x = [values(*shape) for shape in shapes]
        return lambda: op(*x), []
    return make


def both(op, *shapes):
    """One with them."""
    def make():
        x = [leaf(*shape) for shape in shapes]
        return lambda: op(*x), x
    return make


def indexed(op, shape, index, end):
    def make():
        x, i = values(*shape), places(index, end)
        return lambda: op(x, i), []
    return make


def module(make_net, *shape):
    def make():
        net, x = make_net(), leaf(*shape)
        return lambda: net(x), [*net.parameters(), x]
    return make


def embedding():
    table, i = leaf(50257, 768), places((8, 512), 50257)
    return lambda: F.embedding(i, table), [table]


def cross_entropy():
    x, t = leaf(4096, 8192), places((4096,), 8192)
    return lambda: F.cross_entropy(x, t), [x]


def masked_attention():
    x, mask = leaf(8, 8, 256, 64), values(8, 1, 256, 256)
    return lambda: F.scaled_dot_product_attention(x, x, x, attn_mask=mask), [x]


CASES = {
    "gelu": both(F.gelu, (MANY,)), "silu": both(F.silu, (MANY,)), "tanh": both(torch.tanh, (MANY,)),
    "exp": both(torch.exp, (MANY,)), "sin": both(torch.sin, (MANY,)),
    "softplus": both(F.softplus, (MANY,)), "relu": both(F.relu, (MANY,)),
    "log": forward(lambda x: torch.log(x + 1), (MANY,)), "erf": forward(torch.erf, (MANY,)),
    "pow_2.5": forward(lambda x: (x + 1) ** 2.5, (MANY,)),
    "add": both(torch.add, (MANY,), (MANY,)), "mul_row": both(torch.mul, MATRIX, (1024,)),
    "mul_column": both(torch.mul, MATRIX, (4096, 1)),
    "mul_narrow_row": both(torch.mul, (MANY // 16, 16), (16,)),
    "sub_narrow_column": both(torch.sub, (MANY // 4, 4), (MANY // 4, 1)),
    "remainder": forward(lambda x: torch.remainder(x, 0.125), (MANY,)),
    "atan2": forward(lambda x: torch.atan2(x, x + 0.25), (MANY,)),
    "asin": forward(torch.asin, (MANY,)), "sinh": forward(torch.sinh, (MANY,)),
    "atanh": forward(torch.atanh, (MANY,)),
    "huber_loss": both(lambda a, b: F.huber_loss(a, b, delta=0.25), (MANY,), (MANY,)),
    "where": forward(lambda x: torch.where(x > 0, x, 0.0), (MANY,)),
    "to_bf16": forward(torch.Tensor.bfloat16, (MANY,)), "to_f16": forward(torch.Tensor.half, (MANY,)),
    "sum": forward(torch.sum, (MANY,)), "sum_rows": forward(lambda x: x.sum(1), MATRIX),
    "sum_columns": forward(lambda x: x.sum(0), MATRIX),
    "sum_short_rows": forward(lambda x: x.sum(1), (MANY // 8, 8)),
    "var_rows": forward(lambda x: x.var(1), MATRIX), "amax_rows": forward(lambda x: x.amax(1), MATRIX),
    "max_rows": forward(lambda x: x.max(1)[0], MATRIX),
    "argmax_rows": forward(lambda x: x.argmax(1), MATRIX),
    "logsumexp_rows": forward(lambda x: x.logsumexp(1), MATRIX),
    "cumsum_rows": forward(lambda x: x.cumsum(1), MATRIX),
    "cumsum_columns": forward(lambda x: x.cumsum(0), MATRIX),
    "cumprod_rows": forward(lambda x: (x + 1).cumprod(1), MATRIX),
    "sort_rows": forward(lambda x: x.sort()[0], (1024, 1024)),
    "topk": forward(lambda x: x.topk(50)[0], (64, 50257)),
    "masked_select": forward(lambda x: torch.masked_select(x, x > 0), (MANY,)),
    "nonzero": forward(lambda x: torch.nonzero(x > 0), (MANY,)),
    "index_select_rows": indexed(lambda x, i: x.index_select(0, i), (65536, 256), (16384,), 65536),
    "gather": indexed(lambda x, i: x.gather(1, i), MATRIX, MATRIX, 1024),
    "scatter_add": indexed(lambda x, i: x.scatter_add(1, i, x), MATRIX, MATRIX, 1024),
    "index_add_rows": indexed(lambda x, i: x.index_add(0, i, x), (4096, 256), (4096,), 4096),
    "embedding": embedding,
    "transpose": forward(lambda x: x.t().contiguous(), (2048, 2048)),
    "to_channels_last": forward(lambda x: x.permute(0, 2, 3, 1).contiguous(), (8, 64, 112, 112)),
    "cat": forward(lambda x: torch.cat([x] * 4, 1), (1024, 1024)),
    "repeat": forward(lambda x: x.repeat(2, 2), (1024, 1024)),
    "expand_narrow": forward(lambda x: x.expand(-1, 16).contiguous(), (MANY // 16, 1)),
    "pad": forward(lambda x: F.pad(x, (1, 1, 1, 1)), (8, 64, 56, 56)),
    "softmax_rows": both(lambda x: x.softmax(-1), (4096, 1000)),
    "softmax_middle": both(lambda x: x.softmax(1), (64, 100, 1000)),
    "log_softmax_rows": both(lambda x: x.log_softmax(-1), (4096, 1000)),
    "cross_entropy": cross_entropy,
    "layer_norm": module(lambda: torch.nn.LayerNorm(768), 4096, 768),
    "rms_norm": module(lambda: torch.nn.RMSNorm(768, eps=1e-6), 4096, 768),
    "group_norm": module(lambda: torch.nn.GroupNorm(8, 64), 8, 64, 56, 56),
    "batch_norm": module(lambda: torch.nn.BatchNorm2d(64), 8, 64, 56, 56),
    "batch_norm_eval": module(lambda: torch.nn.BatchNorm2d(64).eval(), 8, 64, 56, 56),
    "mm_1024": both(torch.mm, (1024, 1024), (1024, 1024)),
    "bmm_16": both(torch.bmm, (4096, 16, 16), (4096, 16, 16)),
    **{f"linear_of_{rows}": forward(F.linear, (rows, 768), (3072, 768)) for rows in (1, 4, 8)},
    "conv_3x3": both(lambda x, w: F.conv2d(x, w, padding=1), (8, 64, 56, 56), (64, 64, 3, 3)),
    "conv_depthwise": both(lambda x, w: F.conv2d(x, w, padding=1, groups=144), (8, 144, 56, 56),
                           (144, 1, 3, 3)),
    "max_pool": both(lambda x: F.max_pool2d(x, 3, 2, 1), (8, 64, 112, 112)),
    "adaptive_avg_pool": both(lambda x: F.adaptive_avg_pool2d(x, 1), (64, 512, 7, 7)),
    "interpolate_bilinear": both(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
                                 (8, 64, 28, 28)),
    "interpolate_nearest": both(lambda x: F.interpolate(x, scale_factor=2), (8, 64, 28, 28)),
    "attention": both(lambda x: F.scaled_dot_product_attention(x, x, x), (8, 8, 256, 64)),
    "attention_causal": both(lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
                             (8, 8, 256, 64)),
    "attention_masked": masked_attention,
}


def measure(make):
    """As benchmark_ops does it."""
    call, leaves = make()
    with torch.no_grad():
        result = call()
        seed = torch.ones_like(result)
        checksum = result.double().abs().mean().item()

    def run():
        if not leaves:
            with torch.no_grad():
                call()
            return
        for each in leaves:
            each.grad = None
        call().backward(seed)

    run()
    checksum += sum(each.grad.double().abs().mean().item() for each in leaves)
    run()
    times = []
    while sum(times) < 0.15 or len(times) < 5:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return {"seconds": min(times), "checksum": checksum}


def main():
    torch.set_num_threads(int(sys.argv[1]))
    print("ready", flush=True)
    for line in sys.stdin:
        name = line.strip()
        print(json.dumps(sorted(CASES) if name == "names" else measure(CASES[name])), flush=True)


if __name__ == "__main__":
    main()
