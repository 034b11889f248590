#include "arguments/gemm.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "arguments/bias_gradient.hpp"
#include "backend/onednn/f32_products.hpp"
#include "backend/onednn/families.hpp"
#include "backend/onednn/library.hpp"
#include "backend/onednn/primitive_cache.hpp"
#include "core/alike_on_all_ranks.hpp"
#include "cpu/few_rows.hpp"
#include "cpu/small_gemm.hpp"
#include "cpu/tile_gemm.hpp"
#include "lockstep/core/parallel.hpp"
#include "lockstep/core/thread_kept.hpp"

namespace lockstep::backend {
namespace {

using kernels::Epilogue;
using kernels::GemmArguments;

// Up to this many multiply-adds, starting threads and a primitive costs more than it brings.
constexpr std::int64_t small_product = std::int64_t{1} << 18;

/// Gives dimensions of extent 1 the strides that a dense array has, so that equal layouts look
/// equal. @returns false for a layout where neither rows nor columns are contiguous.
bool normalise_matrix(ArrayView& view) {
  auto &shape = view.shape, &strides = view.strides;
  if (shape[2] == 1) strides[2] = 1;
  if (shape[1] == 1) strides[1] = strides[2] == 1 ? shape[2] : 1;
  if (shape[0] == 1) strides[0] = std::max(shape[1] * strides[1], shape[2] * strides[2]);
  const bool rows = strides[2] == 1 && strides[1] >= shape[2];
  const bool columns = strides[1] == 1 && strides[2] >= shape[1];
  return rows || columns;
}

bool joins(const ArrayView& view, std::int64_t rows) {
  return view.strides[0] == rows * view.strides[1];
}

/// Joins the batch to the rows where b is the same for all: one large product beats many small.
/// An addend that lies otherwise is copied into the result first.
void fold_batch(GemmArguments& call, StreamRef stream) {
  const std::int64_t batch = call.out.shape[0], rows = call.out.shape[1];
  if (batch == 1 || call.b.strides[0] != 0) return;
  if (!joins(call.out, rows) || !joins(call.a, rows)) return;
  if (call.addend && !joins(call.addend, rows)) {
    cpu().elementwise.copy({.out = call.out, .in = call.addend}, stream);
    call.addend = {};
  }
  for (ArrayView* view : {&call.out, &call.a, &call.addend, &call.aux}) {
    if (!*view) continue;
    view->shape[0] = 1;
    view->shape[1] = batch * rows;
  }
  call.b.shape[0] = 1;
}

/// True where oneDNN's AMX code is known to be right. It is several times faster than the code
/// beside it, but version 2.6 ends in wrong values or an illegal instruction at a depth of 63, and
/// in a batch where the columns fill no whole tiles (docs/adr/0010-trusted-amx.md).
bool amx_is_right(const GemmArguments& call) {
  const std::int64_t columns = call.out.shape[2], depth = call.a.shape[2];
  return depth % 64 != 63 && (call.out.shape[0] == 1 || columns % 16 == 0);
}

/// The product itself, without what an own pass does afterwards.
class Matmul {
 public:
  Matmul() = default;
  explicit Matmul(const GemmArguments& call) : batched_(call.out.shape[0] > 1) {
    if (batched_ && call.a.shape[0] == 1 && call.b.shape[0] == 1) return;
    for (const ArrayView* view : {&call.out, &call.a, &call.b})
      if (!dnn::describable(*view)) return;
    runnable_ = dnn::make_or_empty("matmul", {&call.a, &call.b, &call.out, &call.bias},
                                   [&] { return make_runnable(call); });
  }
  /// False where oneDNN has no code for the call.
  explicit operator bool() const { return static_cast<bool>(runnable_); }
  void run(const GemmArguments& call) {
    if (call.bias)
      runnable_.run({call.a.data, call.b.data, call.out.data, call.bias.data});
    else
      runnable_.run({call.a.data, call.b.data, call.out.data});
  }

