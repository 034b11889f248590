#include "cuda/maths.hpp"
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
void run(std::string_view name, const ArrayView& y, const ArrayView& x, OpConstants constants,
         StreamRef stream) {
  functional::check_same_dtype(name, y, x);
  dispatch_served<Functor>(y.dtype, name, constants, stream.device, [&]<class T>(TypeTag<T>) {
    using F = Functor<AccumulateType<T>>;
    pointwise<T, T>(stream, Forward<T, F>{F(constants)}, y, x);
  });
}

}  // namespace

void unary(UnaryOp op, const ArrayView& y, const ArrayView& x, OpConstants constants,
           StreamRef stream) {
  switch (op) {
#define LOCKSTEP_UNARY_OP(name, Functor, ...) \
  case UnaryOp::name:                         \
    return run<functional::Functor>(#name, y, x, constants, stream);
#include "functional/ops.def"
  }
}

}  // namespace lockstep::cuda_kernels
