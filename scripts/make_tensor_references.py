#!/usr/bin/env python3
"""Writes tests/data/reference/tensor_ops.safetensors: cases of tensor ops in f64, by NumPy's formulas.

    scripts/make_tensor_references.py    needs numpy; writes the same bytes every time

The form is that of tests/data/golden (see the README there). Gradients are derived by hand: `back` turns the
gradients of the outputs into those of the inputs, None for an input without one.
"""

import json
import pathlib
import struct

import numpy as np

random = np.random.default_rng(7)
cases, tensors = [], {}
DTYPES = {"float64": "F64", "int64": "I64", "bool": "BOOL"}


def keep(name, values):
    tensors[name] = np.asarray(values, order="C")
    return name


def case(name, op, inputs, outputs, back=None, **args):
    """One case; `back(dy...)` is called with a random gradient for each floating output."""
    outputs = [np.asarray(each) for each in outputs]
    floating = [each for each in outputs if each.dtype == np.float64]
    grads_out = [random.standard_normal(each.shape) for each in floating] if back else []
    grads = back(*grads_out) if back else [None] * len(inputs)
    cases.append({
        "name": name, "op": op, "args": args,
        "inputs": [keep(f"{name}.input{i}", each) for i, each in enumerate(inputs)],
        "outputs": [keep(f"{name}.output{i}", each) for i, each in enumerate(outputs)],
        "grad_outputs": [keep(f"{name}.grad_output{i}", each)
                         for i, each in enumerate(grads_out)],
        "grads": [None if each is None else keep(f"{name}.grad{i}", each)
                  for i, each in enumerate(grads)]})


def normal(*shape):
    return random.standard_normal(shape)


def roundings():
    x = np.concatenate([normal(20) * 3, [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.0, 3.0]])
    for op, function in {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
                         "round": np.round, "sign": np.sign}.items():
        case(op, op, [x], [function(x)], lambda dy: [np.zeros_like(x)])


def comparisons():
    a, b = random.integers(-2, 3, (3, 4)).astype(float), random.integers(-2, 3, (4,)).astype(float)
    relations = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
                 "gt": np.greater, "ge": np.greater_equal, "logical_and": np.logical_and,
                 "logical_or": np.logical_or, "logical_xor": np.logical_xor}
    for op, relation in relations.items():
        case(op, op, [a, b], [relation(a, b)])
        if not op.startswith("logical"):
            case(f"{op}_number", op, [a], [relation(a, 1.0)], other=1.0)
    whole = random.integers(-2, 3, (3, 4))
    case("gt_fraction_of_integers", "gt", [whole], [whole > 0.5], other=0.5)
    case("logical_not", "logical_not", [a], [np.logical_not(a)])


def truth():
    x = random.integers(0, 2, (3, 2, 4)).astype(float)
    for op, function in {"any": np.any, "all": np.all}.items():
        case(f"{op}_all", op, [x], [function(x)])
        case(f"{op}_dim", op, [x], [function(x, 1)], dim=1)
        case(f"{op}_keepdim", op, [x], [function(x, 2, keepdims=True)], dim=2, keepdim=True)
        case(f"{op}_of_nothing", op, [np.zeros((0, 3))], [function(np.zeros((0, 3)), 0)], dim=0)


def extremes():
    x = normal(3, 4, 5)
    for op, choose in {"max": np.argmax, "min": np.argmin}.items():
        for dim in (0, 1, 2):
            at = np.expand_dims(choose(x, dim), dim)

            def back(dy):
                dx = np.zeros_like(x)
                np.put_along_axis(dx, at, np.expand_dims(dy, dim), dim)
                return [dx]
            values = np.take_along_axis(x, at, dim)
            case(f"{op}_dim{dim}", op, [x], [values.squeeze(dim), at.squeeze(dim)], back, dim=dim)
        case(f"{op}_arg_of_all", f"arg{op}", [x], [choose(x)])


