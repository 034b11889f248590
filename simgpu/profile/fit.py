"""Fits the constants that no source gives, on the half of the published points that is for it.

The mean of |log(predicted / published)| is least over a grid: few constants, no step of a method to be tuned.
"""

import itertools
import math
from unittest import mock

import device as devices
import kernels
import network
import published
from products import predict_product

PRODUCT_GRID = ([round(0.60 + 0.01 * step, 2) for step in range(36)], [step * 1e-6 for step in range(13)])
FILL_GRID = (range(0, 41, 2), [0.5 * step for step in range(13)], range(40, 151, 5))
SUSTAINED_GRID = [round(1 + 0.01 * step, 2) for step in range(31)]
ATTENTION_GRID = [round(1 + 0.01 * step, 2) for step in range(101)]
KERNEL_GRID = ([round(0.1 * step, 1) for step in range(6)], [round(1 + 0.05 * step, 2) for step in range(11)])
STRAGGLER_GRID = [round(0.001 * step, 3) for step in range(41)]
CONVOLUTION_GRID = [round(0.20 + 0.01 * step, 2) for step in range(81)]


def of_half(group, key):
    """Points of a group on a device that are for fitting: of published ones without those whose miss has a known reason,
    of lockstep's all, for their reasons are of whole families of kernels."""
    return [point for point in published.points() if point.series["group"] == group and point.fitted_on
            and point.series["device"] == key and (not point.why or "us" in point.series["record"])]


def error(points, device):
    return sum(abs(math.log(published.microseconds(point, device) / published.published_microseconds(point, device)))
               for point in points) / len(points)


def products(key):
    """(product_efficiency, product_floor_s) of a device."""
    measured = [(published.record_of(point), published.published_microseconds(point))
                for point in of_half("products", key)]

    def missed(choice):
        device = devices.load(key, {"product_efficiency": choice[0], "product_floor_s": choice[1]})
        return sum(abs(math.log(predict_product(device, record).expected / time)) for record, time in measured)
    return min(itertools.product(*PRODUCT_GRID), key=missed)


def of_steps(key, programs):
    """Whole steps of a device that are for fitting."""
    return [point for group in ("steps of one GPU", "steps of a node") for point in of_half(group, key)
            if point.series["record"]["program"] in programs]


def error_of_all(key, changes, points):
    return error(points, devices.load(key, changes))


def sustained(key):
    """sustained_products of a device, by its steps of transformers and the products of lockstep's."""
    points = of_steps(key, ("gpt2", "qwen2")) + of_half("products of lockstep", key)
    return min(SUSTAINED_GRID, key=lambda value: error_of_all(key, {"sustained_products": value}, points))


def attention_backward(key):
    """The second of sustained_attention of a device, by attention in lockstep's steps; None where it has no such point."""
    points = [point for point in of_half("attention of lockstep", key) if point.series["record"]["backward"]]
    forward = devices.load(key).sustained_attention[0]
    return min(ATTENTION_GRID, key=lambda value: error_of_all(key, {"sustained_attention": [forward, value]}, points)) \
        if points else None


def convolution(key):
    """convolution_efficiency of a device, by its steps of ResNet-50 and the convolutions of lockstep's."""
    points = of_steps(key, ("resnet50",)) + of_half("convolutions of lockstep", key)
    return min(CONVOLUTION_GRID, key=lambda value: error_of_all(key, {"convolution_efficiency": value}, points))


def of_kernels(key):
    """(expected of kernels.RESIDENT, expected of kernels.EXCHANGING), by elementwise kernels and those of lockstep's steps."""
    points = [point for group in ("elementwise", "kernels of lockstep", "small kernels of lockstep")
              for point in of_half(group, key)]

    def missed(choice):
        resident, exchanging = choice
        with mock.patch.dict(kernels.RESIDENT, expected=resident), mock.patch.dict(kernels.EXCHANGING, expected=exchanging):
            return error(points, devices.load(key))
    return min(itertools.product(*KERNEL_GRID), key=missed)


def fill(key):
    """(at_zero, per_mib, most) of a device's collectives, by its all-reduces on one node."""
    device = devices.load(key)
    sizes = [(point.at, published.published_microseconds(point),
              published.microseconds(point, device) - network.fill(device, point.at))
             for point in of_half("all-reduce", key) if point.series["record"]["op"] == "AllReduce"]

    def missed(choice):
        at_zero, per_mib, most = choice
        return sum(abs(math.log((bare + min(most, at_zero + per_mib * size / network.MIB)) / time))
                   for size, time, bare in sizes)
    return min(itertools.product(*FILL_GRID), key=missed)


def stragglers():
    """Share of a step for each doubling of nodes, by how steps grow with them."""
    points = [point for point in published.points() if "reference" in point.series and point.fitted_on]
    grown = [(point, published.published_microseconds(point)
              / published.step_of_tokens(point.series["reference"][1], point)) for point in points]
    return min(STRAGGLER_GRID, key=lambda share: sum(
        abs(math.log(published.growth(point, (share,) * 3) / factor)) for point, factor in grown))


def report():
    """Lines that say what the fits give, beside what devices/*.json have."""
    yield "products (product_efficiency, product_floor_s):"
    for key in ("a100", "h100"):
        device = devices.load(key)
        yield f"  {key}: {products(key)}, in use ({device.product_efficiency}, {device.product_floor_s})"
    yield "products within steps (sustained_products):"
    for key in ("a100", "h100"):
        yield f"  {key}: {sustained(key)}, in use {devices.load(key).sustained_products}"
    yield f"attention's gradient within steps: h100: {attention_backward('h100')}, in use {devices.load('h100').sustained_attention[1]}"
    yield (f"kernels (data in the L2, threads that exchange): {of_kernels('h100')}, in use "
           f"{(kernels.RESIDENT['expected'], kernels.EXCHANGING['expected'])}")
    yield "convolutions (convolution_efficiency):"
    for key in ("a100", "h100"):
        yield f"  {key}: {convolution(key)}, in use {devices.load(key).convolution_efficiency}"
    late = devices.read("nccl")["stragglers"]["share_of_a_doubling"][1]
    yield f"ranks that come late (share of a doubling of nodes): {stragglers()}, in use {late}"
    yield "collectives (fill_us: at_zero, per_mib, most):"
    for key in ("a100", "h100", "h200", "b200"):
        yield f"  {key}: {fill(key)}, in use {tuple(devices.read('nccl')['fill_us'][key].values())}"
