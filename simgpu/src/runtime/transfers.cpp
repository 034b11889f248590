#include "runtime/transfers.hpp"

#include <cstring>
#include <memory>
#include <utility>

#include "base/options.hpp"
#include "engine/access_check.hpp"
#include "memory/address_space.hpp"
#include "memory/allocations.hpp"
#include "memory/bits.hpp"
#include "memory/pool_blocks.hpp"
#include "memory/virtual_memory.hpp"
#include "profile/profile.hpp"

namespace simgpu {
namespace {

std::byte* at(void* data, std::size_t offset) { return static_cast<std::byte*>(data) + offset; }
const std::byte* at(const void* data, std::size_t offset) {
  return static_cast<const std::byte*>(data) + offset;
}

bool is_device_memory(const void* address) {
  return is_tracked(address) && slot_of(address) != Layout::pinned_slot;
}

/// Adds the rows of one side; those that touch each other as one.
void add_rows(std::vector<Access>& accesses, Access row, std::size_t pitch, std::size_t height) {
  if (row.bytes == 0) return;
  if (pitch == row.bytes) {
    row.bytes *= height;
    height = height > 0 ? 1 : 0;
  }
  for (std::size_t i = 0; i < height; ++i)
    accesses.push_back({at(row.data, i * pitch), row.bytes, row.writes});
}

std::vector<Access> accesses_of(const Copy& copy) {
  std::vector<Access> accesses;
  add_rows(accesses, {copy.from, copy.width, false}, copy.from_pitch, copy.height);
  add_rows(accesses, {copy.to, copy.width, true}, copy.to_pitch, copy.height);
  return accesses;
}

/// The bytes that the host holds now, without gaps.
std::shared_ptr<std::vector<std::byte>> staged(const Copy& copy) {
  auto bytes = std::make_shared<std::vector<std::byte>>(copy.bytes());
  for (std::size_t row = 0; row < copy.height; ++row)
    std::memcpy(bytes->data() + row * copy.width, at(copy.from, row * copy.from_pitch), copy.width);
  return bytes;
}

void copy_shadow(void* to, const void* from, std::size_t bytes) {
  if (!is_device_memory(to)) return;
  if (is_tracked(from)) return copy_bits(Layout::initialized_bits, to, from, bytes);
  mark_initialized(to, bytes);
}

/// Values of the devices mean nothing where not all work is done: then only their shadow moves.
bool moves_values(const void* to, const void* from) {
  return options().execute == Execute::all || !is_device_memory(to) || !is_device_memory(from);
}

void run_copy(const Copy& copy) {
  const bool moves = moves_values(copy.to, copy.from);
  for (std::size_t row = 0; row < copy.height; ++row) {
    std::byte* const to = at(copy.to, row * copy.to_pitch);
    const std::byte* const from = at(copy.from, row * copy.from_pitch);
    if (moves) std::memmove(to, from, copy.width);
    copy_shadow(to, from, copy.width);
  }
}

const char* reason(Finding finding) {
  return finding == Finding::use_after_free
             ? " bytes of memory that was given back: "
             : " bytes, of which the first that is not its block's is ";
}

/// The first byte of an access that is not in the block in which the access begins.
const std::byte* first_outside(const Access& access) {
  const auto* data = static_cast<const std::byte*>(access.data);
  const std::optional<Block> block = block_of(data);
  const std::byte* const end = block ? block->data + block->bytes : data;
  return data + access.bytes > end ? end : nullptr;
}

Finding kind_of(const void* outside) {
  const auto pool = PoolBlocks::instance().find(outside);
  if (pool && !pool->live) return Finding::use_after_free;
  const Allocations& allocations = Allocations::instance();
  const bool was_freed = !allocations.find(outside) && allocations.find_freed(outside);
  const auto gap = VirtualMemory::instance().gap_at(outside);
  return was_freed || (gap && gap->had_memory) ? Finding::use_after_free : Finding::out_of_bounds;
}

}  // namespace

namespace {

profile::Fields profile_of(const Copy& copy) {
  if (!profile::is_on()) return {};
  const bool from_device = is_device_memory(copy.from), to_device = is_device_memory(copy.to);
  const bool is_peer = from_device && to_device && slot_of(copy.from) != slot_of(copy.to);
  return profile::Fields()
      .add("kind", "copy")
      .add("direction", is_peer       ? "p2p"
                        : !to_device  ? (from_device ? "d2h" : "h2h")
                        : from_device ? "d2d"
                                      : "h2d")
      .add("bytes", copy.bytes())
      .add("pinned", is_tracked(copy.from) && is_tracked(copy.to));
}

}  // namespace

Operation copy_operation(const char* name, Copy copy, Source source) {
  const CallSite site = CallSite::here();
  std::shared_ptr<std::vector<std::byte>> kept;
  if (source == Source::read_now) {
    kept = staged(copy);
    copy.from = kept->data();
    copy.from_pitch = copy.width;
  }
  std::vector<Access> accesses = accesses_of(copy);
  profile::Fields record = profile_of(copy);
  const bool to_host = !is_device_memory(copy.to) && is_device_memory(copy.from);
  auto run = [=, kept = std::move(kept)] {
    if (check_accesses(name, site, accesses, false)) {
      if (to_host) check_accesses(name, site, accesses, true);
      run_copy(copy);
    }
    return true;
  };
  return {.name = name,
          .site = site,
          .accesses = accesses,
          .profile = std::move(record),
          .run = std::move(run)};
}

Operation fill_operation(const char* name, const Fill& fill) {
  const CallSite site = CallSite::here();
  std::vector<Access> accesses;
  add_rows(accesses, {fill.data, fill.width, true}, fill.pitch, fill.height);
  auto run = [=] {
    if (!check_accesses(name, site, accesses)) return true;
    for (const Access& access : accesses)
      if (options().execute == Execute::all)
        std::memset(const_cast<void*>(access.data), fill.value, access.bytes);
    mark_written(accesses);
    return true;
  };
  profile::Fields record;
  if (profile::is_on()) record.add("kind", "memset").add("bytes", fill.width * fill.height);
  return {.name = name,
          .site = site,
          .accesses = accesses,
          .profile = std::move(record),
          .run = std::move(run)};
}

cudaError_t check_ranges(const Operation& operation) {
  for (const Access& access : operation.accesses) {
    if (access.bytes == 0 || !is_tracked(access.data)) continue;
    const std::byte* const outside = first_outside(access);
    if (!outside) continue;
    const Finding finding = kind_of(outside);
    report(finding, operation.name + (access.writes ? " writes " : " reads ") +
                        std::to_string(access.bytes) + reason(finding) + describe_address(outside) +
                        "\n  " + operation.name + " at " + describe(operation.site));
    return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

}  // namespace simgpu
