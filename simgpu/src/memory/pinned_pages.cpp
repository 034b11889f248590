#include "memory/pinned_pages.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/options.hpp"
#include "memory/device_side.hpp"
#include "memory/layout.hpp"
#include "memory/pages.hpp"
#include "memory/pinned_fault.hpp"
#include "memory/protection.hpp"

namespace simgpu {
namespace {

using Range = std::pair<std::uintptr_t, std::uintptr_t>;

/// Ranges of closed pages. Its lock is never held while the engine is asked, which calls back here.
class ClosedPages {
 public:
  static ClosedPages& instance() {
    static ClosedPages& pages = *new ClosedPages();
    return pages;
  }

  void close(Range range) {
    const std::lock_guard lock(mutex_);
    const auto covering = find(range.first);
    if (covering != ranges_.end() && covering->second >= range.second) return;
    take_out(range);
    ranges_.emplace(range);
    set_owner(pages_at(range.first), range.second - range.first, Owner::queued_device);
  }

  void open(Range range) {
    const std::lock_guard lock(mutex_);
    set_owner(pages_at(range.first), range.second - range.first, Owner::everyone);
    take_out(range);
  }

  /// What freed memory leaves behind: its pages are gone.
  void forget(Range range) {
    const std::lock_guard lock(mutex_);
    take_out(range);
  }

  /// The closed range around an address; empty if its page is open.
  Range around(std::uintptr_t address) {
    const std::lock_guard lock(mutex_);
    const auto found = find(address);
    return found == ranges_.end() ? Range{address, address} : Range(*found);
  }

  std::vector<Range> all() {
    const std::lock_guard lock(mutex_);
    return {ranges_.begin(), ranges_.end()};
  }

 private:
  static void* pages_at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

  std::map<std::uintptr_t, std::uintptr_t>::iterator find(std::uintptr_t address) {
    auto after = ranges_.upper_bound(address);
    if (after == ranges_.begin()) return ranges_.end();
    --after;
    return address < after->second ? after : ranges_.end();
  }

  /// Removes a range, cutting those that overlap it.
  void take_out(Range range) {
    auto at = find(range.first);
    if (at == ranges_.end()) at = ranges_.lower_bound(range.first);
    while (at != ranges_.end() && at->first < range.second) {
      const Range old(*at);
      at = ranges_.erase(at);
      if (old.first < range.first) ranges_.emplace(old.first, range.first);
      if (old.second > range.second) ranges_.emplace(range.second, old.second);
    }
  }

  std::mutex mutex_;
  std::map<std::uintptr_t, std::uintptr_t> ranges_;
};

HostOrder host_order;

bool is_up_to_date(Range range) {
  return host_order.is_up_to_date(reinterpret_cast<const void*>(range.first),
                                  range.second - range.first);
}

Range page_of(std::uintptr_t address) {
  return {round_down_to_page(address), round_down_to_page(address) + page_bytes};
}

}  // namespace

void set_host_order(const HostOrder& order) { host_order = order; }

void close_to_host(const void* data, std::size_t bytes) {
  if (bytes == 0 || !is_tracked(data) || slot_of(data) != Layout::pinned_slot) return;
  if (host_watch() == HostWatch::off) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  ClosedPages::instance().close({round_down_to_page(begin), round_up_to_page(begin + bytes)});
}

void open_ordered_pages() {
  for (const Range& range : ClosedPages::instance().all())
    if (is_up_to_date(range)) ClosedPages::instance().open(range);
}

void open_after_fault(const void* address, bool writes) {
  ClosedPages& closed = ClosedPages::instance();
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const Range range = closed.around(at);
  if (range.first != range.second && is_up_to_date(range)) return closed.open(range);
  host_order.access(address, 1, writes, CallSite::here());
  closed.open(page_of(at));
}

void forget_pinned_pages(const void* pages, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(pages);
  ClosedPages::instance().forget({begin, begin + bytes});
}

}  // namespace simgpu
