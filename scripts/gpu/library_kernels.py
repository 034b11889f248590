"""Which kernels of cuBLASLt and cuDNN make one call: told by their names.

A product may be followed by a reduction of its parts (split-K) and by a kernel for the bias's gradient; a convolution may
begin with a change of layout or a workspace that is made ready; attention's gradient is three kernels.
"""

import re

# Kernels that a call begins with, before the one that computes.
LEADERS = re.compile(r"compute_dot_do_o|init_device_workspace|AddPadding")
# Kernels that a call ends with.
FOLLOWERS = re.compile(r"splitKreduce|BgradAB|ReduceSplitK|_split_k_kernel|convert_dq")
KINDS = (("attention", re.compile(r"sdpa|flash")), ("convolution", re.compile(r"fprop|dgrad|wgrad|Convolution", re.IGNORECASE)),
         ("product", re.compile(r"nvjet|gemm|cutlass", re.IGNORECASE)))
# A convolution of 1 x 1 is a product to cuDNN.
MAY_BE = {"product": {"product", "convolution"}, "convolution": {"convolution"}, "attention": {"attention"},
          None: {"product", "convolution", "attention", "cudnn"}}


def kind_of(name):
    """What a computing kernel is for: "attention", "convolution", "product", or None where its name does not say."""
    return next((kind for kind, pattern in KINDS if pattern.search(name)), None)


def is_helper(name):
    return bool(LEADERS.search(name) or FOLLOWERS.search(name))


def groups_of(entries):
    """The kernels in lists, one for each that computes; leaders go to the next one, followers to the one before."""
    groups, leaders = [], []
    for entry in entries:
        if FOLLOWERS.search(entry["name"]) and groups:
            groups[-1].append(entry)
        elif is_helper(entry["name"]):
            leaders.append(entry)
        else:
            groups.append([*leaders, entry])
            leaders = []
    if groups:
        groups[-1] += leaders
    return groups


def matched(kinds, entries):
    """The kernels of each call, calls given by their kinds; None where they do not fit one to one."""
    groups = groups_of(entries)
    fits = len(kinds) == len(groups) and all(kind in MAY_BE[kind_of_group(group)] for kind, group in zip(kinds, groups))
    return groups if fits else None


def kind_of_group(group):
    return next(kind_of(entry["name"]) for entry in group if not is_helper(entry["name"]))


def helper_name(name):
    """The function's name alone: "globalKernelBgradAB_v2", "ReduceSplitK"; of xmma's long names what they do."""
    pattern = LEADERS if LEADERS.search(name) else FOLLOWERS
    found = re.search(rf"\w*(?:{pattern.pattern})\w*", name)[0]
    return "xmma split_k_kernel" if "_split_k_kernel" in found else found