def filling():
    x, mask = normal(3, 4), random.integers(0, 2, (3, 4)).astype(bool)
    case("masked_fill", "masked_fill", [x, mask], [np.where(mask, -2.5, x)],
         lambda dy: [np.where(mask, 0, dy), None], value=-2.5)
    row = mask[0]
    case("masked_fill_row", "masked_fill", [x, row], [np.where(row, 1.5, x)],
         lambda dy: [np.where(row, 0, dy), None], value=1.5)
    index = random.integers(0, 5, (2, 3))
    case("one_hot", "one_hot", [index], [np.eye(6, dtype=np.int64)[index]], num_classes=6)
    case("one_hot_inferred", "one_hot", [index],
         [np.eye(index.max() + 1, dtype=np.int64)[index]], num_classes=-1)


def scatter(x, dim, index, source):
    """x, to which source is added where index says along dim."""
    out = x.copy()
    for at in np.ndindex(index.shape):
        to = list(at)
        to[dim] = index[at]
        out[tuple(to)] += source[at]
    return out


def scattering():
    for dim, shape, of_index, of_source in ((0, (4, 5), (3, 5), (3, 5)), (1, (4, 5), (4, 7), (4, 7)),
                                            (1, (4, 5), (2, 3), (3, 4)), (2, (2, 3, 4), (2, 2, 6), (2, 3, 6))):
        x, source = normal(*shape), normal(*of_source)
        index = random.integers(0, shape[dim], of_index)

        def back(dy):
            part = tuple(slice(0, n) for n in of_index)
            rows = tuple(slice(0, n) if d != dim else slice(None) for d, n in enumerate(of_index))
            dsource = np.zeros_like(source)
            dsource[part] = np.take_along_axis(dy[rows], index, dim)
            return [dy, None, dsource]
        case(f"scatter_add_{len(cases)}", "scatter_add", [x, index, source],
             [scatter(x, dim, index, source)], back, dim=dim)
    for dim in (0, 1):
        x, index = normal(4, 5), random.integers(0, 4, 6)
        source = normal(6, 5) if dim == 0 else normal(4, 6)
        whole = index[:, None] + np.zeros((6, 5), int) if dim == 0 else index + np.zeros((4, 6), int)
        case(f"index_add_{dim}", "index_add", [x, index, source],
             [scatter(x, dim, whole, 0.5 * source)],
             lambda dy: [dy, None, 0.5 * np.take(dy, index, dim)], dim=dim, alpha=0.5)


def products():
    equations = {"ij,jk->ik": "ac", "bik,bkj->bij": "ac", "i,j->ij": "x", "i,i->": "x", "ij->ji": "x",
                 "ij->": "x", "ii->i": "x", "ii->": "x", "bij,bj->bi": "x", "...ij,...jk->...ik": "x",
                 "ij,jk": "x", "bhid,bhjd->bhij": "x", "ij,jk,kl->il": "x", "ij,ij->ij": "x",
                 "ibj,jb->bi": "x", "...i->...": "x", "ab,cd->dacb": "x", "iij,jk->ik": "x"}
    extents = {"i": 3, "j": 4, "k": 2, "b": 2, "h": 3, "d": 5, "l": 3, "a": 2, "c": 3}
    for number, equation in enumerate(equations):
        terms = equation.split("->")[0].split(",")
        leading = iter([(2, 1), (3,), ()])
        operands = []
        for term in terms:
            shape = [extents[each] for each in term.replace("...", "")]
            operands.append(normal(*((next(leading) if "..." in term else ()) + tuple(shape))))

        def back(dy):
            # The result is linear in each operand: its gradient, element by element.
            gradients = []
            for i, operand in enumerate(operands):
                gradient = np.zeros_like(operand)
                for at in np.ndindex(operand.shape):
                    unit = np.zeros_like(operand)
                    unit[at] = 1
                    gradient[at] = np.sum(dy * np.einsum(equation, *operands[:i], unit, *operands[i + 1:]))
                gradients.append(gradient)
            return gradients
        case(f"einsum_{number}", "einsum", operands, [np.einsum(equation, *operands)], back,
             equation=equation)