 private:
  dnn::Runnable make_runnable(const GemmArguments& call) const {
    dnnl::primitive_attr attr = dnn::attributes();
    if (call.beta != 0) {
      dnnl::post_ops post;
      post.append_sum(static_cast<float>(call.beta));
      attr.set_post_ops(post);
    }
    const auto a = describe(call.a), b = describe(call.b), out = describe(call.out);
    dnnl::memory::desc bias;
    if (call.bias) {
      dnnl::memory::dims extents(batched_ ? 3 : 2, 1);
      extents.back() = call.bias.shape[0];
      bias = {extents, dnn::data_type(call.bias.dtype), dnnl::memory::dims(extents.size(), 1)};
    }
    auto desc = call.bias ? dnn::make<dnnl::matmul>(attr, a, b, bias, out)
                          : dnn::make<dnnl::matmul>(attr, a, b, out);
    if (!amx_is_right(call) && !dnn::avoid_amx(desc)) return {};
    dnn::Runnable runnable(dnnl::matmul(desc), desc.scratchpad_desc());
    runnable.add(DNNL_ARG_SRC, a);
    runnable.add(DNNL_ARG_WEIGHTS, b);
    runnable.add(DNNL_ARG_DST, out);
    if (call.bias) runnable.add(DNNL_ARG_BIAS, bias);
    return runnable;
  }
  /// Without a batch two dimensions describe it, for which oneDNN has more code.
  dnnl::memory::desc describe(const ArrayView& view) const {
    ArrayView matrix = view;
    if (!batched_) {
      matrix.shape.erase(0);
      matrix.strides.erase(0);
    }
    return dnn::describe(matrix);
  }

