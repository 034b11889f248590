#include "memory/allocations.hpp"

#include <iterator>
#include <utility>

#include "base/report.hpp"
#include "memory/bits.hpp"
#include "memory/describe.hpp"
#include "memory/fault_handler.hpp"
#include "memory/guards.hpp"
#include "memory/pages.hpp"
#include "memory/pinned_fault.hpp"
#include "memory/protection.hpp"
#include "memory/reservation.hpp"
#include "memory/virtual_memory.hpp"

namespace simgpu {
namespace {

/// Freed ranges whose addresses are not used again yet.
constexpr std::size_t quarantined_allocations = 4096;

std::size_t charged(std::size_t bytes) { return (bytes + 511) / 512 * 512; }

void* pages_of(const Allocation& allocation) { return reinterpret_cast<void*>(allocation.pages); }

/// What belongs to the program, and what of it was written: all of pinned memory, because the host
/// writes it unseen.
void mark_fresh(const Allocation& allocation) {
  const Block& block = allocation.block;
  set_bits_of_allocation(Layout::live_bits, block.data, block.bytes, true);
  if (block.kind == MemoryKind::pinned)
    set_bits_of_allocation(Layout::initialized_bits, block.data, block.bytes, true);
}

void mark_gone(const Allocation& allocation) {
  set_bits_of_allocation(Layout::live_bits, pages_of(allocation), allocation.page_bytes, false);
  set_bits_of_allocation(Layout::initialized_bits, pages_of(allocation), allocation.page_bytes,
                         false);
}

std::string damage_text(const Allocation& allocation, const std::byte* at) {
  return "the guard around memory was overwritten: " + describe_in(allocation.block, at);
}

cudaError_t refuse_free(const void* data, const std::optional<Allocation>& freed) {
  std::string text = "freed what no allocation begins with: " + describe_address(data);
  if (freed) text = "freed twice: " + describe_freed(*freed, data);
  report(Finding::invalid_free, text + "\n  at " + describe(CallSite::here()));
  return cudaErrorInvalidValue;
}

}  // namespace

Allocations& Allocations::instance() {
  static Allocations& allocations = *new Allocations();
  return allocations;
}

Allocations::Allocations() : used_(Layout::max_devices + 1) {
  for (int slot = 0; slot <= Layout::max_devices; ++slot) placements_.emplace_back(slot);
}

cudaError_t Allocations::allocate(void** data, std::size_t bytes, int device, MemoryKind kind) {
  if (!reserve_address_space()) return cudaErrorInitializationError;
  install_fault_handler();
  const bool pinned = kind == MemoryKind::pinned;
  const auto slot = static_cast<std::size_t>(pinned ? Layout::pinned_slot : device);
  const std::lock_guard lock(mutex_);
  const std::size_t limit = pinned ? Layout::slot_bytes / 2 : total_memory(device);
  if (bytes > limit || charged(bytes) > limit - used_[slot]) return cudaErrorMemoryAllocation;
  const std::size_t size = round_up_to_page(bytes + 2 * guard_bytes);
  const auto pages = placements_[slot].take(size);
  if (!pages) return cudaErrorMemoryAllocation;
  if (!commit_pages(reinterpret_cast<void*>(*pages), size)) {
    placements_[slot].give_back(*pages);
    return cudaErrorMemoryAllocation;
  }
  Allocation made{.pages = *pages, .page_bytes = size};
  made.block = {.data = reinterpret_cast<std::byte*>(*pages) + guard_bytes,
                .bytes = bytes,
                .device = device,
                .kind = kind,
                .created = CallSite::here()};
  fill_guards(made);
  if (!pinned) set_owner(pages_of(made), size, Owner::device);
  mark_fresh(made);
  used_[slot] += charged(bytes);
  *data = made.block.data;
  live_.emplace(*pages, std::move(made));
  return cudaSuccess;
}

cudaError_t Allocations::release(void* data, MemoryKind kind) {
  std::unique_lock lock(mutex_);
  const Allocation* found = holding(live_, reinterpret_cast<std::uintptr_t>(data));
  if (!found || found->block.data != data || found->block.kind != kind) {
    lock.unlock();
    return refuse_free(data, find_freed(data));
  }
  // At no time is the memory neither live nor freed.
  Allocation gone = std::move(live_.extract(found->pages).mapped());
  gone.freed = CallSite::here();
  const Allocation before = gone;
  const std::byte* const damage = damaged_guard(gone);
  mark_gone(gone);
  put_away(std::move(gone));
  lock.unlock();
  if (damage) report(Finding::out_of_bounds, damage_text(before, damage));
  return cudaSuccess;
}

/// Takes the memory away and keeps the addresses for a while. Device memory goes on to exist, as
/// poison, so that what runs on can be reported; freed pinned memory faults.
void Allocations::put_away(Allocation allocation) {
  const auto slot = static_cast<std::size_t>(slot_of(pages_of(allocation)));
  used_[slot] -= charged(allocation.block.bytes);
  if (allocation.block.kind == MemoryKind::pinned) {
    forget_pinned_pages(pages_of(allocation), allocation.page_bytes);
    decommit_pages(pages_of(allocation), allocation.page_bytes);
  } else {
    poison_pages(pages_of(allocation), allocation.page_bytes);
    set_owner(pages_of(allocation), allocation.page_bytes, Owner::device);
  }
  freed_order_.push_back(allocation.pages);
  freed_.emplace(allocation.pages, std::move(allocation));
  if (freed_order_.size() <= quarantined_allocations) return;
  const auto oldest = freed_.extract(freed_order_.front()).mapped();
  freed_order_.pop_front();
  decommit_pages(pages_of(oldest), oldest.page_bytes);
  placements_[static_cast<std::size_t>(slot_of(pages_of(oldest)))].give_back(oldest.pages);
}

const Allocation* Allocations::holding(const ByPage& allocations, std::uintptr_t address) {
  const auto after = allocations.upper_bound(address);
  if (after == allocations.begin()) return nullptr;
  const Allocation& candidate = std::prev(after)->second;
  return address < candidate.pages + candidate.page_bytes ? &candidate : nullptr;
}

std::optional<Allocation> Allocations::find(const void* address) const {
  {
    const std::lock_guard lock(mutex_);
    const Allocation* found = holding(live_, reinterpret_cast<std::uintptr_t>(address));
    if (found) return *found;
  }
  return VirtualMemory::instance().find(address);
}

std::optional<Allocation> Allocations::find_freed(const void* address) const {
  const std::lock_guard lock(mutex_);
  const Allocation* found = holding(freed_, reinterpret_cast<std::uintptr_t>(address));
  return found ? std::optional(*found) : std::nullopt;
}

AllocationBounds Allocations::bounds_of(const void* address) const {
  {
    const std::lock_guard lock(mutex_);
    const Allocation* found = holding(live_, reinterpret_cast<std::uintptr_t>(address));
    if (found) {
      const auto begin = reinterpret_cast<std::uintptr_t>(found->block.data);
      const std::uintptr_t end = begin + found->block.bytes;
      return {begin, end, begin, end};
    }
  }
  return VirtualMemory::instance().bounds_of(address);
}

std::optional<std::uintptr_t> Allocations::take_addresses(std::size_t bytes, int device) {
  if (!reserve_address_space()) return std::nullopt;
  install_fault_handler();
  const std::lock_guard lock(mutex_);
  return placements_[static_cast<std::size_t>(device)].take(bytes);
}

void Allocations::give_back_addresses(std::uintptr_t begin, int device) {
  const std::lock_guard lock(mutex_);
  placements_[static_cast<std::size_t>(device)].give_back(begin);
}

bool Allocations::charge(std::size_t bytes, int device) {
  const std::lock_guard lock(mutex_);
  std::size_t& used = used_[static_cast<std::size_t>(device)];
  if (bytes > total_memory(device) - used) return false;
  used += bytes;
  return true;
}

void Allocations::discharge(std::size_t bytes, int device) {
  const std::lock_guard lock(mutex_);
  used_[static_cast<std::size_t>(device)] -= bytes;
}

std::vector<Allocation> Allocations::live() const {
  const std::lock_guard lock(mutex_);
  std::vector<Allocation> all;
  for (const auto& [pages, allocation] : live_) all.push_back(allocation);
  return all;
}

std::size_t Allocations::used(int slot) const {
  const std::lock_guard lock(mutex_);
  return used_[static_cast<std::size_t>(slot)];
}

std::vector<std::string> Allocations::mend_guards(std::optional<int> device) {
  std::vector<std::string> damages;
  const std::lock_guard lock(mutex_);
  for (const auto& [pages, allocation] : live_) {
    const bool is_pinned = allocation.block.kind == MemoryKind::pinned;
    if (device && !is_pinned && allocation.block.device != *device) continue;
    const std::byte* damage = damaged_guard(allocation);
    if (!damage) continue;
    damages.push_back(damage_text(allocation, damage));
    fill_guards(allocation);
  }
  return damages;
}

}  // namespace simgpu
