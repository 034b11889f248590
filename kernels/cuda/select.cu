#include "arguments/elementwise.hpp"
#include "cuda/pointwise.hpp"
#include "functional/compare.hpp"

namespace lockstep::cuda_kernels {
namespace {

template <class T>
struct Select {
  __device__ T operator()(bool condition, T a, T b) const { return condition ? a : b; }
};

template <CompareOp op, class T>
struct Compare {
  __device__ bool operator()(T left, T right) const {
    using A = std::conditional_t<is_16_bit_float<T>, float, T>;
    return functional::compare<op>(convert<A>(left), convert<A>(right));
  }
};

template <CompareOp op>
void compare_with(const ArrayView& out, const ArrayView& a, const ArrayView& b, StreamRef stream) {
  dispatch_all(a.dtype, "compare", [&]<class T>(TypeTag<T>) {
    pointwise<bool, T, T>(stream, Compare<op, T>{}, out, a, b);
  });
}

}  // namespace

void elementwise::where(const kernels::WhereArguments& arguments, StreamRef stream) {
  dispatch_all(arguments.out.dtype, "where", [&]<class T>(TypeTag<T>) {
    pointwise<T, bool, T, T>(stream, Select<T>{}, arguments.out, arguments.condition, arguments.a,
                             arguments.b);
  });
}

void elementwise::compare(const kernels::CompareArguments& arguments, StreamRef stream) {
  const ArrayView &out = arguments.out, &a = arguments.a, &b = arguments.b;
  switch (arguments.op) {
#define LOCKSTEP_COMPARE_OP(name, ...) \
  case CompareOp::name:                \
    return compare_with<CompareOp::name>(out, a, b, stream);
#include "functional/ops.def"
  }
}

}  // namespace lockstep::cuda_kernels
