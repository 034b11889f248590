#include "arguments/elementwise.hpp"
#include "cuda/maths_common.hpp"
#include "functional/unary.hpp"

namespace lockstep::cuda_kernels {
namespace {

template <class T, class Functor, Saves saves>
struct Backward {
  Functor functor;
  using A = AccumulateType<T>;
  __device__ T operator()(T dy) const {
    return convert<T>(functor.gradient(convert<A>(dy), A(0), A(0)));
  }
  __device__ T operator()(T dy, T saved) const {
    const A kept = convert<A>(saved);
    if constexpr (saves == Saves::input)
      return convert<T>(functor.gradient(convert<A>(dy), kept, A(0)));
    else
      return convert<T>(functor.gradient(convert<A>(dy), A(0), kept));
  }
};

template <template <class> class Functor, Saves saves>
void run(std::string_view name, const kernels::UnaryBackwardArguments& a, StreamRef stream) {
  dispatch_floating(a.dx.dtype, name, [&]<class T>(TypeTag<T>) {
    using F = Functor<AccumulateType<T>>;
    const Backward<T, F, saves> op{F(a.constants)};
    if constexpr (saves == Saves::nothing)
      pointwise<T, T>(stream, op, a.dx, a.dy);
    else
      pointwise<T, T, T>(stream, op, a.dx, a.dy, a.saved);
  });
}

}  // namespace

void elementwise::unary_backward(const kernels::UnaryBackwardArguments& arguments,
                                 StreamRef stream) {
  switch (arguments.op) {
#define LOCKSTEP_UNARY_OP(name, Functor, saves, ...) \
  case UnaryOp::name:                                \
    return run<functional::Functor, Saves::saves>(#name, arguments, stream);
#include "functional/ops.def"
  }
}

}  // namespace lockstep::cuda_kernels
