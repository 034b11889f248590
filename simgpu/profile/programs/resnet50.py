"""One step of ResNet-50 v1.5, channels last, in mixed precision: its convolutions and what lies between them.

With `fused` batch norm, ReLU and the addition of the residual are one kernel (MXNet, cuDNN); without, each is one.
"""

import dataclasses

from records import DTYPE_BYTES, Recorder

# Blocks, width, edge of the image that they put out.
STAGES = ((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7))


@dataclasses.dataclass(frozen=True)
class Convolution:
    inputs: int
    outputs: int
    kernel: int
    edge: int  # of the output
    stride: int = 1
    adds: bool = False  # the block's last one: the residual is added


def convolutions():
    """All 53, in order."""
    found, inputs = [Convolution(3, 64, 7, 112, 2)], 64
    for number, (blocks, width, edge) in enumerate(STAGES):
        for block in range(blocks):
            stride = 2 if number and not block else 1
            found += [Convolution(inputs, width, 1, edge * stride), Convolution(width, width, 3, edge, stride),
                      Convolution(width, 4 * width, 1, edge, 1, True)]
            if not block:
                found.append(Convolution(inputs, 4 * width, 1, edge, stride))
            inputs = 4 * width
    return found


class Step:
    """Writes the records of a step of `batch` images on each rank."""

    def __init__(self, batch, ranks, fused, dtype):
        self.batch, self.ranks, self.fused, self.dtype = batch, ranks, fused, dtype
        self.recorder = Recorder("resnet50", ranks=ranks)

    def size(self, channels, edge):
        return self.batch * channels * edge * edge * DTYPE_BYTES[self.dtype]

    def convolve(self, layer, which):
        flops = 2.0 * self.batch * layer.inputs * layer.outputs * layer.kernel ** 2 * layer.edge ** 2
        inputs, outputs = self.size(layer.inputs, layer.edge * layer.stride), self.size(layer.outputs, layer.edge)
        read, write = {"forward": (inputs, outputs), "input": (outputs, inputs), "weight": (inputs + outputs, 0)}[which]
        weights = layer.inputs * layer.outputs * layer.kernel ** 2 * DTYPE_BYTES[self.dtype]
        before = layer.edge * layer.stride
        shape = {"image": [self.batch, layer.inputs, before, before], "groups": 1,
                 "weight": [layer.outputs, layer.inputs, layer.kernel, layer.kernel],
                 "result": [self.batch, layer.outputs, layer.edge, layer.edge]}
        self.recorder.add("convolution", f"convolution {which}", **{"pass": which}, dtype=self.dtype, shape=shape,
                          flops=flops, read_distinct=read + weights, write_distinct=write + weights)

    def kernel(self, name, read, write):
        self.recorder.elementwise(name, int(read), int(write))

    def after(self, layer):
        """Batch norm reads twice (statistics first), then ReLU, and the addition of a block's input."""
        size, extra = self.size(layer.outputs, layer.edge), layer.adds
        if self.fused:
            self.kernel("batch_norm", (2 + extra) * size, size)
            return
        self.kernel("batch_norm", 2 * size, size)
        if extra:
            self.kernel("add", 2 * size, size)
        self.kernel("relu", size, size)

    def before(self, layer):
        """The same backward: sums over gradient and input, then the input's gradient."""
        size, extra = self.size(layer.outputs, layer.edge), layer.adds
        if self.fused:
            self.kernel("batch_norm_backward", 4 * size, (1 + extra) * size)
            return
        self.kernel("relu_backward", 2 * size, size)
        if extra:
            self.kernel("add", 2 * size, size)
        self.kernel("batch_norm_backward", 4 * size, size)

    def make(self):
        layers, parameters = convolutions(), 25_557_032
        self.kernel("cast", self.size(3, 224) * 2, self.size(3, 224))
        for layer in layers:
            self.convolve(layer, "forward")
            self.after(layer)
        self.recorder.product(self.batch, 1000, 2048, dtype=self.dtype)
        self.recorder.product(self.batch, 2048, 1000, dtype=self.dtype)
        self.recorder.product(1000, 2048, self.batch, dtype=self.dtype)
        for layer in reversed(layers):
            self.before(layer)
            self.convolve(layer, "weight")
            if layer.inputs > 3:
                self.convolve(layer, "input")
        if self.ranks > 1:
            self.recorder.collective("AllReduce", parameters, self.ranks, dtype=self.dtype)
        self.kernel("sgd", parameters * 10, parameters * 10)
        return self.recorder


def step(batch, ranks=1, fused=True, dtype="f16"):
    """The Recorder of one step."""
    return Step(batch, ranks, fused, dtype).make()
