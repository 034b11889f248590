"""One step of llm.c's train_gpt2.cu: its kernels in order, by the shapes of GPT-2.

bf16 weights and activations, f32 masters and moments, cuDNN's attention, a classifier fused with the loss, GELU
computed again in backward, ZeRO stage 1 over several GPUs with gradients reduced beside backward. Held against the
profile of the program itself (simgpu/llm_c), which has its own attention.
"""

import dataclasses

from records import Recorder

BF16, F32 = 2, 4
NETWORK_STREAM = 1
# Requests to shared memory for one to global memory, where a kernel has them: as the profile of the program has it.
SHARED_REQUESTS = {"layernorm_forward": 7.2, "fused_residual_forward": 4.3, "layernorm_backward": 3.7, "wte_backward": 1.1,
                   "matmul_backward_bias": 0.2, "fused_classifier": 0.2}


@dataclasses.dataclass(frozen=True)
class Shape:
    """A GPT-2: `batch` sequences of `length` tokens on each rank, `accumulation` times a step."""
    layers: int
    width: int
    heads: int
    batch: int
    length: int = 1024
    vocabulary: int = 50304
    accumulation: int = 1
    ranks: int = 1
    gelu_in_epilogue: bool = True  # in forward, as by -ge 1 of llm.c's scripts for H100; off by default

    @property
    def tokens(self):
        return self.batch * self.length

    @property
    def layer_parameters(self):
        return 12 * self.width ** 2 + 13 * self.width

    @property
    def parameters(self):
        return self.layers * self.layer_parameters + (self.vocabulary + self.length + 2) * self.width


SMALL = dict(layers=12, width=768, heads=12)
XL = dict(layers=48, width=1600, heads=25)


