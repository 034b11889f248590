#pragma once

#include <cstdint>

#include "lockstep/core/error.hpp"

/// @file
/// What every sampler asks of its data set.

namespace lockstep::data {

/// The size. @throws InvalidArgument for an empty data set.
inline std::int64_t check_size(std::int64_t size) {
  LOCKSTEP_CHECK(size > 0, InvalidArgument, "the data set is empty (", size,
                 " samples); at least one sample is needed");
  return size;
}

}  // namespace lockstep::data
