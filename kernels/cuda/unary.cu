#include "arguments/elementwise.hpp"
#include "cuda/maths_common.hpp"
#include "functional/unary.hpp"

namespace lockstep::cuda_kernels {
namespace {

template <class T, class Functor>
struct Forward {
  Functor functor;
  __device__ T operator()(T x) const {
    return convert<T>(functor.forward(convert<AccumulateType<T>>(x)));
  }
};

template <template <class> class Functor>
void run(std::string_view name, const kernels::UnaryArguments& a, StreamRef stream) {
  functional::check_same_dtype(name, a.y, a.x);
  dispatch_served<Functor>(a.y.dtype, name, a.constants, stream.device, [&]<class T>(TypeTag<T>) {
    using F = Functor<AccumulateType<T>>;
    pointwise<T, T>(stream, Forward<T, F>{F(a.constants)}, a.y, a.x);
  });
}

}  // namespace

void elementwise::unary(const kernels::UnaryArguments& arguments, StreamRef stream) {
  switch (arguments.op) {
#define LOCKSTEP_UNARY_OP(name, Functor, ...) \
  case UnaryOp::name:                         \
    return run<functional::Functor>(#name, arguments, stream);
#include "functional/ops.def"
  }
}

}  // namespace lockstep::cuda_kernels
