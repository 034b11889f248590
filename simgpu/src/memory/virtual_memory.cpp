#include "memory/virtual_memory.hpp"

#include <iterator>
#include <sstream>
#include <utility>

#include "memory/bits.hpp"
#include "memory/layout.hpp"
#include "memory/pool_blocks.hpp"
#include "memory/protection.hpp"
#include "memory/registered_memory.hpp"
#include "memory/reservation.hpp"

namespace simgpu {
namespace {

/// Freed ranges of addresses that are not used again yet.
constexpr std::size_t quarantined_reservations = 8;

bool is_whole(std::size_t value) { return value > 0 && value % VirtualMemory::granularity == 0; }

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

void set_live(std::uintptr_t begin, std::size_t bytes, bool live) {
  set_bits_of_allocation(Layout::live_bits, pointer(begin), bytes, live);
  set_bits_of_allocation(Layout::initialized_bits, pointer(begin), bytes, false);
}

}  // namespace

VirtualMemory& VirtualMemory::instance() {
  static VirtualMemory& memory = *new VirtualMemory();
  return memory;
}

CUresult VirtualMemory::reserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment,
                                int device) {
  if (!is_whole(bytes) || (alignment & (alignment - 1)) != 0 || alignment > granularity)
    return CUDA_ERROR_INVALID_VALUE;
  // More than is asked for, to begin where pages do.
  const auto placed = Allocations::instance().take_addresses(bytes + granularity, device);
  if (!placed) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::uintptr_t begin = (*placed + granularity - 1) / granularity * granularity;
  const std::lock_guard lock(mutex_);
  reservations_.emplace(begin, Reservation{.begin = begin,
                                           .end = begin + bytes,
                                           .placed = *placed,
                                           .device = device,
                                           .created = CallSite::here()});
  *address = begin;
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::free_addresses(CUdeviceptr address, std::size_t bytes) {
  Reservation gone;
  {
    const std::lock_guard lock(mutex_);
    const auto found = reservations_.find(address);
    if (found == reservations_.end() || found->second.end - address != bytes ||
        !found->second.mappings.empty())
      return CUDA_ERROR_INVALID_VALUE;
    gone = std::move(reservations_.extract(found).mapped());
  }
  PoolBlocks::instance().forget(pointer(address), bytes);
  put_away(std::move(gone));
  return CUDA_SUCCESS;
}

/// Keeps the addresses, and the poison there, for a while: what is late can be reported.
void VirtualMemory::put_away(Reservation gone) {
  const std::lock_guard lock(mutex_);
  freed_.push_back(std::move(gone));
  if (freed_.size() <= quarantined_reservations) return;
  const Reservation& oldest = freed_.front();
  decommit_pages(pointer(oldest.begin), oldest.end - oldest.begin);
  Allocations::instance().give_back_addresses(oldest.placed, oldest.device);
  freed_.pop_front();
}

CUresult VirtualMemory::create(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                               int device) {
  if (!is_whole(bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (!Allocations::instance().charge(bytes, device)) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(mutex_);
  physical_.emplace(*handle = ++last_handle_, Physical{.bytes = bytes, .device = device});
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::release(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(mutex_);
  const auto found = physical_.find(handle);
  if (found == physical_.end() || found->second.is_released) return CUDA_ERROR_INVALID_VALUE;
  found->second.is_released = true;
  drop(handle);
  return CUDA_SUCCESS;
}

/// Physical memory is gone once nothing is left of it.
void VirtualMemory::drop(CUmemGenericAllocationHandle handle) {
  const auto found = physical_.find(handle);
  if (found->second.is_mapped || !found->second.is_released) return;
  Allocations::instance().discharge(found->second.bytes, found->second.device);
  physical_.erase(found);
}

CUresult VirtualMemory::map(CUdeviceptr address, std::size_t bytes,
                            CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(mutex_);
  Reservation* const reservation = holding(address, bytes);
  const auto physical = physical_.find(handle);
  if (!reservation || !is_whole(bytes) || address % granularity != 0 ||
      physical == physical_.end() || physical->second.is_released || bytes > physical->second.bytes)
    return CUDA_ERROR_INVALID_VALUE;
  const auto next = reservation->mappings.lower_bound(address);
  if (next != reservation->mappings.end() && next->first < address + bytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (next != reservation->mappings.begin() && std::prev(next)->second.end > address)
    return CUDA_ERROR_INVALID_VALUE;
  if (physical->second.is_mapped || physical->second.bytes != bytes ||
      physical->second.device != reservation->device)
    return CUDA_ERROR_NOT_SUPPORTED;  // by the simulated GPU
  physical->second.is_mapped = true;
  reservation->mappings.emplace(
      address, Mapping{.end = address + bytes, .handle = handle, .created = CallSite::here()});
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::unmap(CUdeviceptr address, std::size_t bytes) {
  if (!is_mapped(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  RegisteredMemory::instance().check(pointer(address), bytes, "unmapped");
  PoolBlocks::instance().forget_blocks(pointer(address), bytes);
  const std::lock_guard lock(mutex_);
  Reservation* const reservation = holding(address, bytes);
  const std::uintptr_t end = address + bytes;
  if (!reservation || !covers_whole(*reservation, address, end)) return CUDA_ERROR_INVALID_VALUE;
  auto at = reservation->mappings.find(address);
  while (at != reservation->mappings.end() && at->first < end) {
    physical_.at(at->second.handle).is_mapped = false;
    drop(at->second.handle);
    at = reservation->mappings.erase(at);
  }
  reservation->accessible.erase(address, end);
  reservation->past.add(address, end);
  reservation->unmapped = CallSite::here();
  set_live(address, bytes, false);
  // What runs on reads poison, and can be reported.
  poison_pages(pointer(address), bytes);
  set_owner(pointer(address), bytes, Owner::device);
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::open(CUdeviceptr address, std::size_t bytes) {
  const bool serves_pool = PoolBlocks::instance().serves_pool(pointer(reserved_at(address)));
  const std::lock_guard lock(mutex_);
  Reservation* const reservation = holding(address, bytes);
  const std::uintptr_t end = address + bytes;
  if (!reservation || !covers_whole(*reservation, address, end)) return CUDA_ERROR_INVALID_VALUE;
  for (auto at = reservation->mappings.find(address);
       at != reservation->mappings.end() && at->first < end; ++at) {
    if (reservation->accessible.find(at->first)) continue;
    const std::size_t size = at->second.end - at->first;
    if (!commit_pages(pointer(at->first), size)) return CUDA_ERROR_OUT_OF_MEMORY;
    set_owner(pointer(at->first), size, Owner::device);
    // In a pool's memory nothing is anybody's until the pool gives it out.
    set_live(at->first, size, !serves_pool);
    reservation->accessible.add(at->first, at->second.end);
  }
  return CUDA_SUCCESS;
}

std::uintptr_t VirtualMemory::reserved_at(std::uintptr_t address) const {
  const std::lock_guard lock(mutex_);
  const Reservation* const found = holding(address);
  return found ? found->begin : 0;
}

bool VirtualMemory::is_mapped(CUdeviceptr address, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const Reservation* const reservation = holding(address);
  return reservation && covers_whole(*reservation, address, address + bytes);
}

/// True if mappings without a gap between them begin at `begin` and end at `end`.
bool VirtualMemory::covers_whole(const Reservation& reservation, std::uintptr_t begin,
                                 std::uintptr_t end) {
  std::uintptr_t covered = begin;
  for (auto at = reservation.mappings.find(begin);
       at != reservation.mappings.end() && at->first == covered && covered < end; ++at)
    covered = at->second.end;
  return begin < end && covered == end;
}

const VirtualMemory::Reservation* VirtualMemory::holding(std::uintptr_t address) const {
  const auto after = reservations_.upper_bound(address);
  if (after == reservations_.begin()) return nullptr;
  const Reservation& found = std::prev(after)->second;
  return address < found.end ? &found : nullptr;
}

VirtualMemory::Reservation* VirtualMemory::holding(std::uintptr_t begin, std::size_t bytes) {
  auto* const found = const_cast<Reservation*>(std::as_const(*this).holding(begin));
  return found && bytes <= found->end - begin ? found : nullptr;
}

std::optional<Allocation> VirtualMemory::find(const void* address) const {
  const std::lock_guard lock(mutex_);
  const Reservation* const reservation = holding(number_of(address));
  const auto run = reservation ? reservation->accessible.find(number_of(address)) : std::nullopt;
  if (!run) return std::nullopt;
  Allocation found{.pages = run->first,
                   .page_bytes = run->second - run->first,
                   .reservation = reservation->begin};
  found.block = {
      .data = static_cast<std::byte*>(pointer(run->first)),
      .bytes = run->second - run->first,
      .device = reservation->device,
      .kind = MemoryKind::device,
      .created = std::prev(reservation->mappings.upper_bound(number_of(address)))->second.created};
  return found;
}

AllocationBounds VirtualMemory::bounds_of(const void* address) const {
  const std::lock_guard lock(mutex_);
  const Reservation* const reservation = holding(number_of(address));
  const auto run = reservation ? reservation->accessible.find(number_of(address)) : std::nullopt;
  if (!run) return {};
  return {run->first, run->second, reservation->begin, reservation->end};
}

std::optional<VirtualMemory::Gap> VirtualMemory::gap_at(const void* address) const {
  const std::lock_guard lock(mutex_);
  const std::uintptr_t at = number_of(address);
  const Reservation* const reservation = holding(at);
  if (!reservation || reservation->accessible.find(at)) return std::nullopt;
  std::ostringstream text;
  text << "byte " << at - reservation->begin << " of " << reservation->end - reservation->begin
       << " addresses at " << pointer(reservation->begin) << ", ";
  const auto after = reservation->mappings.upper_bound(at);
  if (after != reservation->mappings.begin() && at < std::prev(after)->second.end) {
    text << "whose memory nothing has access to (cuMemSetAccess), mapped by "
         << describe(std::prev(after)->second.created);
    return Gap{false, text.str()};
  }
  if (reservation->past.find(at)) {
    text << "where no memory is any more\n  unmapped last by " << describe(reservation->unmapped);
    return Gap{true, text.str()};
  }
  text << "where no memory is, reserved by " << describe(reservation->created);
  return Gap{false, text.str()};
}

}  // namespace simgpu
