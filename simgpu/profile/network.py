"""Duration of collectives: NCCL's own model of its algorithms, and the filling of their pipelines.

Constants: devices/nccl.json. NCCL chooses by a latency and a bandwidth for each algorithm and protocol; this is
that model as its sources describe it, so that the choice is NCCL's. It leaves out how long a pipeline takes to
fill, which is added by message size (fitted on all-reduces of one node).
"""

import dataclasses
import math

import device as devices

MIB = 1 << 20
PROTOCOLS = ("LL", "LL128", "Simple")
# Where fabrics are not NVLink and InfiniBand at their best: measured on EFA, below 256 MiB.
EFA_FACTOR, EFA_LIMIT = 1.5, 256 * MIB


@dataclasses.dataclass(frozen=True)
class Group:
    """Ranks of a communicator: so many, on so many nodes alike."""
    ranks: int
    nodes: int = 1
    efa: bool = False

    @property
    def per_node(self):
        return self.ranks / self.nodes


@dataclasses.dataclass(frozen=True)
class Choice:
    """What NCCL would take for a message."""
    microseconds: float
    algorithm: str
    protocol: str


def column_of(group):
    """Constants stand for one node, two nodes, four and more."""
    return 0 if group.nodes == 1 else 1 if group.nodes == 2 else 2


def steps_of(op, ranks):
    """Steps of a ring."""
    if op == "AllReduce":
        return 2 * (ranks - 1)
    return ranks - 1 if op in ("AllGather", "ReduceScatter") else ranks


def bus_bandwidths(device, group, op):
    """{(algorithm, protocol): GB/s of the bus} of the pairs that NCCL considers."""
    nccl, architecture, column = devices.read("nccl"), device.architecture, column_of(group)
    graphs = nccl["graphs"][architecture]
    channels, speed = graphs["ring"] if group.nodes == 1 else graphs["network"]
    if group.nodes == 2:
        speed = max(speed, graphs["network"][1])
    bus = channels * speed
    cap = nccl["ll_cap_one_node"][architecture] if group.nodes == 1 else nccl["ll_cap_more_nodes"][column]
    found = {("ring", "LL"): min(cap, bus / 2),
             ("ring", "LL128"): min(0.92 * bus, channels * nccl["ring_ll128_per_channel"][architecture][column]),
             ("ring", "Simple"): bus}
    if op != "AllReduce":
        return found | nvls_bandwidths(device, group, op)
    tree = min(0.92 * bus, channels * nccl["tree_per_channel"][architecture][column])
    found[("tree", "Simple")] = tree
    found[("tree", "LL")] = min(tree / 3.8, cap)
    found[("tree", "LL128")] = min(tree * (7 / 9 if group.nodes == 1 else 15 / 16),
                                   channels * nccl["tree_ll128_per_channel"][architecture][column])
    return found | nvls_bandwidths(device, group, op)


def nvls_bandwidths(device, group, op):
    """Those of the switches' own reductions. On one node they are taken from five ranks on, as measured."""
    nccl, architecture, column = devices.read("nccl"), device.architecture, column_of(group)
    graphs = nccl["graphs"][architecture]
    channels, speed = graphs["nvls"]
    if not channels or group.per_node <= 4 or op not in ("AllReduce", "AllGather", "ReduceScatter"):
        return {}
    heads = min(channels, group.per_node)
    each = speed * nccl["nvls_efficiency"][architecture] * (heads - 1) / heads
    each *= 2 if op == "AllReduce" else (group.per_node - 1) / group.per_node
    if group.nodes == 1:
        return {("nvls", "Simple"): channels * min(each, graphs["nvls_inter"])}
    if op != "AllReduce":
        return {}
    network = graphs["network"][1] * (2 if group.nodes == 2 else 1)
    return {("nvls_tree", "Simple"): channels * min(each, network,
                                                    nccl["nvls_tree_per_channel"][architecture][column])}


def latency_of(algorithm, protocol, op, group):
    """Microseconds before the last byte of an empty message."""
    nccl = devices.read("nccl")
    base = nccl["base_latency_us"][algorithm][protocol]
    intra = nccl["hardware_latency_us"]["nvlink"][algorithm][protocol]
    inter = nccl["hardware_latency_us"]["net"][algorithm][protocol]
    if algorithm == "nvls":
        return base + intra
    hops = math.floor(math.log2(group.nodes))
    if algorithm == "nvls_tree":
        return base + intra + 2 * hops * inter
    if algorithm == "tree":
        return base + 2 * ((group.per_node - 1) * intra + hops * inter)
    steps, between = steps_of(op, group.ranks), 0
    if group.nodes > 1:
        between = 2 * (group.nodes - 1) if op == "AllReduce" else group.nodes - 1
        intra = max(intra, 3.0 if protocol == "Simple" else 1.0)
    return base + (steps - between) * intra + between * inter


def tree_correction(protocol, size):
    """NCCL's own factor on the bandwidth of a tree, by size."""
    factors = devices.read("nccl")["tree_correction"][protocol]
    index = int(math.log2(max(1, size / 64)))
    return factors[index] if index < 23 else 1.0


def candidates(device, op, size, group):
    """A Choice for each algorithm and protocol."""
    for (algorithm, protocol), bus in bus_bandwidths(device, group, op).items():
        if algorithm in ("ring", "nvls_tree") or (algorithm == "nvls" and op == "AllReduce"):
            bandwidth = bus * group.ranks / steps_of(op, group.ranks)
        elif algorithm == "nvls":
            bandwidth = bus
        else:
            bandwidth = bus / 2 * tree_correction(protocol, size)
        if bandwidth <= 0:
            continue
        latency = latency_of(algorithm, protocol, op, group)
        channels = devices.read("nccl")["graphs"][device.architecture]["ring"][0]
        if (algorithm == "ring" and protocol == "Simple" and op == "AllReduce" and group.nodes > 1
                and size / (channels * group.ranks) >= 64):
            latency *= 1.4
        yield Choice(latency + size / (1e3 * bandwidth), algorithm, protocol)


def fill(device, size):
    """Microseconds in which the pipeline fills, which NCCL's model leaves out."""
    known = devices.read("nccl")["fill_us"]
    if device.key not in known:
        raise ValueError(f"devices/nccl.json has no fill_us for '{device.key}': it has {', '.join(known)}")
    constants = known[device.key]
    return min(constants["most"], constants["at_zero"] + constants["per_mib"] * size / MIB)


def choose(device, op, size, group):
    """What NCCL takes for `size` bytes (of all ranks, for gathers and scatters), and how long it takes."""
    if group.ranks <= 1:
        return Choice(device.kernel_floor_s * 1e6, "none", "none")
    best = min(candidates(device, op, size, group), key=lambda choice: choice.microseconds)
    total = best.microseconds + fill(device, size)
    if group.efa and group.nodes > 1 and size < EFA_LIMIT:
        total *= EFA_FACTOR
    return dataclasses.replace(best, microseconds=total)


def sms_of(kind):
    """SMs that the channels of a "ring" or of "nvls" occupy."""
    return devices.read("nccl")["channels_as_sms"][kind]


def card_bandwidth(device):
    """Bytes a second of one network card."""
    return devices.read("nccl")["graphs"][device.architecture]["network"][1] * 1e9
