#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <utility>

/// @file
/// A pool's mark, above which the user hears of it.

namespace lockstep::detail {

/// Calls the user each time that a pool has grown over a mark. Guarded by the pool's lock.
class HighWater {
 public:
  /// @param reserved what the pool holds now: above the mark already, it is not news.
  void set(std::size_t mark, std::function<void(std::size_t)> reached, std::size_t reserved) {
    mark_ = mark;
    reached_ = std::move(reached);
    is_above_ = reserved > mark;
  }

  /// The pool has returned memory.
  void fall_to(std::size_t reserved) noexcept { is_above_ = reserved > mark_; }

  /// Calls the user, without the lock, if the pool has grown over the mark.
  void tell(std::size_t reserved, auto& lock) {
    if (is_above_ || reserved <= mark_) [[likely]]
      return;
    is_above_ = true;
    const auto reached = reached_;
    lock.unlock();
    if (reached) reached(reserved);
  }

 private:
  std::size_t mark_ = ~std::size_t{0};
  std::function<void(std::size_t)> reached_;
  bool is_above_ = false;
};

}  // namespace lockstep::detail
