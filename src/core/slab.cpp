#include "lockstep/core/slab.hpp"

#include <array>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "lockstep/core/macros.hpp"

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
/// Free pieces of one size.
struct FreeList {
  Free* head = nullptr;
  std::size_t count = 0;
};
using FreeLists = std::array<FreeList, largest / step + 1>;

/// What threads that ended, or free more than they allocate, left behind; and the owner of all
/// chunks.
class Depot {
 public:
  /// A whole list of a class: left-overs, or a fresh chunk cut to pieces.
  FreeList take(std::size_t index) {
    const std::lock_guard lock(mutex_);
    auto& left = lists_[index];
    if (!left.empty()) {
      const FreeList list = left.back();
      left.pop_back();
      return list;
    }
    chunks_.push_back(std::make_unique<std::byte[]>(chunk));
    std::byte* memory = chunks_.back().get();
    const std::size_t size = index * step;
    FreeList list;
    for (std::size_t at = 0; at + size <= chunk; at += size, ++list.count)
      list.head = new (memory + at) Free{list.head};
    return list;
  }

  void give(std::size_t index, FreeList list) {
    if (!list.head) return;
    const std::lock_guard lock(mutex_);
    lists_[index].push_back(list);
  }

 private:
  std::mutex mutex_;
  std::array<std::vector<FreeList>, largest / step + 1> lists_;
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
      depot().give(index, std::exchange(lists[index], {}));
  }
};

/// True for more than two chunks.
bool is_too_long(const FreeList& list, std::size_t index) {
  return list.count * index > 2 * chunk / step;
}

void give_back_at_thread_end() { thread_local AtThreadEnd at_end; }

LOCKSTEP_COLD void refill(std::size_t index) {
  give_back_at_thread_end();
  lists[index] = depot().take(index);
}

/// The first free of a thread, or one too many: a thread that frees what others allocate passes it
/// on.
LOCKSTEP_COLD void trim(std::size_t index) noexcept {
  give_back_at_thread_end();
  FreeList& list = lists[index];
  if (is_too_long(list, index)) depot().give(index, std::exchange(list, {}));
}

}  // namespace

void* slab_allocate(std::size_t bytes) {
  if (bytes > largest) return ::operator new(bytes);
  const std::size_t index = (bytes + step - 1) / step;
  FreeList& list = lists[index];
  if (!list.head) [[unlikely]]
    refill(index);
  --list.count;
  return std::exchange(list.head, list.head->next);
}

void slab_free(void* memory, std::size_t bytes) noexcept {
  if (bytes > largest) return ::operator delete(memory);
  const std::size_t index = (bytes + step - 1) / step;
  FreeList& list = lists[index];
  list.head = new (memory) Free{list.head};
  if (++list.count == 1 || is_too_long(list, index)) [[unlikely]]
    trim(index);
}

#endif

}  // namespace lockstep
