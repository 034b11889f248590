"""Predicts what each record of a profile takes on a device."""

import attention
import convolutions
import kernels
import network
import products
import transfers
from prediction import HOST, LATENCY, NETWORK, PRODUCTS, Prediction, within
from records import DTYPE_BYTES

# Published: 3 to 10 % of an all-reduce on one node; between nodes fabrics differ more than that.
COLLECTIVE_ERRORS = ((1, 0.15), (32, 0.30), (1 << 30, 0.45))
# SMs that a collective's channels take from what runs beside it, of those of its device.
NVLS_CHANNELS = ("nvls", "nvls_tree")


# Collectives that NCCL makes of sends and receives.
OF_SENDS = ("Send", "Recv", "AlltoAll", "Gather", "Scatter")


def collective_bytes(call, ranks):
    """Bytes by which NCCL goes: those of the larger of the two buffers."""
    size = call["count"] * DTYPE_BYTES[call["dtype"]]
    return size * ranks if call["op"] in ("AllGather", "ReduceScatter", "AlltoAll", "Gather", "Scatter") else size


class Model:
    """A device, and how ranks are spread over nodes.

    `nodes` are those of the job; communicators of fewer ranks than `ranks` are taken to lie within as few
    nodes as hold them. `alone` predicts calls as a benchmark of them would find, on a device that does nothing else;
    within a step clocks are lower and caches shared. Predictions of equal records are made once.
    """

    def __init__(self, device, ranks=1, nodes=1, efa=False, alone=False):
        if ranks % nodes:
            raise ValueError(f"{ranks} ranks do not spread evenly over {nodes} nodes")
        self.device, self.ranks, self.nodes, self.efa = device, ranks, nodes, efa
        self.alone, self.known = alone, {}

    def group_of(self, ranks):
        """The group that a communicator of so many ranks is."""
        per_node = self.ranks // self.nodes
        nodes = self.nodes if ranks == self.ranks else max(1, ranks // max(1, per_node))
        return network.Group(ranks, nodes, self.efa)

    def predict(self, record):
        """The Prediction of a record that puts work on a stream."""
        key = tuple(str(value) for name, value in record.items() if name not in NOT_OF_WORK)
        if key not in self.known:
            self.known[key] = self.predict_anew(record)
        return self.known[key]

    def predict_anew(self, record):
        kind = record["kind"]
        if kind == "collective":
            return self.collective(record)
        if kind not in PREDICTORS:
            raise ValueError(f"record {record['id']} of kind '{kind}' puts no work on a stream")
        found = PREDICTORS[kind](self.device, record)
        if self.alone:
            return found
        if kind == "attention":
            return found.times(self.device.sustained_attention[record["backward"]])
        return found if found.bound != PRODUCTS else found.times(self.device.sustained_products)

    def collective(self, record):
        """One launch of one or several calls: the bytes of each kind together, and one latency."""
        group, sizes = self.group_of(record["ranks"]), {}
        for call in record["calls"]:
            if call["op"] == "management":
                continue
            sizes[call["op"]] = sizes.get(call["op"], 0) + collective_bytes(call, group.ranks)
        total, moved, fill = 0.0, 0.0, 0.0
        for op, size in sizes.items():
            if op in OF_SENDS:
                total += self.point_to_point(size, group)
            else:
                choice = network.choose(self.device, op, size, group)
                total += choice.microseconds
                kind = "nvls" if choice.algorithm in NVLS_CHANNELS else "ring"
                fill = max(fill, network.sms_of(kind) / self.device.sms)
            moved += size
        error = next(error for nodes, error in COLLECTIVE_ERRORS if group.nodes <= nodes)
        return within(total, error, NETWORK if moved > 1 << 16 else LATENCY, bytes=moved, fill=fill)

    def point_to_point(self, size, group):
        """Microseconds of a send or receive over NVLink, or over one network card."""
        within_node = self.device.nvlink_peer_efficiency * self.device.nvlink_one_way
        rate = within_node if group.nodes == 1 else network.card_bandwidth(self.device)
        return 10.0 + size / rate * 1e6


# What of a record says when, where or by whom it was asked for, and not what is done.
NOT_OF_WORK = {"id", "site", "stream", "thread", "host_us", "call_us", "graph_launch", "after", "device",
               "name", "symbol", "communicator"}
PREDICTORS = {
    "kernel": kernels.predict, "product": products.predict_product, "attention": attention.predict,
    "convolution": convolutions.predict, "cudnn": products.predict_norm,
    "copy": transfers.predict_copy, "memset": transfers.predict_memset,
}


def nothing():
    """The Prediction of what takes no time on the device."""
    return Prediction(0.0, 0.0, 0.0, HOST, fill=0.0)
