#pragma once

#include <cstdint>
#include <vector>

/// @file
/// Random orders that depend on their arguments alone.

namespace lockstep::data {

/// A uniformly drawn permutation of 0 ... count - 1 (Fisher and Yates' shuffle over Philox
/// numbers): the same for the same arguments on every machine, and unrelated for another seed or
/// epoch. @throws InvalidArgument for a negative count.
std::vector<std::int64_t> random_permutation(std::int64_t count, std::uint64_t seed,
                                             std::uint64_t epoch);

}  // namespace lockstep::data
