"""What runs at the same time on one device is slower: kernels beside each other, and beside collectives.

A first order: while two pieces of work overlap, each loses the share of the device that the other takes. A
collective takes the SMs of its channels, and is itself not slowed.
"""

COMPUTES = {"kernel", "product", "attention", "convolution", "cudnn", "memset"}


def overlaps(spans):
    """(one, other, microseconds) for all pairs of spans [(begin, end, key)] that overlap."""
    active = []
    for begin, end, key in sorted(spans, key=lambda span: span[:2]):
        active = [span for span in active if span[1] > begin]
        for _, other_end, other in active:
            yield other, key, min(end, other_end) - begin
        active.append((begin, end, key))


def extra_time(placed):
    """{index of a node: microseconds that it takes longer}."""
    spans = {}
    for entry in placed:
        node = entry.node
        if node.on_device and entry.end > entry.begin and node.prediction.fill > 0:
            for rank, begin in ranks_of(node, placed, entry.begin):
                spans.setdefault((rank, node.record["device"]), []).append((begin, entry.end, node))
    extra = {}
    for work in spans.values():
        for one, other, together in overlaps(work):
            for slowed, beside in ((one, other), (other, one)):
                if slowed.record["kind"] in COMPUTES:
                    extra[slowed.index] = extra.get(slowed.index, 0.0) + together * beside.prediction.fill
    return extra


def ranks_of(node, placed, begin):
    """(rank, beginning on it) of work: a collective holds its SMs from when its own rank has come."""
    if node.arrivals is None:
        return [(node.rank, begin)]
    return [(arrival.rank, placed[arrival.index].begin) for arrival in node.arrivals]