class Step:
    """Writes the records of a step."""

    def __init__(self, shape):
        self.shape = shape
        self.recorder = Recorder("llm.c", ranks=shape.ranks, host_us=2.0)
        self.activation = shape.tokens * shape.width * BF16

    def kernel(self, name, read, write):
        self.recorder.elementwise(name, int(read), int(write))
        record = self.recorder.records[-1]
        record["shared_requests"] = record["shared_wavefronts"] = round(SHARED_REQUESTS.get(name, 0) * record["requests"] + 0.5)

    def linear(self, inputs, outputs, extra=0, name="forward"):
        self.recorder.product(self.shape.tokens, outputs, inputs, name=name, extra=extra)

    def linear_backward(self, inputs, outputs, extra=0):
        tokens, gradient = self.shape.tokens, self.shape.tokens * outputs * BF16
        if outputs != self.shape.vocabulary:
            self.kernel("matmul_backward_bias", gradient, outputs * F32)
            self.kernel("reduce_add_sum", outputs * (F32 + BF16), outputs * BF16)
        self.recorder.product(tokens, inputs, outputs, name="input gradient", extra=extra)
        self.recorder.product(outputs, inputs, tokens, name="weight gradient", extra=inputs * outputs * BF16)

    def memset(self, count):
        self.recorder.add("memset", "cudaMemsetAsync", bytes=int(count))

    def to_device(self, count, pinned=False):
        """Tokens of the host, which waits for their copy unless they are pinned."""
        self.recorder.add("copy", "cudaMemcpyAsync" if pinned else "cudaMemcpy", direction="h2d", bytes=int(count), pinned=pinned)

    def layer_norm_backward(self):
        self.memset(F32)  # the count of blocks that are done
        self.kernel("layernorm_backward", 3 * self.activation, self.activation)

    def forward(self):
        shape, part, width = self.shape, self.activation, self.shape.width
        self.to_device(shape.tokens * F32)
        self.kernel("encoder_forward", 2 * part, part)
        self.kernel("layernorm_forward", part, part)
        for _ in range(shape.layers):
            self.linear(width, 3 * width)
            self.recorder.attention(shape.batch, shape.heads, shape.length, width // shape.heads)
            self.linear(width, width)
            self.kernel("fused_residual_forward", 2 * part, 2 * part)
            self.linear(width, 4 * width, extra=4 * part if shape.gelu_in_epilogue else 0)
            if not shape.gelu_in_epilogue:
                self.kernel("gelu_forward", 4 * part, 4 * part)
            self.linear(4 * width, width)
            self.kernel("fused_residual_forward", 2 * part, 2 * part)
        self.linear(width, shape.vocabulary)
        self.recorder.add("host_wait", "cudaDeviceSynchronize", waits_for="device")

    def backward(self):
        shape, part, width = self.shape, self.activation, self.shape.width
        if self.first:
            self.memset(shape.tokens * F32)
            self.memset(shape.parameters * BF16)
        self.to_device(shape.tokens * F32)
        logits = shape.tokens * shape.vocabulary * BF16
        self.kernel("fused_classifier", logits, logits)
        self.memset(part)
        self.linear_backward(width, shape.vocabulary)
        self.layer_norm_backward()
        for _ in range(shape.layers):
            self.kernel("gelu_forward", 4 * part, 4 * part)
            self.linear_backward(4 * width, width)
            self.kernel("gelu_backward", 8 * part, 4 * part)
            self.linear_backward(width, 4 * width)
            self.layer_norm_backward()
            self.linear_backward(width, width)
            self.recorder.attention(shape.batch, shape.heads, shape.length, width // shape.heads, backward=True)
            self.linear_backward(width, 3 * width)
            self.layer_norm_backward()
            self.reduce(shape.layer_parameters)
        self.kernel("wpe_backward", part, shape.length * width * BF16)
        self.to_device(2 * shape.tokens * F32, pinned=True)
        rows = min(shape.vocabulary, shape.tokens) * width * BF16
        self.kernel("wte_backward", part + rows, rows)
        if self.last:
            self.kernel("global_sum_single_block", shape.tokens * F32, F32)
        self.reduce(shape.parameters - shape.layers * shape.layer_parameters)
        self.recorder.add("host_wait", "cudaDeviceSynchronize", waits_for="device")

    def reduce(self, count):
        """The gradients of a layer, scattered beside what comes next."""
        if self.shape.ranks == 1 or not self.last:
            return
        record, event = self.recorder.add, len(self.recorder.records)
        record("event_record", "cudaEventRecord", stream=0, event=event, version=1)
        record("stream_wait", "cudaStreamWaitEvent", stream=NETWORK_STREAM, event=event, version=1)
        self.recorder.collective("ReduceScatter", count // self.shape.ranks, self.shape.ranks, stream=NETWORK_STREAM)

    def update(self):
        """AdamW: gradient, both moments and master read; moments, master and weight written. ZeRO-1 shares it out."""
        shape = self.shape
        own = shape.parameters // shape.ranks
        if shape.ranks > 1:
            event = len(self.recorder.records)
            self.recorder.add("event_record", stream=NETWORK_STREAM, event=event, version=1)
            self.recorder.add("stream_wait", stream=0, event=event, version=1)
        self.kernel("global_norm_squared", own * BF16, 1024)
        self.kernel("global_sum_single_block", 1024, F32)
        self.recorder.add("copy", "cudaMemcpy", direction="d2h", bytes=4, pinned=False)
        for count in self.tensors():
            self.kernel("adamw", count / shape.ranks * (BF16 + 3 * F32), count / shape.ranks * (BF16 + 3 * F32))
        if shape.ranks > 1:
            self.recorder.collective("AllGather", own, shape.ranks)

    def tensors(self):
        """The elements of the 16 tensors that the optimizer updates by a kernel each."""
        shape, square, row = self.shape, self.shape.layers * self.shape.width ** 2, self.shape.layers * self.shape.width
        return [shape.vocabulary * shape.width, shape.length * shape.width, row, row, 3 * square, 3 * row, square, row,
                row, row, 4 * square, 4 * row, 4 * square, row, shape.width, shape.width]

    def make(self):
        for number in range(self.shape.accumulation):
            self.first = number == 0
            self.last = number == self.shape.accumulation - 1
            self.forward()
            self.backward()
        self.update()
        return self.recorder


def step(**shape):
    """The Recorder of one step."""
    return Step(Shape(**shape)).make()
