#include "functional/rotary.hpp"

#include "cpu/loops/fill.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {
namespace {

template <class T>
void rotate(const RotaryRows& a, std::int64_t begin, std::int64_t end) {
  using A = AccumulateType<T>;
  for (std::int64_t head = begin; head < end; ++head)
    functional::rotary_row<A>(functional::SoloGroup{}, static_cast<T*>(a.y) + head * a.y_stride,
                              static_cast<const T*>(a.x) + head * a.x_stride,
                              static_cast<const A*>(a.cos), static_cast<const A*>(a.sin), a.pairs,
                              a.inverse ? A(-1) : A(1));
}

}  // namespace

void fill_rotary(RowLoops& loops) {
  const auto add = [&]<class T>(TypeTag<T>) {
    loops.rotary[static_cast<std::size_t>(dtype_of<T>)] = rotate<T>;
  };
  add(TypeTag<double>{});
  add(TypeTag<float>{});
  add(TypeTag<BFloat16>{});
  add(TypeTag<Half>{});
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
