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


def cross_entropy(rows, classes, **options):
    def make():
        x, t = leaf(rows, classes), places((rows,), classes)
        return lambda: F.cross_entropy(x, t, **options), [x]
    return make


def bce_with_logits():
    x, t = leaf(MANY), values(MANY) + 0.5
    return lambda: F.binary_cross_entropy_with_logits(x, t), [x]


def kl_div():
    x, t = leaf(4096, 1000), values(4096, 1000).softmax(1)
    return lambda: F.kl_div(x, t, reduction="mean"), [x]


def layer(make_net, *shape):
    """A layer of several ops, with weights that any program can make."""
    def make():
        net, x = make_net(), leaf(*shape)
        with torch.no_grad():
            for each in net.parameters():
                each.copy_(values(*each.shape) * 0.1)

        def call():
            y = net(x)
            return y[0] if isinstance(y, tuple) else y
        return call, [*net.parameters(), x]
    return make


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
    "glu": both(F.glu, MATRIX), "prelu": both(F.prelu, (8, 64, 56, 56), (64,)),
    "leaky_relu": both(F.leaky_relu, (MANY,)), "elu": both(F.elu, (MANY,)),
    "selu": both(F.selu, (MANY,)), "mish": both(F.mish, (MANY,)),
    "hardswish": both(F.hardswish, (MANY,)),
    "clamp": both(lambda x: x.clamp(-0.25, 0.25), (MANY,)),
    "nan_to_num": forward(torch.nan_to_num, (MANY,)),
    "floor_divide": forward(lambda x: torch.floor_divide(x, x + 1), (MANY,)),
    "lerp": both(lambda a, b: torch.lerp(a, b, 0.3), (MANY,), (MANY,)),
    "div_row": both(lambda x: x / x.amax(1, keepdim=True).detach(), MATRIX),
    "mse_loss": both(F.mse_loss, (MANY,), (MANY,)), "l1_loss": both(F.l1_loss, (MANY,), (MANY,)),
    "bce_with_logits": bce_with_logits, "kl_div": kl_div,
    "cosine_similarity": both(F.cosine_similarity, (4096, 512), (4096, 512)),
    "normalize": both(F.normalize, (4096, 512)),
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
    "sum_bool": forward(lambda x: (x > 0).sum(), (MANY,)),
    "sum_all_but_channels": forward(lambda x: x.sum((0, 2, 3)), (8, 64, 56, 56)),
    "mean_planes": forward(lambda x: x.mean((2, 3)), (8, 64, 56, 56)),
    "norm": forward(torch.linalg.vector_norm, (MANY,)),
    "prod_rows": forward(lambda x: (x + 1).prod(1), MATRIX),
    "argmax_narrow": forward(lambda x: x.argmax(1), (MANY // 16, 16)),
    "all": forward(lambda x: (x > -1).all(), (MANY,)), "median": forward(torch.median, (MANY,)),
    "sort": forward(lambda x: x.sort()[0], (1 << 20,)),
    "argsort_narrow": forward(torch.argsort, (MANY // 16, 16)),
    "topk_narrow": forward(lambda x: x.topk(2)[0], (4096, 64)),
    "unique": indexed(lambda _, i: i.unique().float(), (1,), (1 << 18,), 4096),
    "bincount": indexed(lambda _, i: i.bincount().float(), (1,), (1 << 20,), 4096),
    "one_hot": indexed(lambda _, i: F.one_hot(i, 100).float(), (1,), (65536,), 100),
    "index_select_narrow": indexed(lambda x, i: x.index_select(0, i), (65536, 8), (262144,), 65536),
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
    "flip": forward(lambda x: x.flip(1), (1024, 4096)),
    "roll": forward(lambda x: x.roll(100, 1), (1024, 4096)),
    "tril": forward(torch.tril, (2048, 2048)),
    "stack_last": forward(lambda x: torch.stack([x] * 4, -1), (1024, 1024)),
    "repeat_interleave": forward(lambda x: x.repeat_interleave(4, 0), (1024, 1024)),
    "reflection_pad": forward(lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), (8, 64, 56, 56)),
    "pixel_shuffle": forward(lambda x: F.pixel_shuffle(x, 2), (8, 64, 56, 56)),
    "cat": forward(lambda x: torch.cat([x] * 4, 1), (1024, 1024)),
    "repeat": forward(lambda x: x.repeat(2, 2), (1024, 1024)),
    "expand_narrow": forward(lambda x: x.expand(-1, 16).contiguous(), (MANY // 16, 1)),
    "pad": forward(lambda x: F.pad(x, (1, 1, 1, 1)), (8, 64, 56, 56)),
    "softmax_rows": both(lambda x: x.softmax(-1), (4096, 1000)),
    "softmax_middle": both(lambda x: x.softmax(1), (64, 100, 1000)),
    "log_softmax_rows": both(lambda x: x.log_softmax(-1), (4096, 1000)),
    "log_softmax_narrow": both(lambda x: x.log_softmax(-1), (MANY // 16, 16)),
    "softmax_narrow": both(lambda x: x.softmax(-1), (MANY // 16, 16)),
    "logsumexp_narrow": both(lambda x: x.logsumexp(-1), (MANY // 16, 16)),
    "cross_entropy_narrow": cross_entropy(65536, 10),
    "cross_entropy_smoothed": cross_entropy(4096, 1000, label_smoothing=0.1),
    "cross_entropy": cross_entropy(4096, 8192),
    "layer_norm": module(lambda: torch.nn.LayerNorm(768), 4096, 768),
    "rms_norm": module(lambda: torch.nn.RMSNorm(768, eps=1e-6), 4096, 768),
    "group_norm": module(lambda: torch.nn.GroupNorm(8, 64), 8, 64, 56, 56),
    "batch_norm": module(lambda: torch.nn.BatchNorm2d(64), 8, 64, 56, 56),
    "layer_norm_narrow": module(lambda: torch.nn.LayerNorm(32), 65536, 32),
    "instance_norm": module(lambda: torch.nn.InstanceNorm2d(64), 8, 64, 56, 56),
    "batch_norm_1d": module(lambda: torch.nn.BatchNorm1d(512), 1024, 512),
    "batch_norm_eval": module(lambda: torch.nn.BatchNorm2d(64).eval(), 8, 64, 56, 56),
    "mm_1024": both(torch.mm, (1024, 1024), (1024, 1024)),
    "bmm_16": both(torch.bmm, (4096, 16, 16), (4096, 16, 16)),
    **{f"linear_of_{rows}": forward(F.linear, (rows, 768), (3072, 768)) for rows in (1, 4, 8)},
    "conv_3x3": both(lambda x, w: F.conv2d(x, w, padding=1), (8, 64, 56, 56), (64, 64, 3, 3)),
    "conv_depthwise": both(lambda x, w: F.conv2d(x, w, padding=1, groups=144), (8, 144, 56, 56),
                           (144, 1, 3, 3)),
    "conv_1x1": both(F.conv2d, (8, 64, 56, 56), (256, 64, 1, 1)),
    "conv_7x7": both(lambda x, w: F.conv2d(x, w, stride=2, padding=3), (8, 3, 112, 112), (64, 3, 7, 7)),
    "conv_dilated": both(lambda x, w: F.conv2d(x, w, padding=2, dilation=2), (8, 32, 56, 56),
                         (32, 32, 3, 3)),
    "conv_1d": both(lambda x, w: F.conv1d(x, w, padding=2), (16, 128, 500), (128, 128, 5)),
    "conv_transpose": both(lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1),
                           (8, 64, 28, 28), (64, 32, 4, 4)),
    "outer": both(torch.outer, (2048,), (2048,)),
    "einsum_heads": both(lambda a, b: torch.einsum("bqhd,bkhd->bhqk", a, b), (8, 128, 8, 64),
                         (8, 128, 8, 64)),
    "cdist": both(torch.cdist, (512, 64), (512, 64)),
    "lstm": layer(lambda: torch.nn.LSTM(128, 256), 64, 32, 128),
    "gru": layer(lambda: torch.nn.GRU(128, 256), 64, 32, 128),
    "lstm_two_ways": layer(lambda: torch.nn.LSTM(64, 128, 2, bidirectional=True), 32, 64, 64),
    "transformer_layer": layer(
        lambda: torch.nn.TransformerEncoderLayer(256, 8, 1024, 0.0, batch_first=True), 16, 128, 256),
    "avg_pool": both(lambda x: F.avg_pool2d(x, 2, 2), (8, 64, 112, 112)),
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
