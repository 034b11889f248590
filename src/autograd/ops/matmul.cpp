#include "lockstep/autograd/ops/matmul.hpp"

#include "autograd/ops/products.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"

namespace lockstep {

LOCKSTEP_OP(matmul, floating, lower_precision, same)

namespace {

using namespace autograd;

/// An operand as a dense matrix, not recorded.
template <std::size_t N>
Tensor dense_operand(const OpCall<N>& call, std::size_t i) {
  return no_grad([&] { return dense_matrix(call[i]); });
}

/// a @ b of two 3-D (or two 2-D) tensors of equal batch, recorded.
Tensor batched_product(const Tensor& a_in, const Tensor& b_in) {
  const OpCall call(ops::matmul, a_in, b_in);
  const Tensor a = dense_operand(call, 0), b = dense_operand(call, 1);
  Shape shape = a.shape();
  shape.back() = b.shape().back();
  Tensor out = empty(shape, a.options());
  gemm(out, batched(a), batched(b));
  if (!call.recording()) return out;
  const auto backward = [a = SavedTensor(a), b = SavedTensor(b)](const Tensor& dy_in,
                                                                 InputGradients& inputs) {
    if (inputs.creates_graph()) {
      if (inputs.wanted(1)) inputs.set(1, matmul(inputs.operand(0, a).transpose(-1, -2), dy_in));
      if (inputs.wanted(0)) inputs.set(0, matmul(dy_in, inputs.operand(1, b).transpose(-1, -2)));
      return;
    }
    const Tensor &x = a.get(), &y = b.get();
    const Tensor dy = dense_matrix(dy_in);
    inputs.write(1, y.shape(), gradient_options(inputs, 1, y),
                 [&](const Tensor& db, bool accumulate) {
                   gemm(db, transposed(batched(x)), batched(dy), accumulate);
                 });
    inputs.write(0, x.shape(), gradient_options(inputs, 0, x),
                 [&](const Tensor& da, bool accumulate) {
                   gemm(da, batched(dy), transposed(batched(y)), accumulate);
                 });
  };
  return call.record(out, Differentiable{backward});
}

/// Broadcasts the batch dimensions of both operands and joins them into one.
Tensor broadcast_product(const Tensor& a, const Tensor& b) {
  const auto batch_of = [](const Tensor& x) {
    Shape batch = x.shape();
    batch.erase(batch.size() - 1);
    batch.erase(batch.size() - 1);
    return batch;
  };
  const Shape batch = broadcast_shapes(batch_of(a), batch_of(b), "matmul, of batches");
  const std::int64_t count = numel(batch);
  const auto joined = [&](const Tensor& x) {
    Shape wide = batch;
    wide.push_back(x.size(-2));
    wide.push_back(x.size(-1));
    return x.expand(wide).reshape({count, x.size(-2), x.size(-1)});
  };
  Shape shape = batch;
  shape.push_back(a.size(-2));
  shape.push_back(b.size(-1));
  return batched_product(joined(a), joined(b)).reshape(shape);
}

void check_inner(const Tensor& a, const Tensor& b) {
  LOCKSTEP_CHECK(a.dim() > 0 && b.dim() > 0, InvalidArgument, ops::matmul.name,
                 ": operands need at least one dimension, got shapes ", a.shape(), " and ",
                 b.shape());
  const std::int64_t inner = b.dim() == 1 ? b.size(0) : b.size(-2);
  LOCKSTEP_CHECK(a.size(-1) == inner, InvalidArgument, ops::matmul.name, ": shapes ", a.shape(),
                 " and ", b.shape(), " do not fit: inner extents ", a.size(-1), " and ", inner,
                 " differ");
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  check_inner(a, b);
  if (a.dim() == 1 && b.dim() == 1) return matmul(a.unsqueeze(0), b.unsqueeze(1)).reshape({});
  if (a.dim() == 1) return matmul(a.unsqueeze(0), b).squeeze(-2);
  if (b.dim() == 1) return matmul(a, b.unsqueeze(1)).squeeze(-1);
  if (a.dim() == 2 && b.dim() == 2) return batched_product(a, b);
  if (b.dim() == 2) {
    Shape shape = a.shape();
    shape.back() = b.size(-1);
    return batched_product(as_matrix(a), b).reshape(shape);
  }
  return broadcast_product(a, b);
}

Tensor mm(const Tensor& a, const Tensor& b) {
  LOCKSTEP_CHECK(a.dim() == 2 && b.dim() == 2, InvalidArgument, "mm: shapes ", a.shape(), " and ",
                 b.shape(), "; both must be matrices (matmul takes others)");
  return matmul(a, b);
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  LOCKSTEP_CHECK(a.dim() == 3 && b.dim() == 3 && a.size(0) == b.size(0), InvalidArgument,
                 "bmm: shapes ", a.shape(), " and ", b.shape(),
                 "; both must be as many matrices, [n, ...] (matmul takes others)");
  return matmul(a, b);
}

Tensor outer(const Tensor& a, const Tensor& b) {
  LOCKSTEP_CHECK(a.dim() == 1 && b.dim() == 1, InvalidArgument, "outer: shapes ", a.shape(),
                 " and ", b.shape(), "; both must have one dimension");
  return mul(a.unsqueeze(1), b);
}

}  // namespace lockstep
