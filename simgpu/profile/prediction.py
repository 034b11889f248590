"""How long a call takes, as a range, and what bounds it."""

import dataclasses

# What bounds a record: of these the table and the drawing tell.
BANDWIDTH, L2, SHARED_MEMORY = "bandwidth", "L2 bandwidth", "shared memory"
PRODUCTS, ARITHMETIC, LATENCY = "products", "arithmetic", "latency"
NETWORK, HOST_LINK, HOST = "network", "host link", "host"


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Microseconds on the device: most likely between `low` and `high`.

    `fill` is the share of the device that the work takes while it runs, of 1: what runs beside it has the rest.
    `bytes` are those that cross DRAM or a link, `flops` those of products.
    """
    low: float
    expected: float
    high: float
    bound: str
    bytes: float = 0.0
    flops: float = 0.0
    fill: float = 1.0

    def at(self, which):
        """The duration of one of the three cases: "low", "expected" or "high"."""
        return getattr(self, which)

    def times(self, factor):
        """The same, so many times as long."""
        return dataclasses.replace(self, low=self.low * factor, expected=self.expected * factor,
                                   high=self.high * factor)


def within(expected, share, bound, **fields):
    """A prediction that is right within a share: 0.1 for 10 % faster or slower."""
    return Prediction(expected / (1 + share), expected, expected * (1 + share), bound, **fields)


def largest(bounds):
    """The (name, seconds) that takes longest of a dictionary."""
    return max(bounds.items(), key=lambda item: item[1])
