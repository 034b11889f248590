#include "memory/switched_pages.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include <sys/mman.h>

#include "memory/layout.hpp"

namespace simgpu {
namespace {

/// What a fault opens: few pages for small arrays, and few faults for large ones, as a window that
/// goes on behind another one is of twice its size.
constexpr std::uintptr_t least_window = std::uintptr_t{64} << 10,
                         largest_window = least_window << 5;

/// @return false where the system has no more mappings.
bool change(std::uintptr_t begin, std::uintptr_t end, int protection) {
  return mprotect(reinterpret_cast<void*>(begin), end - begin, protection) == 0;
}

}  // namespace

SwitchedPages& SwitchedPages::instance() {
  static SwitchedPages& pages = *new SwitchedPages();
  return pages;
}

void SwitchedPages::set_owner(void* pages, std::size_t bytes, Owner owner) {
  const std::uintptr_t begin = number_of(pages), end = begin + bytes;
  const std::lock_guard lock(mutex_);
  take_out(begin, end);
  const bool is_everyones = owner == Owner::everyone;
  ranges_.emplace(begin, Range{end, is_everyones});
  change(begin, end, is_everyones ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void SwitchedPages::forget(void* pages, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  take_out(number_of(pages), number_of(pages) + bytes);
}

bool SwitchedPages::open(const void* address, const void* opener) {
  const std::uintptr_t at = number_of(address);
  const std::lock_guard lock(mutex_);
  const auto found = first_behind(at);
  if (found == ranges_.end() || found->first > at) return false;
  if (found->second.is_everyones) return true;
  const std::uintptr_t window = at & ~(least_window - 1);
  std::uintptr_t begin = std::max(found->first, window);
  std::uintptr_t end = std::min(found->second.end, window + bytes_at(begin));
  if (!change(begin, end, PROT_READ | PROT_WRITE)) {
    std::tie(begin, end) = std::pair(found->first, found->second.end);
    change(begin, end, PROT_READ | PROT_WRITE);  // one mapping in the place of many
  }
  windows_.emplace(begin, Window{end, opener});
  return true;
}

void SwitchedPages::close(const void* opener) {
  const std::lock_guard lock(mutex_);
  std::erase_if(windows_, [&](const auto& window) {
    if (window.second.opener != opener) return false;
    protect(window.first, window.second.end);
    return true;
  });
}

/// How much is opened from a place on: all that may be where there are many windows, of which the
/// system can tell as many apart as it has mappings.
std::uintptr_t SwitchedPages::bytes_at(std::uintptr_t begin) const {
  constexpr std::size_t many_windows = 4096;
  if (windows_.size() > many_windows) return largest_window;
  const auto behind = windows_.lower_bound(begin);
  if (behind == windows_.begin()) return least_window;
  const auto& [before, window] = *std::prev(behind);
  if (window.end != begin) return least_window;
  return std::clamp(2 * (window.end - before), least_window, largest_window);
}

/// What of the range is still the device's.
void SwitchedPages::protect(std::uintptr_t begin, std::uintptr_t end) {
  for (auto at = first_behind(begin); at != ranges_.end() && at->first < end; ++at)
    if (!at->second.is_everyones)
      change(std::max(begin, at->first), std::min(end, at->second.end), PROT_NONE);
}

/// The first range that ends behind an address.
SwitchedPages::Ranges::iterator SwitchedPages::first_behind(std::uintptr_t address) {
  const auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return after;
  const auto before = std::prev(after);
  return before->second.end > address ? before : after;
}

/// Removes a range, cutting those that overlap it.
void SwitchedPages::take_out(std::uintptr_t begin, std::uintptr_t end) {
  for (auto at = first_behind(begin); at != ranges_.end() && at->first < end;) {
    const auto [old_begin, old] = *at;
    at = ranges_.erase(at);
    if (old_begin < begin) ranges_.emplace(old_begin, Range{begin, old.is_everyones});
    if (old.end > end) ranges_.emplace(end, old);
  }
}

}  // namespace simgpu
