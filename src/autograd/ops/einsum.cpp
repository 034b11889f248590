#include "lockstep/autograd/ops/einsum.hpp"

#include <algorithm>

#include "autograd/ops/composed.hpp"
#include "autograd/ops/descriptors.hpp"
#include "autograd/ops/einsum_equation.hpp"
#include "lockstep/autograd/ops/matmul.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/reduce.hpp"

namespace lockstep {

LOCKSTEP_OP(einsum, any, follow, same)

namespace {

using namespace autograd;

bool contains(const Labels& labels, Label label) { return std::ranges::count(labels, label) > 0; }

/// A tensor whose dimensions have labels.
struct Labelled {
  Tensor tensor;
  Labels labels;

  bool has(Label label) const { return contains(labels, label); }
  int dim_of(Label label) const {
    return static_cast<int>(std::ranges::find(labels, label) - labels.begin());
  }
  std::int64_t extent(Label label) const { return tensor.shape()[dim_of(label)]; }
};

/// Keeps the diagonal where a label stands twice.
Labelled without_repeats(Labelled x) {
  for (std::size_t i = 0; i < x.labels.size(); ++i) {
    const auto second = std::find(x.labels.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                  x.labels.end(), x.labels[i]);
    if (second == x.labels.end()) continue;
    const auto a = static_cast<int>(i), b = static_cast<int>(second - x.labels.begin());
    LOCKSTEP_CHECK(x.tensor.shape()[a] == x.tensor.shape()[b], InvalidArgument, ops::einsum.name,
                   ": a letter stands for extents ", x.tensor.shape()[a], " and ",
                   x.tensor.shape()[b], " of shape ", x.tensor.shape());
    const Label label = x.labels[i];
    x.tensor = x.tensor.diagonal(0, a, b);
    x.labels.erase(second);
    x.labels.erase(x.labels.begin() + a);
    x.labels.push_back(label);
    i = static_cast<std::size_t>(-1);  // the others have moved
  }
  return x;
}

/// Sums over the labels that nothing keeps.
template <class Keep>
Labelled summed(Labelled x, const Keep& keep) {
  Dims dims;
  Labels left;
  for (std::size_t i = 0; i < x.labels.size(); ++i) {
    if (keep(x.labels[i]))
      left.push_back(x.labels[i]);
    else
      dims.push_back(static_cast<std::int64_t>(i));
  }
  if (!dims.empty()) x.tensor = sum(x.tensor, dims);
  x.labels = std::move(left);
  return x;
}

/// The dimensions in the order of `labels`; those it lacks have extent 1.
Tensor arranged(const Labelled& x, const Labels& labels) {
  Dims order;
  Shape shape;
  for (const Label label : labels) {
    if (x.has(label)) order.push_back(x.dim_of(label));
    shape.push_back(x.has(label) ? x.extent(label) : 1);
  }
  return x.tensor.permute(order).reshape(shape);
}

/// How the dimensions of a pair take part in its product.
struct Roles {
  Labels batch, left, right, summed;

  template <class Keep>
  Roles(const Labelled& a, const Labelled& b, const Keep& keep) {
    for (const Label label : a.labels)
      (!b.has(label) ? left : (keep(label) ? batch : summed)).push_back(label);
    for (const Label label : b.labels)
      if (!a.has(label)) right.push_back(label);
  }
  Labels result() const {
    Labels all = batch;
    all.insert(all.end(), left.begin(), left.end());
    all.insert(all.end(), right.begin(), right.end());
    return all;
  }
};

/// Repeats extents of 1 until both operands agree in the dimensions that they share.
void broadcast_shared(Labelled& a, Labelled& b) {
  const auto repeat = [](Labelled& x, Label label, std::int64_t extent) {
    Shape shape = x.tensor.shape();
    shape[x.dim_of(label)] = extent;
    x.tensor = x.tensor.expand(shape);
  };
  for (const Label label : a.labels) {
    if (!b.has(label) || a.extent(label) == b.extent(label)) continue;
    LOCKSTEP_CHECK(a.extent(label) == 1 || b.extent(label) == 1, InvalidArgument, ops::einsum.name,
                   ": one letter stands for extents ", a.extent(label), " and ", b.extent(label),
                   " of shapes ", a.tensor.shape(), " and ", b.tensor.shape());
    if (a.extent(label) == 1)
      repeat(a, label, b.extent(label));
    else
      repeat(b, label, a.extent(label));
  }
}

/// The joined extent of some labels, and their extents one by one.
std::int64_t joined(const Labelled& x, const Labels& labels) {
  std::int64_t product = 1;
  for (const Label label : labels) product *= x.extent(label);
  return product;
}
void append(Shape& shape, const Labelled& x, const Labels& labels) {
  for (const Label label : labels) shape.push_back(x.extent(label));
}

Labels concatenate(Labels a, const Labels& b, const Labels& c) {
  a.insert(a.end(), b.begin(), b.end());
  a.insert(a.end(), c.begin(), c.end());
  return a;
}

/// The product of two operands, summed over what `keep` does not name.
template <class Keep>
Labelled contract(Labelled a, Labelled b, const Keep& keep) {
  a = summed(std::move(a), [&](Label label) { return keep(label) || b.has(label); });
  b = summed(std::move(b), [&](Label label) { return keep(label) || a.has(label); });
  broadcast_shared(a, b);
  const Roles roles(a, b, keep);
  const Labels all = roles.result();
  if (roles.summed.empty()) return {mul(arranged(a, all), arranged(b, all)), all};
  const std::int64_t batch = joined(a, roles.batch), terms = joined(a, roles.summed);
  const Tensor left = arranged(a, concatenate(roles.batch, roles.left, roles.summed))
                          .reshape({batch, joined(a, roles.left), terms});
  const Tensor right = arranged(b, concatenate(roles.batch, roles.summed, roles.right))
                           .reshape({batch, terms, joined(b, roles.right)});
  Shape shape;
  append(shape, a, roles.batch);
  append(shape, a, roles.left);
  append(shape, b, roles.right);
  const Tensor product = roles.batch.empty() ? matmul(left[0], right[0]) : matmul(left, right);
  return {product.reshape(shape), all};
}

}  // namespace

Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands) {
  const ComposedOp call(ops::einsum);
  LOCKSTEP_CHECK(!operands.empty(), InvalidArgument, call.name(), ": no operands for \"", equation,
                 "\"");
  const EinsumEquation parsed = parse_einsum(equation, operands);
  Labelled result = without_repeats({operands[0], parsed.operands[0]});
  for (std::size_t i = 1; i < operands.size(); ++i) {
    const auto keep = [&](Label label) {
      bool later = contains(parsed.result, label);
      for (std::size_t k = i + 1; k < operands.size(); ++k)
        later = later || contains(parsed.operands[k], label);
      return later;
    };
    result = contract(std::move(result), without_repeats({operands[i], parsed.operands[i]}), keep);
  }
  result = summed(std::move(result), [&](Label label) { return contains(parsed.result, label); });
  return arranged(result, parsed.result);
}

}  // namespace lockstep
