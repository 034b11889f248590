#include "memory/describe.hpp"

#include <cstdint>
#include <sstream>

#include "memory/names.hpp"
#include "memory/pool_blocks.hpp"
#include "memory/virtual_memory.hpp"

namespace simgpu {
namespace {

void put_position(std::ostream& text, const Block& block, const void* address) {
  const auto* at = static_cast<const std::byte*>(address);
  const std::byte* end = block.data + block.bytes;
  if (at < block.data) {
    text << block.data - at << " bytes before the ";
  } else if (at >= end) {
    text << at - end << " bytes past the end of the ";
  } else if (at > block.data) {
    text << "byte " << at - block.data << " of the ";
  }
}

bool is_inside(const Block& block, const void* address) {
  const auto* at = static_cast<const std::byte*>(address);
  return at >= block.data && at < block.data + block.bytes;
}

std::string in_words(const Block& block, const void* address, const char* state) {
  std::ostringstream text;
  put_position(text, block, address);
  if (block.is_pool_block) text << "pool ";
  text << "block of " << block.bytes << " bytes at " << static_cast<const void*>(block.data);
  std::string name = block.name;
  if (name.empty()) name = Names::instance().of(address);
  if (name.empty() && !is_inside(block, address)) name = Names::instance().of(block.data);
  if (!name.empty()) text << " ('" << name << "')";
  if (block.kind == MemoryKind::pinned) {
    text << " of pinned host memory";
  } else {
    text << " of device " << block.device;
  }
  text << state << (block.is_pool_block ? ", handed out by " : ", allocated by ")
       << describe(block.created);
  return text.str();
}

}  // namespace

std::string describe_in(const Block& block, const void* address) {
  return in_words(block, address, "");
}

std::string describe_freed(const Allocation& allocation, const void* address) {
  return in_words(allocation.block, address, ", which was freed") + "\n  freed by " +
         describe(allocation.freed);
}

std::string describe_returned(const PoolBlock& block, const void* address) {
  return in_words(block.block, address, ", which its pool has back") + "\n  given back by " +
         describe(block.returned);
}

std::string describe_former(const void* address, std::uint64_t call) {
  const auto holder = PoolBlocks::instance().find(address);
  if (!holder || holder->number < call) return {};
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (const PoolBlock& block : holder->former)
    if (at >= block.begin() && at < block.begin() + block.capacity)
      return describe_returned(block, address);
  return {};
}

std::string describe_address(const void* address) {
  if (const auto pool = PoolBlocks::instance().find(address))
    return pool->live ? describe_in(pool->block, address) : describe_returned(*pool, address);
  const Allocations& allocations = Allocations::instance();
  if (const auto live = allocations.find(address)) return describe_in(live->block, address);
  if (const auto freed = allocations.find_freed(address)) return describe_freed(*freed, address);
  if (const auto gap = VirtualMemory::instance().gap_at(address)) return gap->text;
  std::ostringstream text;
  text << "address " << address;
  if (!is_tracked(address)) {
    text << " of the host's own memory";
  } else if (slot_of(address) == Layout::pinned_slot) {
    text << ", where no pinned memory is";
  } else {
    text << ", where device " << slot_of(address) << " has no memory";
  }
  return text.str();
}

}  // namespace simgpu
