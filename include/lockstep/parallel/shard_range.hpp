#pragma once

#include <cstdint>

#include "lockstep/core/shape.hpp"

/// @file
/// Which part of a tensor a rank has.

namespace lockstep::parallel {

/// Elements of a tensor in row-major order.
struct ShardRange {
  Shape whole;             ///< of the tensor
  std::int64_t begin = 0;  ///< the first that the rank has
  std::int64_t count = 0;  ///< how many it has
  friend bool operator==(const ShardRange&, const ShardRange&) = default;
};

/// The shape of a shard of these elements: as many dimensions as the tensor has, at least one, all
/// elements along the first.
inline Shape shape_of_shard(const ShardRange& range) {
  Shape shape;
  shape.push_back(range.count);
  for (int i = 1; i < range.whole.size(); ++i) shape.push_back(1);
  return shape;
}

}  // namespace lockstep::parallel
