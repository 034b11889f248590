#include "comm/run_progress.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace lockstep::comm {
namespace {

/// The same as in examples/lockstep_run/progress_page.cpp.
struct Page {
  char mark[8];
  std::atomic<std::int64_t> step, first, saved;  // -1: none
  std::atomic<std::int64_t> long_work;           // how much of it is under way
  std::atomic<std::int64_t> asked;               // how often the supervisor has
};
constexpr char mark[] = "lockstep";

std::atomic<std::int64_t> step_made = -1;

/// For the life of the process; null if there is none. The mark keeps it from writing to a file
/// that has taken the place of the page.
Page* page() noexcept {
  static Page* const mapped = []() -> Page* {
    const char* path = std::getenv("LOCKSTEP_RUN_PROGRESS");
    if (!path) return nullptr;
    const int file = ::open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return nullptr;
    char found[sizeof Page::mark] = {};
    void* memory = MAP_FAILED;
    if (::pread(file, found, sizeof found, 0) == sizeof found &&
        std::memcmp(found, mark, sizeof found) == 0)
      memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    return memory == MAP_FAILED ? nullptr : static_cast<Page*>(memory);
  }();
  return mapped;
}

}  // namespace

void note_progress(std::int64_t step) noexcept {
  note_step(step);
  tell_step(step);
}

void tell_step(std::int64_t step) noexcept {
  Page* const place = page();
  if (!place) return;
  if (place->first.load(std::memory_order_relaxed) < 0)
    place->first.store(step, std::memory_order_relaxed);
  place->step.store(step, std::memory_order_relaxed);
}

void note_saved(std::int64_t step) noexcept {
  if (Page* const place = page()) place->saved.store(step, std::memory_order_relaxed);
}

LongWork::LongWork() noexcept {
  if (Page* const place = page()) place->long_work.fetch_add(1, std::memory_order_relaxed);
}

LongWork::~LongWork() {
  if (Page* const place = page()) place->long_work.fetch_sub(1, std::memory_order_relaxed);
}

void note_step(std::int64_t step) noexcept { step_made.store(step, std::memory_order_relaxed); }

std::int64_t last_step() noexcept { return step_made.load(std::memory_order_relaxed); }

void note_end_of_steps() noexcept {
  note_step(-1);
  if (Page* const place = page()) place->long_work.fetch_add(1, std::memory_order_relaxed);
}

bool is_report_asked_for() noexcept {
  static std::int64_t known = 0;
  const Page* const place = page();
  if (!place) return false;
  const std::int64_t asked = place->asked.load(std::memory_order_relaxed);
  return std::exchange(known, asked) != asked;
}

}  // namespace lockstep::comm