def diagonals():
    x = normal(3, 4, 5)
    for offset, dim1, dim2 in ((0, 0, 1), (1, 1, 2), (-2, 2, 0)):
        def back(dy):
            dx = np.zeros_like(x)
            for at in np.ndindex(dy.shape[:-1]):
                for i in range(dy.shape[-1]):
                    to = list(at)
                    pairs = sorted([(dim1, i + max(-offset, 0)), (dim2, i + max(offset, 0))])
                    for d, value in pairs:
                        to.insert(d, value)
                    dx[tuple(to)] = dy[at + (i,)]
            return [dx]
        case(f"diagonal_{dim1}{dim2}", "diagonal", [x], [np.diagonal(x, offset, dim1, dim2)], back,
             offset=offset, dim1=dim1, dim2=dim2)


def prods():
    x = normal(3, 4)
    one_zero, two_zeros = x.copy(), x.copy()
    one_zero[1, 2] = two_zeros[1, 2] = two_zeros[1, 3] = 0
    for name, values in {"": x, "_of_a_zero": one_zero, "_of_two_zeros": two_zeros}.items():
        for dim in (None, 0, 1):
            def back(dy):
                dx = np.zeros_like(values)
                for at in np.ndindex(values.shape):
                    others = values.copy()
                    others[at] = 1
                    whole = np.broadcast_to(np.prod(others, dim, keepdims=True), values.shape)
                    spread = dy if dim is None else np.expand_dims(dy, dim)
                    dx[at] = whole[at] * np.broadcast_to(spread, values.shape)[at]
                return [dx]
            args = {} if dim is None else {"dim": dim}
            case(f"prod{name}_{dim}", "prod", [values], [np.prod(values, dim)], back, **args)
    whole = random.integers(-3, 4, (2, 5))
    case("prod_of_integers", "prod", [whole], [np.prod(whole, 1)], dim=1)


def sorting():
    x, whole = normal(3, 6, 2), random.integers(0, 4, (4, 9))
    for dim, descending in ((0, False), (1, True), (-1, False)):
        at = np.argsort(-x if descending else x, dim, kind="stable")

        def back(dy):
            dx = np.zeros_like(x)
            np.put_along_axis(dx, at, dy, dim)
            return [dx]
        case(f"sort_{dim}", "sort", [x], [np.take_along_axis(x, at, dim), at], back, dim=dim,
             descending=descending)
    for descending in (False, True):
        at = np.argsort(-whole if descending else whole, 1, kind="stable")
        case(f"argsort_of_equals_{descending}", "argsort", [whole], [at], dim=1,
             descending=descending)
    at = np.argsort(x, 1, kind="stable")[:, :2]
    case("topk_smallest", "topk", [x], [np.take_along_axis(x, at, 1), at], k=2, dim=1, largest=False)
    line, values = np.sort(random.integers(0, 6, 10)).astype(float), random.integers(-1, 7, (3, 4)).astype(float)
    for right in (False, True):
        case(f"searchsorted_{right}", "searchsorted", [line, values],
             [np.searchsorted(line, values, "right" if right else "left")], right=right)


def write(path):
    header, offset, data = {"__metadata__": {"cases": json.dumps(cases)}}, 0, b""
    for name, values in tensors.items():
        raw = values.tobytes()
        header[name] = {"dtype": DTYPES[str(values.dtype)], "shape": list(values.shape),
                        "data_offsets": [offset, offset + len(raw)]}
        offset += len(raw)
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    for group in (roundings, comparisons, truth, extremes, filling, scattering, products,
                  diagonals, prods, sorting):
        group()
    write(pathlib.Path(__file__).resolve().parent.parent / "tests/data/reference/tensor_ops.safetensors")
