"""One step of llmq on a Qwen2.5 model: its kernels in order, by the model's shapes.

bf16 throughout, moments in bf16 too, cuDNN's attention with fewer heads of keys, SwiGLU, RMS norms fused with the
residual, weights' gradients reduced once a step. Micro-batches are graphs.
"""

import dataclasses

from records import Recorder

BF16 = 2
WIDTHS = {  # width, layers, heads, heads of keys, inner width of the feed-forward part, tied embedding
    "0.5b": (896, 24, 14, 2, 4864, True), "1.5b": (1536, 28, 12, 2, 8960, True),
    "3b": (2048, 36, 16, 2, 11008, True), "7b": (3584, 28, 28, 4, 18944, False)}
VOCABULARY, LENGTH = 151936, 1024


@dataclasses.dataclass(frozen=True)
class Shape:
    """A Qwen2.5 of a size, `batch` sequences on each rank, `accumulation` times a step."""
    size: str
    batch: int
    accumulation: int
    ranks: int = 1

    @property
    def numbers(self):
        return WIDTHS[self.size]

    @property
    def parameters(self):
        width, layers, heads, kv_heads, inner, tied = self.numbers
        head = width // heads
        layer = width * (heads + 2 * kv_heads) * head + width * width + 3 * width * inner + 2 * width
        return layers * layer + VOCABULARY * width * (1 if tied else 2)


class Step:
    """Writes the records of micro-batches and of the update."""

    def __init__(self, shape):
        self.shape = shape
        self.width, self.layers, self.heads, self.kv_heads, self.inner, _ = shape.numbers
        self.head = self.width // self.heads
        self.qkv = (self.heads + 2 * self.kv_heads) * self.head
        self.tokens = shape.batch * LENGTH
        self.part = self.tokens * self.width * BF16
        self.recorder = Recorder("llmq", ranks=shape.ranks)

    def kernel(self, name, read, write):
        self.recorder.elementwise(name, int(read), int(write))

    def linear(self, inputs, outputs):
        self.recorder.product(self.tokens, outputs, inputs, name="forward")

    def linear_backward(self, inputs, outputs, bias=False):
        """The weight's gradient is added to that of the micro-batches before."""
        self.recorder.product(self.tokens, inputs, outputs, name="input gradient")
        self.recorder.product(outputs, inputs, self.tokens, name="weight gradient", extra=inputs * outputs * BF16)
        if bias:
            self.kernel("backward_bias", self.tokens * outputs * BF16, outputs * 4)

    def forward(self):
        part, qkv, inner = self.part, self.tokens * self.qkv * BF16, self.tokens * self.inner * BF16
        self.kernel("encoder_forward", part, part)
        self.kernel("rmsnorm_forward", part, part)
        for _ in range(self.layers):
            self.linear(self.width, self.qkv)
            self.kernel("rope_forward", qkv, qkv)
            self.recorder.attention(self.shape.batch, self.heads, LENGTH, self.head, kv_heads=self.kv_heads)
            self.linear(self.width, self.width)
            self.kernel("fused_residual_rmsnorm", 2 * part, 2 * part)
            self.linear(self.width, 2 * self.inner)
            self.kernel("swiglu_forward", 2 * inner, inner)
            self.linear(self.inner, self.width)
            self.kernel("fused_residual_rmsnorm", 2 * part, 2 * part)
        self.linear(self.width, VOCABULARY)
        logits = self.tokens * VOCABULARY * BF16
        self.kernel("fused_classifier", logits, logits)

    def backward(self):
        part, qkv, inner = self.part, self.tokens * self.qkv * BF16, self.tokens * self.inner * BF16
        self.linear_backward(self.width, VOCABULARY)
        self.recorder.add("memset", bytes=2 * part)
        self.kernel("rmsnorm_backward", 3 * part, part)
        for _ in range(self.layers):
            self.linear_backward(self.inner, self.width)
            self.kernel("swiglu_backward", 3 * inner, 2 * inner)
            self.linear_backward(self.width, 2 * self.inner)
            self.kernel("rmsnorm_backward", 3 * part, part)
            self.linear_backward(self.width, self.width)
            self.recorder.attention(self.shape.batch, self.heads, LENGTH, self.head, backward=True,
                                    kv_heads=self.kv_heads)
            self.kernel("rope_backward", qkv, qkv)
            self.linear_backward(self.width, self.qkv, bias=True)
            self.kernel("rmsnorm_backward", 3 * part, part)
        self.kernel("encoder_backward", part, part)

    def micro_batch(self):
        self.recorder.begin_graph()
        self.forward()
        self.backward()
        self.recorder.end_graph()
        return self.recorder

    def update(self):
        """Gradients scattered over the ranks, their norm, AdamW of each rank's share, weights gathered."""
        own = self.shape.parameters // self.shape.ranks
        if self.shape.ranks > 1:
            self.recorder.collective("ReduceScatter", own, self.shape.ranks)
        self.kernel("global_norm_squared", own * BF16, 1024)
        self.kernel("adamw", 4 * own * BF16, 3 * own * BF16)
        if self.shape.ranks > 1:
            self.recorder.collective("AllGather", own, self.shape.ranks)
        return self.recorder


def parts(**shape):
    """[(Recorder, how often it happens in a step)]: micro-batches are alike, so one is predicted."""
    shape = Shape(**shape)
    return [(Step(shape).micro_batch(), shape.accumulation), (Step(shape).update(), 1)]
