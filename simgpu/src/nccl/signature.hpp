#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "nccl.h"

/// @file
/// What a rank says about its call, so that the others can compare.

namespace simgpu::nccl {

enum class Function : std::uint8_t {
  all_reduce,
  reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  gather,
  scatter,
  send,
  receive,
  management,  ///< exchanges of the library itself (split)
};

/// One call as it travels between ranks.
struct Signature {
  Function function = Function::management;
  std::uint8_t type = 0;  ///< ncclDataType_t
  std::uint8_t op = 0;    ///< built-in ncclRedOp_t; ncclNumOps stands for any pre-multiplied sum
  bool is_registered = false;  ///< whether the rank has registered all buffers of the call
  std::int32_t root = 0;       ///< or the peer of send and receive
  std::uint64_t count = 0;
  std::uint64_t factor = 0;  ///< of a pre-multiplied sum, in the bits of `type`; may differ

  /// The function's name as NCCL spells it: "AllReduce".
  const char* name() const;
  /// "f32".
  const char* type_name() const;
  /// "AllReduce #5 f32 x 1024 sum".
  std::string describe(std::uint64_t number) const;
};

/// True if calls of a collective with the same number on two ranks belong together.
bool match(const Signature& a, const Signature& b);

/// Bytes of an element; 0 for what is no type.
std::size_t size_of(ncclDataType_t type);
/// True for send and receive.
bool is_point_to_point(Function function);
/// True for collectives that reduce.
bool reduces(Function function);
/// True for collectives with a root.
bool has_root(Function function);

}  // namespace simgpu::nccl
