#include "memory/guards.hpp"

#include <array>
#include <utility>

#include "memory/device_side.hpp"
#include "memory/patterns.hpp"

namespace simgpu {
namespace {

std::array<std::pair<std::byte*, std::size_t>, 2> guards_of(const Allocation& allocation) {
  auto* const pages = reinterpret_cast<std::byte*>(allocation.pages);
  std::byte* const end = allocation.block.data + allocation.block.bytes;
  return {{{pages, static_cast<std::size_t>(allocation.block.data - pages)},
           {end, static_cast<std::size_t>(pages + allocation.page_bytes - end)}}};
}

}  // namespace

void fill_guards(const Allocation& allocation) {
  const DeviceSideScope scope;
  for (const auto& [data, bytes] : guards_of(allocation)) fill_pattern(data, bytes, Pattern::guard);
}

const std::byte* damaged_guard(const Allocation& allocation) {
  const DeviceSideScope scope;
  for (const auto& [data, bytes] : guards_of(allocation))
    if (const auto at = first_difference(data, bytes, Pattern::guard)) return data + *at;
  return nullptr;
}

}  // namespace simgpu
