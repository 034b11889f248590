#include "lockstep/autograd/ops/matmul.hpp"

#include "autograd/ops/common.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"

namespace lockstep {

LOCKSTEP_OP(linear, floating, lower_precision, same)
LOCKSTEP_OP(matmul, floating, lower_precision, same)

namespace {

using namespace autograd;

/// A [rows, columns] or [batch, rows, columns] tensor as the gemm interface wants it.
ArrayView batched(const Tensor& matrix) {
  ArrayView view = matrix.view();
  if (view.rank() == 2) {
    view.shape.insert(0, 1);
    view.strides.insert(0, 0);
  }
  return view;
}

ArrayView transposed(ArrayView view) {
  std::swap(view.shape[1], view.shape[2]);
  std::swap(view.strides[1], view.strides[2]);
  return view;
}

/// The tensor itself if its rows or its columns are dense and do not overlap, else a packed copy.
Tensor dense_matrix(const Tensor& x) {
  const auto dense = [&](int inner, int outer) {
    return (x.strides()[inner] == 1 || x.shape()[inner] == 1) &&
           (x.strides()[outer] >= x.shape()[inner] || x.shape()[outer] == 1);
  };
  const int r = x.dim() - 2, c = x.dim() - 1;
  return dense(c, r) || dense(r, c) ? x : x.contiguous();
}

/// An operand as a dense matrix, not recorded.
template <std::size_t N>
Tensor dense_operand(const OpCall<N>& call, std::size_t i) {
  return no_grad([&] { return dense_matrix(call[i]); });
}

void gemm(const Tensor& out, const ArrayView& a, const ArrayView& b, double beta = 0.0,
          const Tensor& bias = {}) {
  backend_of(out).gemm.multiply(
      {.out = batched(out),
       .a = a,
       .b = b,
       .beta = beta,
       .epilogue = bias.defined() ? kernels::Epilogue::bias : kernels::Epilogue::none,
       .bias = view_or_absent(bias)},
      stream_of(out));
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
  return call.record(
      out, [a = SavedTensor(a), b = SavedTensor(b)](const Tensor& dy_in, InputGradients& inputs) {
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
      });
}

/// Broadcasts the batch dimensions of both operands and joins them into one.
Tensor broadcast_product(const Tensor& a, const Tensor& b) {
  const auto batch_of = [](const Tensor& x) {
    Shape batch = x.shape();
    batch.erase(batch.size() - 1);
    batch.erase(batch.size() - 1);
    return batch;
  };
  const Shape batch = broadcast_shapes(batch_of(a), batch_of(b));
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

/// The same elements as [rows, columns of the last dimension].
Tensor as_matrix(const Tensor& x) {
  if (x.dim() == 2) return x;
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < x.dim(); ++i) rows *= x.shape()[i];
  return x.reshape({rows, x.size(-1)});
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

Tensor linear(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in) {
  const OpCall call(ops::linear, x_in, weight_in, bias_in);
  const Tensor& x = call[0];
  LOCKSTEP_CHECK(weight_in.dim() == 2 && x.dim() >= 1 && x.size(-1) == weight_in.size(1),
                 InvalidArgument, call.name(), ": input of shape ", x.shape(),
                 " does not fit a weight of shape ", weight_in.shape(), " (out, in)");
  const Tensor weight = dense_operand(call, 1), bias = call.dense(2);
  LOCKSTEP_CHECK(!bias.defined() || bias.shape() == Shape{weight.size(0)}, InvalidArgument,
                 call.name(), ": bias of shape ", bias.shape(), " does not fit ", weight.size(0),
                 " outputs");
  Shape shape = x.shape();
  shape.back() = weight.size(0);
  const Tensor rows = dense_matrix(no_grad([&] { return as_matrix(x); }));
  Tensor out = empty(shape, x.options());
  gemm(as_matrix(out), batched(rows), transposed(batched(weight)), 0.0, bias);
  if (!call.recording()) return out;
  return call.record(out, [x = SavedTensor(rows), weight = SavedTensor(weight)](
                              const Tensor& dy_in, InputGradients& inputs) {
    const Tensor& input = x.get();
    const Tensor& w = weight.get();
    const Tensor dy = dense_matrix(as_matrix(dy_in));
    inputs.write(2, {w.size(0)}, gradient_options(inputs, 2, w),
                 [&](const Tensor& db, bool accumulate) {
                   backend_of(dy).reduction.reduce({.op = ReduceOp::sum,
                                                    .out = db.reshape({1, w.size(0)}).view(),
                                                    .in = dy.view(),
                                                    .accumulate = accumulate},
                                                   stream_of(dy));
                 });
    inputs.write(1, w.shape(), gradient_options(inputs, 1, w),
                 [&](const Tensor& dw, bool accumulate) {
                   gemm(dw, transposed(batched(dy)), batched(input), accumulate);
                 });
    if (!inputs.wanted(0)) return;
    inputs.write(0, inputs.operand_shape(0), gradient_options(inputs, 0, w),
                 [&](const Tensor& dx, bool accumulate) {
                   gemm(as_matrix(dx), batched(dy), batched(w), accumulate);
                 });
  });
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
