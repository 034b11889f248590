"""Programs by name, in the shapes in which their authors trained them on GPUs of 80 GB."""

from programs import gpt2, qwen2, resnet50


def qwen(size, batch):
    """One micro-batch and the update of llmq."""
    def make(ranks):
        step = qwen2.Step(qwen2.Shape(size, batch, 1, ranks))
        step.micro_batch()
        return step.update()
    return make


PROGRAMS = {
    "llm.c-124m": lambda ranks: gpt2.step(**gpt2.SMALL, batch=64, ranks=ranks),
    "llm.c-1558m": lambda ranks: gpt2.step(**gpt2.XL, batch=16, ranks=ranks),
    "llmq-0.5b": qwen("0.5b", 32), "llmq-1.5b": qwen("1.5b", 32), "llmq-3b": qwen("3b", 16), "llmq-7b": qwen("7b", 4),
    "resnet50-fused": lambda ranks: resnet50.step(256, ranks),
    "resnet50-unfused": lambda ranks: resnet50.step(256, ranks, fused=False),
}


def make(name, ranks=1):
    """The Recorder of one step of a program."""
    return PROGRAMS[name](ranks)
