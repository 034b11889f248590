#include "lockstep/core/shape.hpp"

#include <algorithm>

namespace lockstep {

std::ostream& operator<<(std::ostream& out, const Dims& dims) {
  out << '[';
  for (int i = 0; i < dims.size(); ++i) out << (i ? ", " : "") << dims[i];
  return out << ']';
}

std::int64_t numel(const Shape& shape) {
  std::int64_t total = 1;
  bool overflow = false;
  bool empty = false;
  for (const auto extent : shape) {
    LOCKSTEP_CHECK(extent >= 0, InvalidArgument, "negative extent in shape ", shape);
    empty |= extent == 0;
    overflow |= __builtin_mul_overflow(total, extent == 0 ? 1 : extent, &total);
  }
  LOCKSTEP_CHECK(!overflow, InvalidArgument, "shape ", shape, " has more than 2^63 - 1 elements");
  return empty ? 0 : total;
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides = shape;
  std::int64_t step = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= shape[i] > 1 ? shape[i] : 1;
  }
  return strides;
}

Strides channels_last_strides(const Shape& shape) {
  LOCKSTEP_CHECK(shape.size() == 4, InvalidArgument,
                 "channels-last needs a shape [N, C, H, W], got ", shape);
  const auto c = shape[1], h = shape[2], w = shape[3];
  return {h * w * c, 1, w * c, c};
}

bool is_contiguous(const Shape& shape, const Strides& strides) {
  std::int64_t step = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    if (shape[i] == 1) continue;
    // Without elements any order of them is the row-major one.
    if (strides[i] != step) return std::ranges::find(shape, 0) != shape.end();
    step *= shape[i];
  }
  return true;
}

int wrap_dim(std::int64_t dim, int rank) {
  LOCKSTEP_CHECK(dim >= -rank && dim < rank, InvalidArgument, "dimension ", dim, " is outside [",
                 -rank, ", ", rank, ") of a tensor with ", rank, " dimensions");
  return static_cast<int>(dim < 0 ? dim + rank : dim);
}

Shape broadcast_shapes(const Shape& a, const Shape& b, std::string_view op) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape result = longer;
  const int lead = longer.size() - shorter.size();
  for (int i = 0; i < shorter.size(); ++i) {
    const auto x = longer[lead + i], y = shorter[i];
    LOCKSTEP_CHECK(x == y || x == 1 || y == 1, InvalidArgument, op, op.empty() ? "" : ": ",
                   "shapes ", a, " and ", b, " cannot be broadcast: extents ", x, " and ", y,
                   " differ and neither is 1");
    result[lead + i] = x == 1 ? y : x;
  }
  return result;
}

Strides broadcast_strides(const Shape& from, const Strides& strides, const Shape& to) {
  LOCKSTEP_CHECK(from.size() <= to.size(), InvalidArgument, "shape ", from,
                 " cannot be expanded to ", to, ", which has fewer dimensions");
  Strides result = Dims::filled(to.size(), 0);
  const int lead = to.size() - from.size();
  for (int i = 0; i < from.size(); ++i) {
    LOCKSTEP_CHECK(from[i] == to[lead + i] || from[i] == 1, InvalidArgument, "shape ", from,
                   " cannot be expanded to ", to, ": extent ", from[i], " is neither 1 nor ",
                   to[lead + i]);
    result[lead + i] = from[i] == to[lead + i] ? strides[i] : 0;
  }
  return result;
}

}  // namespace lockstep
