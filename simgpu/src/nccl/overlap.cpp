#include "nccl/overlap.hpp"

#include "memory/address_space.hpp"

namespace simgpu::nccl {
namespace {

bool overlap(const Access& one, const Access& other) {
  const auto begin = [](const Access& access) {
    return static_cast<const std::byte*>(access.data);
  };
  return begin(one) < begin(other) + other.bytes && begin(other) < begin(one) + one.bytes;
}

/// True if the call's own buffers lie over each other as it may be.
bool is_in_place(const Arguments& call, int rank) {
  const Signature& signature = call.signature;
  const std::size_t part = signature.count * size_of(static_cast<ncclDataType_t>(signature.type));
  const std::byte* const receive = call.receive;
  switch (signature.function) {
    case Function::all_reduce:
    case Function::reduce:
    case Function::broadcast: return call.send == receive;
    case Function::reduce_scatter:
    case Function::scatter: return receive == call.send + static_cast<std::size_t>(rank) * part;
    case Function::all_gather:
    case Function::gather: return call.send == receive + static_cast<std::size_t>(rank) * part;
    default: return false;
  }
}

std::string describe_access(const Arguments& call, const Access& access) {
  return std::string("nccl") + call.signature.name() + (access.writes ? " writes " : " reads ") +
         std::to_string(access.bytes) + " bytes at " + describe_address(access.data);
}

}  // namespace

std::string overlap_of(const std::vector<Arguments>& calls, int rank, int size) {
  std::vector<std::vector<Access>> accesses;
  for (const Arguments& call : calls) accesses.push_back(accesses_of(call, rank, size));
  for (std::size_t i = 0; i < calls.size(); ++i)
    for (std::size_t j = i; j < calls.size(); ++j) {
      if (i == j && is_in_place(calls[i], rank)) continue;
      for (const Access& one : accesses[i])
        for (const Access& other : accesses[j]) {
          const bool is_itself = i == j && one.writes == other.writes;
          if (is_itself || !(one.writes || other.writes) || !overlap(one, other)) continue;
          return "  " + describe_access(calls[i], one) + "\n  " + describe_access(calls[j], other) +
                 (i == j ? "\n  they overlap, and not as in a call in place"
                         : "\n  they overlap, and calls of a group have no order");
        }
    }
  return {};
}

std::string misaligned_of(const std::vector<Arguments>& calls, int rank, int size) {
  for (const Arguments& call : calls) {
    const std::size_t element = size_of(static_cast<ncclDataType_t>(call.signature.type));
    for (const Access& access : accesses_of(call, rank, size))
      if (reinterpret_cast<std::uintptr_t>(access.data) % element != 0)
        return "  " + describe_access(call, access) + "\n  the address is no multiple of the " +
               std::to_string(element) + " bytes of an element";
  }
  return {};
}

}  // namespace simgpu::nccl
