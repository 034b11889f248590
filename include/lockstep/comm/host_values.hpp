#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/communicator.hpp"

/// @file
/// Blocking exchanges of small host values over any communicator: losses, flags, plans.

namespace lockstep::comm {

/// Reduces one number over all ranks and blocks for the result.
double all_reduce_scalar(Communicator& group, double value, ReduceOp reduction = ReduceOp::sum(),
                         std::string_view label = {});
/// Reduces one integer over all ranks and blocks for the result.
std::int64_t all_reduce_scalar(Communicator& group, std::int64_t value,
                               ReduceOp reduction = ReduceOp::sum(), std::string_view label = {});

/// Gives every rank root's number; what the others pass is ignored. Blocks.
double broadcast_scalar(Communicator& group, double value, int root = 0,
                        std::string_view label = {});
/// Gives every rank root's integer; what the others pass is ignored. Blocks.
std::int64_t broadcast_scalar(Communicator& group, std::int64_t value, int root = 0,
                              std::string_view label = {});

/// Gives every rank root's bytes; what the others pass is ignored.
std::string broadcast_bytes(Communicator& group, std::string_view bytes, int root = 0,
                            std::string_view label = {});

/// Gives every rank the bytes of all ranks, in rank order; lengths may differ.
std::vector<std::string> all_gather_bytes(Communicator& group, std::string_view bytes,
                                          std::string_view label = {});

}  // namespace lockstep::comm
