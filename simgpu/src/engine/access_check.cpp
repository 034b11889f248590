#include "engine/access_check.hpp"

#include <sstream>

#include "engine/host.hpp"
#include "memory/address_space.hpp"
#include "memory/bits.hpp"
#include "memory/contents.hpp"
#include "memory/describe.hpp"
#include "memory/fast_path.hpp"
#include "memory/pool_blocks.hpp"
#include "memory/virtual_memory.hpp"

namespace simgpu {
namespace {

struct Place {
  Finding finding;
  std::string text;
};

/// What is at an address that no live block holds, in the device's view.
Place place_of(const void* address) {
  const Allocations& allocations = Allocations::instance();
  const auto allocation = allocations.find(address);
  if (!allocation) {
    const auto freed = allocations.find_freed(address);
    if (freed) return {Finding::use_after_free, describe_freed(*freed, address)};
    const auto gap = VirtualMemory::instance().gap_at(address);
    const bool is_late = gap && gap->had_memory;
    return {is_late ? Finding::use_after_free : Finding::out_of_bounds, describe_address(address)};
  }
  const PoolBlocks& pools = PoolBlocks::instance();
  if (pools.serves_pool_on_device(allocation->home())) {
    const auto block = pools.find_on_device(address);
    if (block && block->live) return {Finding::out_of_bounds, describe_in(block->block, address)};
    if (block) return {Finding::use_after_free, describe_returned(*block, address)};
  }
  return {Finding::out_of_bounds, describe_in(allocation->block, address)};
}

/// Offset of the first byte that does not lie in the live block in which the access begins.
std::optional<std::size_t> first_outside(const Access& access) {
  const auto begin = reinterpret_cast<std::uintptr_t>(access.data);
  const LiveRange range = find_live_range(access.data);
  if (!range.holds(begin, 1)) return 0;
  if (range.holds(begin, access.bytes)) return std::nullopt;
  return range.end - begin;
}

AccessProblem problem(const Access& access, std::size_t offset, const Place& place) {
  std::ostringstream text;
  text << (access.writes ? "writes " : "reads ") << access.bytes << " bytes at " << access.data;
  if (offset > 0)
    text << ", of which byte " << offset << " is";
  else
    text << ":";
  text << " " << place.text;
  return {place.finding, text.str()};
}

/// Who wrote the rest of the block: whoever left something out.
std::string neighbour_of(const std::byte* at) {
  const LiveRange range = find_live_range(at);
  const std::string writer =
      describe_writer_near(at, reinterpret_cast<const void*>(range.begin), range.end - range.begin);
  return writer.empty() ? "" : "\n  what is beside it was " + writer;
}

/// A block that lies right behind another is told from it by the one in which the access begins.
Place place_past(const Access& access, std::size_t offset) {
  const auto* at = static_cast<const std::byte*>(access.data) + offset;
  if (offset == 0) return place_of(at);
  const PoolBlocks& pools = PoolBlocks::instance();
  const auto block = pools.find_on_device(access.data);
  const auto allocation = Allocations::instance().find(access.data);
  if (block && block->live) return {Finding::out_of_bounds, describe_in(block->block, at)};
  if (allocation) return {Finding::out_of_bounds, describe_in(allocation->block, at)};
  return place_of(at);
}

}  // namespace

std::optional<AccessProblem> problem_of(const Access& access, bool needs_values) {
  if (access.bytes == 0 || !is_tracked(access.data)) return std::nullopt;
  if (const auto offset = first_outside(access))
    return problem(access, *offset, place_past(access, *offset));
  if (access.writes || !needs_values) return std::nullopt;
  const auto offset = first_uninitialized(access.data, access.bytes);
  if (!offset) return std::nullopt;
  const auto* at = static_cast<const std::byte*>(access.data) + *offset;
  const auto block = PoolBlocks::instance().find_on_device(at);
  const auto allocation = Allocations::instance().find(at);
  const std::string what = block && block->live ? describe_in(block->block, at)
                           : allocation         ? describe_in(allocation->block, at)
                                                : describe_address(at);
  if (const auto site = Contents::instance().discarded_at(at))
    return problem(access, *offset,
                   {Finding::uninitialized_read, "not written since it was discarded: " + what +
                                                     "\n  discarded by " + describe(*site)});
  return problem(access, *offset,
                 {Finding::uninitialized_read, "never written: " + what + neighbour_of(at)});
}

bool check_accesses(const std::string& name, const CallSite& site,
                    const std::vector<Access>& accesses, bool needs_values) {
  bool allowed = true;
  for (const Access& access : accesses) {
    const auto found = problem_of(access, needs_values);
    if (!found) continue;
    report(found->finding, name + " " + found->text + "\n  " + name + " at " + describe(site));
    allowed = false;
  }
  return allowed;
}

bool check_accesses(const Operation& operation, bool needs_values) {
  return check_accesses(operation.name, operation.site, operation.accesses, needs_values);
}

bool is_reachable(const Access& access) {
  if (access.bytes == 0 || !is_tracked(access.data)) return true;
  const auto allocation = Allocations::instance().find(access.data);
  if (!allocation) return false;
  const auto begin = reinterpret_cast<std::uintptr_t>(access.data);
  return begin + access.bytes <= allocation->pages + allocation->page_bytes;
}

void mark_written(const std::vector<Access>& accesses) {
  for (const Access& access : accesses)
    if (access.writes) mark_initialized(access.data, access.bytes);
}

}  // namespace simgpu
