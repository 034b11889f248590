#include "arguments/index.hpp"

#include <cstring>

#include "cpu/lines.hpp"

namespace lockstep::cpu_kernels {
namespace {

std::int64_t checked(std::int64_t index, std::int64_t extent, std::string_view op) {
  LOCKSTEP_CHECK(index >= 0 && index < extent, InvalidArgument, op, ": index ", index,
                 " is outside [0, ", extent, ")");
  return index;
}

}  // namespace

void index::gather(const kernels::GatherArguments& arguments, StreamRef) {
  const ArrayView &out = arguments.out, &in = arguments.in, &index = arguments.index;
  const int dim = arguments.dim;
  const std::int64_t extent = in.shape[dim], length = out.shape[dim];
  const auto size = lockstep::size_of(out.dtype);
  const auto step = static_cast<std::int64_t>(size);
  for_each_line(out.shape, dim, {&out.strides, &in.strides, &index.strides},
                [&](const auto& offset) {
                  for (std::int64_t i = 0; i < length; ++i) {
                    const std::int64_t at =
                        checked(index.as<std::int64_t>()[offset[2] + i * index.strides[dim]],
                                extent, "gather or index_select");
                    std::memcpy(out.as<char>() + (offset[0] + i * out.strides[dim]) * step,
                                in.as<char>() + (offset[1] + at * in.strides[dim]) * step, size);
                  }
                });
}

void index::scatter_add(const kernels::ScatterAddArguments& arguments, StreamRef) {
  const ArrayView &out = arguments.out, &in = arguments.in, &index = arguments.index;
  const int dim = arguments.dim;
  const std::int64_t extent = out.shape[dim], length = in.shape[dim];
  dispatch_numeric(out.dtype, "scatter_add", [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_line(in.shape, dim, {&out.strides, &in.strides, &index.strides},
                  [&](const auto& offset) {
                    for (std::int64_t i = 0; i < length; ++i) {
                      const std::int64_t at =
                          checked(index.as<std::int64_t>()[offset[2] + i * index.strides[dim]],
                                  extent, "scatter_add");
                      T& to = out.as<T>()[offset[0] + at * out.strides[dim]];
                      to = static_cast<T>(widen(to) +
                                          widen(in.as<const T>()[offset[1] + i * in.strides[dim]]));
                    }
                  });
  });
}

}  // namespace lockstep::cpu_kernels
