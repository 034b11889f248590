#include "kernels/argument_scan.hpp"

#include <algorithm>
#include <cstring>

#include "memory/address_space.hpp"

namespace simgpu {
namespace {

using Kind = KernelArgument::Kind;

void add_access(std::vector<Access>& accesses, const Access& access) {
  const bool known = std::any_of(accesses.begin(), accesses.end(), [&](const Access& other) {
    return other.data == access.data && other.writes == access.writes;
  });
  if (!known) accesses.push_back(access);
}

void add_pointer(ArgumentScan& scan, const void* pointer, Kind kind) {
  if (!is_tracked(pointer)) return;
  const bool may_write = kind != Kind::read_pointer;
  const auto known = std::find_if(scan.pointers.begin(), scan.pointers.end(),
                                  [&](const auto& other) { return other.data == pointer; });
  if (known == scan.pointers.end())
    scan.pointers.push_back({pointer, may_write});
  else
    known->may_write |= may_write;
  const auto block = block_of(pointer);
  if (!block) return;
  // What is written may be read as well: `x += y` takes one pointer.
  add_access(scan.accesses, {block->data, block->bytes, false});
  if (may_write) add_access(scan.accesses, {block->data, block->bytes, true});
}

}  // namespace

ArgumentScan scan_arguments(std::initializer_list<KernelArgument> arguments) {
  ArgumentScan scan;
  for (const KernelArgument& argument : arguments) {
    const auto* const bytes = static_cast<const std::byte*>(argument.bytes);
    for (std::size_t at = 0; at + sizeof(void*) <= argument.size; at += sizeof(void*)) {
      const void* pointer = nullptr;
      std::memcpy(&pointer, bytes + at, sizeof pointer);
      add_pointer(scan, pointer, argument.kind);
    }
  }
  return scan;
}

void add_variables(KernelLaunch& launch, const std::vector<PlacedVariable>& variables) {
  for (const PlacedVariable& variable : variables)
    launch.pointers.push_back({variable.data, variable.kind == VariableKind::device});
  for (const PlacedVariable& variable : variables)
    for (std::size_t at = 0; at + sizeof(void*) <= variable.bytes; at += sizeof(void*)) {
      const void* pointer = nullptr;
      std::memcpy(&pointer, variable.data + at, sizeof pointer);
      if (is_tracked(pointer)) launch.pointers.push_back({pointer, true});
    }
}

}  // namespace simgpu
