#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

/// @file
/// Growable segments: addresses are reserved once, memory comes to lie there page by page.

namespace lockstep {

/// A source of addresses, and of pages to put there. `reserve` and `map` say when there is no more
/// by null and false. All sizes are multiples of `page_bytes()`.
template <class T>
concept VirtualMemory = requires(T memory, void* at, std::size_t bytes) {
  { memory.page_bytes() } -> std::convertible_to<std::size_t>;
  { memory.reserve(bytes) } -> std::same_as<void*>;
  { memory.map(at, bytes) } -> std::same_as<bool>;
  { memory.unmap(at, bytes) }
  noexcept;
  { memory.release(at, bytes) }
  noexcept;
};

/// A GrowableUpstream over virtual memory. Each allocation reserves addresses for all that may come
/// behind it, which cost nothing.
template <VirtualMemory M>
class PagedUpstream {
 public:
  /// @param reach addresses that each allocation reserves, if there are so many.
  PagedUpstream(M memory, std::size_t reach) : memory_(std::move(memory)), reach_(reach) {}

  std::size_t page_bytes() const { return memory_.page_bytes(); }

  /// Whole pages, or null.
  void* allocate(std::size_t bytes) {
    bytes = round_up(bytes);
    std::size_t reserved = std::max(bytes, round_up(reach_));
    void* data = memory_.reserve(reserved);
    if (!data && reserved > bytes) data = memory_.reserve(reserved = bytes);
    if (!data) return nullptr;
    if (!memory_.map(data, bytes)) {
      memory_.release(data, reserved);
      return nullptr;
    }
    Range& range = ranges_[static_cast<std::byte*>(data)];
    range.pages.assign(reserved / page_bytes(), false);
    set(range, 0, bytes / page_bytes(), true);
    return data;
  }

  /// More memory at `end`, where a piece that was allocated ends. False where there is none, or
  /// where another piece lies.
  bool extend(void* end, std::size_t bytes) {
    const auto [begin, range] = range_before(static_cast<std::byte*>(end));
    const auto first =
        static_cast<std::size_t>(static_cast<std::byte*>(end) - begin) / page_bytes();
    const std::size_t count = round_up(bytes) / page_bytes();
    if (count > range->pages.size() - first) return false;
    const auto from = range->pages.begin() + static_cast<std::ptrdiff_t>(first);
    if (std::find(from, from + static_cast<std::ptrdiff_t>(count), true) !=
        from + static_cast<std::ptrdiff_t>(count))
      return false;
    if (!memory_.map(end, count * page_bytes())) return false;
    set(*range, first, count, true);
    return true;
  }

  /// Takes whole pages back, all of an allocation or some. Nothing may use them any more.
  void deallocate(void* data, std::size_t bytes) noexcept {
    auto* const at = static_cast<std::byte*>(data);
    const auto [begin, range] = range_before(at + 1);
    memory_.unmap(data, round_up(bytes));
    set(*range, static_cast<std::size_t>(at - begin) / page_bytes(), round_up(bytes) / page_bytes(),
        false);
    if (range->mapped > 0) return;
    memory_.release(begin, range->pages.size() * page_bytes());
    ranges_.erase(begin);
  }

 private:
  struct Range {
    std::vector<bool> pages = {};  // which are mapped
    std::size_t mapped = 0;
  };

  std::size_t round_up(std::size_t bytes) const {
    return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
  }
  /// The range that begins before an address.
  std::pair<std::byte*, Range*> range_before(std::byte* address) {
    const auto found = std::prev(ranges_.lower_bound(address));
    return {found->first, &found->second};
  }
  static void set(Range& range, std::size_t first, std::size_t count, bool mapped) noexcept {
    const auto from = range.pages.begin() + static_cast<std::ptrdiff_t>(first);
    std::fill(from, from + static_cast<std::ptrdiff_t>(count), mapped);
    mapped ? range.mapped += count : range.mapped -= count;
  }

  M memory_;
  std::size_t reach_;
  std::map<std::byte*, Range> ranges_;
};

/// Virtual memory of the host, in pages of 2 MiB, so that the system can back them by huge ones.
class HostVirtualMemory {
 public:
  static constexpr std::size_t page = std::size_t{2} << 20;
  static std::size_t page_bytes() noexcept { return page; }
  /// Addresses aligned to a page, or null.
  static void* reserve(std::size_t bytes) noexcept;
  /// Makes them usable, with zeros.
  static bool map(void* at, std::size_t bytes) noexcept;
  /// Gives the memory back, and keeps the addresses.
  static void unmap(void* at, std::size_t bytes) noexcept;
  /// Gives the addresses back.
  static void release(void* at, std::size_t bytes) noexcept;
};

}  // namespace lockstep
