#include "backend/elementwise.hpp"

#include "backend/cuda/families.hpp"
#include "cuda/generate.hpp"
#include "cuda/maths.hpp"
#include "cuda/move.hpp"

namespace lockstep::backend {
namespace {

namespace kernels = cuda_kernels;

class CudaElementwise final : public Elementwise {
 public:
  void unary(UnaryOp op, const ArrayView& y, const ArrayView& x, OpConstants constants,
             StreamRef stream) override {
    kernels::unary(op, y, x, constants, stream);
  }
  void unary_backward(UnaryOp op, const ArrayView& dx, const ArrayView& dy, const ArrayView& x,
                      const ArrayView& y, OpConstants constants, StreamRef stream) override {
    const ArrayView& saved = traits(op).saves == Saves::output ? y : x;
    kernels::unary_backward(op, dx, dy, saved, constants, stream);
  }
  void binary(BinaryOp op, const ArrayView& out, const ArrayView& a, const ArrayView& b,
              OpConstants constants, StreamRef stream) override {
    kernels::binary(op, out, a, b, constants, stream);
  }
  void binary_backward(BinaryOp op, const ArrayView& da, const ArrayView& db, const ArrayView& dout,
                       const ArrayView& a, const ArrayView& b, OpConstants constants,
                       StreamRef stream) override {
    if (da) kernels::binary_backward(op, false, da, dout, a, b, constants, stream);
    if (db) kernels::binary_backward(op, true, db, dout, a, b, constants, stream);
  }
  void compare(CompareOp op, const ArrayView& out, const ArrayView& a, const ArrayView& b,
               StreamRef stream) override {
    kernels::compare(op, out, a, b, stream);
  }
  void where(const ArrayView& out, const ArrayView& condition, const ArrayView& a,
             const ArrayView& b, StreamRef stream) override {
    kernels::where(out, condition, a, b, stream);
  }
  void copy(const ArrayView& out, const ArrayView& in, StreamRef stream) override {
    kernels::copy(out, in, stream);
  }
  void fill(const ArrayView& out, double value, StreamRef stream) override {
    kernels::fill(out, value, stream);
  }
  void arange(const ArrayView& out, double start, double step, StreamRef stream) override {
    kernels::arange(out, start, step, stream);
  }
  void triangle(const ArrayView& out, const ArrayView& in, bool upper, std::int64_t diagonal,
                StreamRef stream) override {
    kernels::triangle(out, in, upper, diagonal, stream);
  }
  void uniform(const ArrayView& out, double low, double high, PhiloxState random,
               StreamRef stream) override {
    kernels::uniform(out, low, high, random, stream);
  }
  void normal(const ArrayView& out, double mean, double deviation, PhiloxState random,
              StreamRef stream) override {
    kernels::normal(out, mean, deviation, random, stream);
  }
  void dropout(const ArrayView& out, const ArrayView& x, double p, PhiloxState random,
               StreamRef stream) override {
    kernels::dropout(out, x, p, random, stream);
  }
};

}  // namespace

Elementwise& cuda_families::elementwise() {
  static CudaElementwise family;
  return family;
}

}  // namespace lockstep::backend