  bool batched_ = false;
  dnn::Runnable runnable_;
};

/// A single small f32 product, without a primitive.
void multiply_by_sgemm(const GemmArguments& call) {
  const ArrayView &a = call.a, &b = call.b, &out = call.out;
  const std::int64_t rows = out.shape[1], columns = out.shape[2];
  double beta = call.beta;
  if (call.bias) {
    const float* bias = call.bias.as<const float>();
    for (std::int64_t i = 0; i < rows; ++i) {
      float* row = out.as<float>() + i * out.strides[1];
      for (std::int64_t j = 0; j < columns; ++j)
        row[j] = bias[j] + (beta == 0 ? 0.0f : static_cast<float>(beta) * row[j]);
    }
    beta = 1;
  }
  const bool ta = a.strides[2] != 1, tb = b.strides[2] != 1;
  const auto status = dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', rows, columns, a.shape[2], 1.0f,
                                 a.as<const float>(), ta ? a.strides[2] : a.strides[1],
                                 b.as<const float>(), tb ? b.strides[2] : b.strides[1],
                                 static_cast<float>(beta), out.as<float>(), out.strides[1]);
  if (status != dnnl_success) throw OnednnError("dnnl_sgemm", status, "the product did not run");
}

bool is_small(const GemmArguments& call) {
  const auto f32 = [](const ArrayView& view) { return !view || view.dtype == DType::f32; };
  return call.out.shape[0] == 1 &&
         call.out.shape[1] * call.out.shape[2] * call.a.shape[2] <= small_product && f32(call.a) &&
         f32(call.out) && f32(call.bias);
}

/// Runs the product part of a call. @returns false where oneDNN cannot.
bool multiply(GemmArguments call) {
  for (ArrayView* view : {&call.out, &call.a, &call.b})
    if (!normalise_matrix(*view)) return false;
  if (call.out.strides[2] != 1) {
    if (call.bias) return false;
    std::swap(call.a, call.b);
    for (ArrayView* view : {&call.out, &call.a, &call.b}) {
      *view = dnn::transposed(*view);
      normalise_matrix(*view);  // a vector's strides mean something else now
    }
  }
  if (call.bias && call.bias.strides[0] != 1 && call.bias.shape[0] != 1) return false;
  call.epilogue = call.bias ? Epilogue::bias : Epilogue::none;
  if (cpu_kernels::multiply_few_rows(call)) return true;
  if (is_multiplied_in_f32(call.a.dtype)) {
    multiply_in_f32(call, [](const GemmArguments& block) {
      if (!multiply(block)) cpu().gemm.multiply(block, StreamRef{});
    });
    return true;
  }
  if (cpu_kernels::multiply_small(call)) return true;
  if (is_small(call)) {
    multiply_by_sgemm(call);
    return true;
  }
  dnn::Key key;
  for (ArrayView* view : {&call.a, &call.b}) {
    if (view->strides[0] == 0) {  // oneDNN broadcasts by extents of 1
      view->shape[0] = 1;
      normalise_matrix(*view);
    }
    key.add(*view);
  }
  key.add(call.out);
  key.add(call.bias);
  key.add(std::bit_cast<std::int64_t>(call.beta));
  static thread_local detail::KeptByThread<dnn::PrimitiveCache<Matmul>> cache;
  Matmul& matmul = cache.get().get(key, [&] { return Matmul(call); });
  if (!matmul) return false;
  matmul.run(call);
  return true;
}

/// What is left to the CPU kernels: other dtypes, errors, an empty depth, rare accumulations.
bool fits(const GemmArguments& call) {
  const auto multiplies = [](DType dtype) {
    return dnn::trains(dtype) || is_multiplied_in_f32(dtype);
  };
  const bool known = multiplies(call.a.dtype) && multiplies(call.out.dtype) &&
                     call.a.dtype == call.b.dtype && call.a.rank() == 3 && call.b.rank() == 3 &&
                     call.out.rank() == 3 && (!call.bias || multiplies(call.bias.dtype));
  const bool agree = known && call.a.shape[2] == call.b.shape[1] &&
                     call.out.shape[1] == call.a.shape[1] && call.out.shape[2] == call.b.shape[2] &&
                     call.out.shape[0] == call.a.shape[0] && call.a.shape[0] == call.b.shape[0];
  const bool own_pass = call.epilogue == Epilogue::gelu_bias || call.epilogue == Epilogue::dgelu;
  return agree && call.a.shape[2] > 0 && !(own_pass && call.beta != 0);
}

bool plain_product(GemmArguments call) {
  if (call.epilogue == Epilogue::none) call.bias = {};
  return multiply(call);
}

bool gelu_bias(GemmArguments call, StreamRef stream) {
  const ArrayView out = call.out;
  if (call.aux) call.out = call.aux;
  if (!multiply(call)) return false;
  cpu().elementwise.unary({.op = UnaryOp::gelu_tanh, .y = out, .x = call.out}, stream);
  return true;
}

bool dgelu(GemmArguments call, StreamRef stream) {
  call.bias = {};
  if (!multiply(call)) return false;
  cpu().elementwise.unary_backward(
      {.op = UnaryOp::gelu_tanh, .dx = call.out, .dy = call.out, .saved = call.aux}, stream);
  return true;
}

/// bf16 by tile registers where the machine has them; else oneDNN's matmul for f32 and bf16, which
/// is multiplied in f32 where the processor cannot, as f16 is everywhere, for small f32 products
/// the CPU's tiles or oneDNN's sgemm, and the elementwise engine for GELU.
void multiply_here(const GemmArguments& call, StreamRef stream) {
  if (!fits(call)) return cpu().gemm.multiply(call, stream);
  if (call.out.numel() == 0) return;
  GemmArguments folded = call;
  fold_batch(folded, stream);
  if (cpu_kernels::multiply_in_tiles(folded)) return;
  if (folded.addend) {
    cpu().elementwise.copy({.out = folded.out, .in = folded.addend}, stream);
    folded.addend = {};
  }
  const bool done = call.epilogue == Epilogue::gelu_bias ? gelu_bias(folded, stream)
                    : call.epilogue == Epilogue::dgelu   ? dgelu(folded, stream)
                                                         : plain_product(folded);
  if (!done) cpu().gemm.multiply(folded, stream);
}

/// For its scope the calling thread's ops are its own alone.
class OneThread {
 public:
  OneThread() : former_(num_threads()) { set_num_threads(1); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() { set_num_threads(former_); }

 private:
  const int former_;
};

/// In blocks of the result that its shape alone decides, each by one thread: libraries split sums
/// among threads, of which ranks may have different numbers.
void multiply_alike(const GemmArguments& call, StreamRef stream) {
  if (!fits(call) || call.out.numel() == 0) return multiply_here(call, stream);
  constexpr std::int64_t blocks_of_matrix = 16, least_extent = 32;
  const std::int64_t batch = call.out.shape[0], rows = call.out.shape[1],
                     columns = call.out.shape[2];
  const bool by_rows = rows >= columns || call.bias || call.aux;
  const std::int64_t extent = by_rows ? rows : columns;
  const std::int64_t size = std::max(
      least_extent, (extent / blocks_of_matrix + least_extent - 1) / least_extent * least_extent);
  const std::int64_t blocks = (extent + size - 1) / size;
  parallel_for(batch * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    const OneThread alone;
    for (std::int64_t at = begin; at < end; ++at) {
      const std::int64_t first = at % blocks * size, count = std::min(size, extent - first);
      const auto own = [&](const ArrayView& view, bool is_cut) {
        if (!view) return view;
        const ArrayView matrix = part(view, 0, view.shape[0] == 1 ? 0 : at / blocks, 1);
        return is_cut ? part(matrix, by_rows ? 1 : 2, first, count) : matrix;
      };
      GemmArguments block = call;
      block.out = own(call.out, true);
      block.addend = own(call.addend, true);
      block.aux = own(call.aux, true);
      block.a = own(call.a, by_rows);
      block.b = own(call.b, !by_rows);
      multiply_here(block, stream);
    }
  });
}

void multiply_arrays(const GemmArguments& call, StreamRef stream) {
  if (call.epilogue == Epilogue::bias_gradient) {
    cpu().reduction.reduce(bias_gradient(call), stream);
    return multiply_arrays(without_epilogue(call), stream);
  }
  if (AlikeOnAllRanks::is_active()) return multiply_alike(call, stream);
  multiply_here(call, stream);
}

}  // namespace

kernels::GemmKernels onednn_gemm() { return {.multiply = multiply_arrays}; }

}  // namespace lockstep::backend
