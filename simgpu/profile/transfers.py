"""Duration of copies and memsets: a start and bytes over the rate of what they cross."""

from prediction import BANDWIDTH, HOST_LINK, LATENCY, NETWORK, within

START_S = 1.5e-6
# A copy from pageable memory goes through the driver's own buffer: no published figure went into this one.
PAGEABLE = 10e9
ERROR = 0.15


def rate_of(device, record):
    """(bytes a second, bound)."""
    direction = record["direction"]
    if direction == "d2d":
        # Published as read plus written.
        return device.device_copy_efficiency * device.dram_bandwidth / 2, BANDWIDTH
    if direction == "p2p":
        return device.nvlink_peer_efficiency * device.nvlink_one_way, NETWORK
    link = device.pcie_one_way * device.pcie_efficiency
    return (link if record.get("pinned", True) else min(PAGEABLE, link)), HOST_LINK


def predict_copy(device, record):
    """The Prediction of a copy. Beside it kernels run: copy engines take no SM."""
    rate, bound = rate_of(device, record)
    seconds = record["bytes"] / rate
    moved = record["bytes"] * (2 if record["direction"] == "d2d" else 1)
    return within((START_S + seconds) * 1e6, ERROR, bound if seconds > START_S else LATENCY, bytes=moved, fill=0.0)


def predict_memset(device, record):
    """The Prediction of a memset: it writes at DRAM's rate."""
    seconds = record["bytes"] / (device.dram_efficiency * device.dram_bandwidth)
    return within((device.kernel_floor_s + seconds) * 1e6, ERROR,
                  BANDWIDTH if seconds > device.kernel_floor_s else LATENCY, bytes=record["bytes"])
