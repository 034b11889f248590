"""Sets of moments, as sorted spans [(begin, end)] that do not overlap."""


def union(spans):
    """The moments that are in any of the spans."""
    merged = []
    for begin, end in sorted(span for span in spans if span[1] > span[0]):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def length(spans):
    return sum(end - begin for begin, end in spans)


def without(spans, taken):
    """The moments of one set that are not in another."""
    left, at = [], 0
    for begin, end in spans:
        while at < len(taken) and taken[at][1] <= begin:
            at += 1
        number = at
        while number < len(taken) and taken[number][0] < end:
            if taken[number][0] > begin:
                left.append((begin, taken[number][0]))
            begin = max(begin, taken[number][1])
            number += 1
        if begin < end:
            left.append((begin, end))
    return left


def clipped(spans, begin, end):
    """What of a set lies between two moments."""
    return [(max(first, begin), min(last, end)) for first, last in spans if last > begin and first < end]
