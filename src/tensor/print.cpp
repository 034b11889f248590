#include <iomanip>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep {
namespace {

constexpr std::int64_t edge_items = 3;  // shown at each end of a long dimension
constexpr std::int64_t long_dimension = 8;

/// Prints the sub-array of dimension `dim` that starts at `values[at]`.
template <class T>
void print_values(std::ostream& out, const Tensor& tensor, const std::vector<T>& values, int dim,
                  std::size_t at) {
  if (dim == tensor.dim()) {
    out << values[at];
    return;
  }
  const std::int64_t extent = tensor.shape()[dim];
  std::size_t step = 1;
  for (int i = dim + 1; i < tensor.dim(); ++i) step *= static_cast<std::size_t>(tensor.shape()[i]);
  const bool innermost = dim + 1 == tensor.dim();
  out << '[';
  for (std::int64_t i = 0; i < extent; ++i) {
    if (i) out << (innermost ? ", " : ",\n" + std::string(static_cast<std::size_t>(dim) + 1, ' '));
    if (extent > long_dimension && i == edge_items) {
      out << "...";
      i = extent - edge_items - 1;
      continue;
    }
    print_values(out, tensor, values, dim + 1, at + static_cast<std::size_t>(i) * step);
  }
  out << ']';
}

/// That of a stream of which nobody has asked for another.
constexpr std::streamsize default_precision = 6;

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor.defined()) return out << "tensor(undefined)";
  const auto flags = out.flags();
  const auto precision = out.precision();
  if (precision == default_precision) out.precision(4);
  if (is_floating(tensor.dtype()))
    print_values(out, tensor, tensor.to_vector<double>(), 0, 0);
  else
    print_values(out, tensor, tensor.to_vector<std::int64_t>(), 0, 0);
  out.flags(flags);
  out.precision(precision);
  return out << "\n(" << tensor.dtype() << ' ' << tensor.shape() << " on " << tensor.device()
             << ')';
}

}  // namespace lockstep
