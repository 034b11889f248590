#include "memory/address_space.hpp"

#include <utility>

#include "base/options.hpp"
#include "base/report.hpp"
#include "memory/allocations.hpp"
#include "memory/bits.hpp"
#include "memory/fast_path.hpp"
#include "memory/names.hpp"
#include "memory/pool_blocks.hpp"
#include "memory/registered_memory.hpp"

namespace simgpu {
namespace {

Block named(Block block, const void* address) {
  if (std::string name = Names::instance().of(address); !name.empty()) block.name = std::move(name);
  return block;
}

bool holds(const Block& block, const void* address) {
  const auto* at = static_cast<const std::byte*>(address);
  return at >= block.data && at <= block.data + block.bytes;
}

}  // namespace

cudaError_t allocate(void** data, std::size_t bytes, int device, MemoryKind kind) {
  return Allocations::instance().allocate(data, bytes, device, kind);
}

cudaError_t release(void* data, MemoryKind kind) {
  const std::optional<Allocation> gone = Allocations::instance().find(data);
  // Guards of blocks are looked at by any thread, so that they are given up before the memory is;
  // that the blocks went back is known until the memory counts as freed.
  const bool is_whole =
      gone && !gone->reservation && gone->block.data == data && gone->block.kind == kind;
  if (is_whole) RegisteredMemory::instance().check(gone->block.data, gone->block.bytes, "freed");
  if (is_whole) PoolBlocks::instance().forget_on_device(gone->block.data, gone->block.bytes);
  const cudaError_t status = Allocations::instance().release(data, kind);
  if (status != cudaSuccess || !is_whole) return status;
  PoolBlocks::instance().forget(gone->block.data, gone->block.bytes);
  Names::instance().forget(gone->block.data, gone->block.bytes);
  return status;
}

std::size_t total_memory(int) { return options().memory; }

std::size_t free_memory(int device) {
  return total_memory(device) - Allocations::instance().used(device);
}

std::optional<Block> block_of(const void* address) {
  if (!is_tracked(address)) return std::nullopt;
  const std::optional<PoolBlock> pool = PoolBlocks::instance().find(address);
  if (pool && pool->live && holds(pool->block, address)) return named(pool->block, address);
  const std::optional<Allocation> found = Allocations::instance().find(address);
  if (!found || !holds(found->block, address)) return std::nullopt;
  if (PoolBlocks::instance().serves_pool(found->home())) return std::nullopt;
  // The executor may have freed it meanwhile (cudaFreeAsync).
  if (!Allocations::instance().find(address)) return std::nullopt;
  return named(found->block, address);
}

LiveRange find_live_range(const void* address) {
  if (!is_tracked(address)) return {};
  const AllocationBounds bounds = Allocations::instance().bounds_of(address);
  if (bounds.begin == bounds.end) return {};
  const auto in_pool =
      PoolBlocks::instance().live_range(reinterpret_cast<const void*>(bounds.home_begin), address);
  return in_pool ? *in_pool : LiveRange{bounds.begin, bounds.end};
}

void check_guards(std::optional<int> device) {
  for (std::string& text : Allocations::instance().mend_guards(device))
    report(Finding::out_of_bounds, std::move(text));
  for (std::string& text : PoolBlocks::instance().mend_guards(device))
    report(Finding::out_of_bounds, std::move(text));
}

void mend_guards() {
  Allocations::instance().mend_guards(std::nullopt);
  PoolBlocks::instance().mend_guards(std::nullopt);
}

void mark_initialized(const void* data, std::size_t bytes) {
  if (!is_tracked(data)) return;
  // Programs that keep all their memory in one allocation: its bits are not to be memory of the
  // host.
  constexpr std::size_t huge = std::size_t{1} << 30;
  (bytes < huge ? set_bits : set_bits_of_allocation)(Layout::initialized_bits, data, bytes, true);
}

void mark_uninitialized(const void* data, std::size_t bytes) {
  if (is_tracked(data)) set_bits(Layout::initialized_bits, data, bytes, false);
}

std::optional<std::size_t> first_uninitialized(const void* data, std::size_t bytes) {
  // Where not all work is done, values mean nothing, and nobody is told of those that are missing.
  if (!is_tracked(data) || options().execute != Execute::all) return std::nullopt;
  return first_clear_bit(Layout::initialized_bits, data, bytes);
}

void name_memory(const void* data, std::size_t bytes, std::string name) {
  Names::instance().set(data, bytes, std::move(name));
}

}  // namespace simgpu
