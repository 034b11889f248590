"""One step of an MPT model in eager PyTorch under fully sharded data parallelism, as MosaicML published it.

Only for how time grows with ranks: kernels of an eager stack are not known, so that absolute times come out too fast.
Weights of a block are gathered ahead of it in bf16 (again in backward, unless they are kept) and its gradients
scattered in f32, on a stream of their own.
"""

import dataclasses

from records import Recorder

BF16, F32 = 2, 4
SIZES = {  # width, blocks, heads
    "125m": (768, 12, 12), "760m": (1536, 24, 12), "1b": (2048, 24, 16), "7b": (4096, 32, 32)}
VOCABULARY, LENGTH = 50368, 2048
NETWORK_STREAM = 1


@dataclasses.dataclass(frozen=True)
class Shape:
    """`kept` has weights stay gathered from forward to backward (SHARD_GRAD_OP)."""
    size: str
    batch: int
    ranks: int
    kept: bool = False

    @property
    def block_parameters(self):
        return 12 * SIZES[self.size][0] ** 2

    @property
    def outer_parameters(self):
        return VOCABULARY * SIZES[self.size][0]


class Step:
    """Writes the records of a step."""

    def __init__(self, shape):
        self.shape = shape
        self.width, self.blocks, self.heads = SIZES[shape.size]
        self.tokens = shape.batch * LENGTH
        self.part = self.tokens * self.width * BF16
        self.recorder = Recorder("mpt", ranks=shape.ranks, host_us=5.0)
        self.events = 0

    def join(self, first, then):
        """What comes on one stream waits for what another has so far."""
        self.events += 1
        self.recorder.add("event_record", stream=first, event=self.events, version=1)
        self.recorder.add("stream_wait", stream=then, event=self.events, version=1)

    def gather(self, parameters):
        self.recorder.collective("AllGather", -(-parameters // self.shape.ranks), self.shape.ranks,
                                 stream=NETWORK_STREAM)

    def scatter(self, parameters):
        self.join(0, NETWORK_STREAM)
        self.recorder.collective("ReduceScatter", -(-parameters // self.shape.ranks), self.shape.ranks, dtype="f32",
                                 stream=NETWORK_STREAM)

    def kernel(self, name, read, write):
        self.recorder.elementwise(name, int(read), int(write))

    def linear(self, inputs, outputs):
        self.recorder.product(self.tokens, outputs, inputs)

    def linear_backward(self, inputs, outputs):
        self.recorder.product(self.tokens, inputs, outputs)
        self.recorder.product(outputs, inputs, self.tokens)

    def forward_block(self):
        part, width = self.part, self.width
        for inputs, outputs in ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)):
            if inputs == width and outputs != width:
                self.kernel("layer_norm", part, part)
            self.linear(inputs, outputs)
        self.recorder.attention(self.shape.batch, self.heads, LENGTH, width // self.heads)
        self.kernel("gelu", 4 * part, 4 * part)
        for _ in range(2):
            self.kernel("add", 2 * part, part)

    def backward_block(self):
        part, width = self.part, self.width
        for inputs, outputs in ((4 * width, width), (width, 4 * width), (width, width), (width, 3 * width)):
            self.linear_backward(inputs, outputs)
        self.recorder.attention(self.shape.batch, self.heads, LENGTH, width // self.heads, backward=True)
        self.kernel("gelu_backward", 8 * part, 4 * part)
        for _ in range(2):
            self.kernel("layer_norm_backward", 2 * part, part)
            self.kernel("add", 2 * part, part)

    def gathered_blocks(self, run, gathers):
        """Runs all blocks, the weights of the next one on their way."""
        if gathers:
            self.gather(self.shape.block_parameters)
        for block in range(self.blocks):
            if gathers:
                self.join(NETWORK_STREAM, 0)
                if block + 1 < self.blocks:
                    self.gather(self.shape.block_parameters)
            run()

    def make(self):
        logits = self.tokens * VOCABULARY * BF16
        self.gather(self.shape.outer_parameters)
        self.gathered_blocks(self.forward_block, True)
        self.linear(self.width, VOCABULARY)
        self.kernel("cross_entropy", 3 * logits, 3 * logits)
        self.linear_backward(self.width, VOCABULARY)

        def backward():
            self.backward_block()
            self.scatter(self.shape.block_parameters)
        self.gathered_blocks(backward, not self.shape.kept)
        self.scatter(self.shape.outer_parameters)
        self.join(NETWORK_STREAM, 0)
        own = (self.blocks * self.shape.block_parameters + self.shape.outer_parameters) // self.shape.ranks
        self.kernel("adamw", own * 4 * F32, own * 3 * F32)
        return self.recorder


def step(**shape):
    """The Recorder of one step."""
    return Step(Shape(**shape)).make()
