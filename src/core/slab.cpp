#include "lockstep/core/slab.hpp"

#include <array>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace lockstep {

// Memory checkers must see every object by itself.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

void* slab_allocate(std::size_t bytes) { return ::operator new(bytes); }
void slab_free(void* memory, std::size_t) noexcept { ::operator delete(memory); }

#else
namespace {

constexpr std::size_t step = 64;        // sizes are rounded up to this
constexpr std::size_t largest = 1024;   // above, the global heap serves
constexpr std::size_t chunk = 1 << 16;  // what a free list is refilled with

struct Free {
  Free* next;
};
using FreeLists = std::array<Free*, largest / step + 1>;

/// What threads that ended left behind, and the owner of all chunks.
class Depot {
 public:
  /// Takes a whole list of a class: left-overs, or a fresh chunk cut to pieces.
  Free* take(std::size_t index) {
    const std::lock_guard lock(mutex_);
    if (Free* list = std::exchange(lists_[index], nullptr)) return list;
    chunks_.push_back(std::make_unique<std::byte[]>(chunk));
    std::byte* memory = chunks_.back().get();
    const std::size_t size = index * step;
    Free* list = nullptr;
    for (std::size_t at = 0; at + size <= chunk; at += size) list = new (memory + at) Free{list};
    return list;
  }

  void give(std::size_t index, Free* list) {
    if (!list) return;
    const std::lock_guard lock(mutex_);
    Free* last = list;
    while (last->next) last = last->next;
    last->next = std::exchange(lists_[index], list);
  }

 private:
  std::mutex mutex_;
  FreeLists lists_{};
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
};

// Never destroyed: objects in static storage may be freed after any destructor.
Depot& depot() {
  static Depot& instance = *new Depot();
  return instance;
}

thread_local FreeLists lists{};

/// Hands the thread's lists to the depot when the thread ends.
struct AtThreadEnd {
  ~AtThreadEnd() {
    for (std::size_t index = 0; index < lists.size(); ++index)
      depot().give(index, std::exchange(lists[index], nullptr));
  }
};

Free* refill(std::size_t index) {
  thread_local AtThreadEnd at_end;
  return depot().take(index);
}

}  // namespace

void* slab_allocate(std::size_t bytes) {
  if (bytes > largest) return ::operator new(bytes);
  const std::size_t index = (bytes + step - 1) / step;
  Free*& list = lists[index];
  if (!list) [[unlikely]]
    list = refill(index);
  return std::exchange(list, list->next);
}

void slab_free(void* memory, std::size_t bytes) noexcept {
  if (bytes > largest) return ::operator delete(memory);
  Free*& list = lists[(bytes + step - 1) / step];
  list = new (memory) Free{list};
}

#endif

}  // namespace lockstep
