#include "core/failure_place.hpp"

#include <array>
#include <cstddef>
#include <exception>
#include <mutex>
#include <utility>

namespace lockstep {
namespace {

/// An exception is held, so that no later one can lie at its address.
struct Noted {
  std::exception_ptr error;
  std::string place;
};

struct Notes {
  std::mutex mutex;
  std::array<Noted, 4> last;
  std::size_t next = 0;
};

/// For the life of the process: an exception's destructor may need what ends before.
Notes& notes() {
  static Notes& notes = *new Notes;
  return notes;
}

}  // namespace

void note_failure_place(std::string place) noexcept {
  Noted noted{std::current_exception(), std::move(place)};  // destroys the one before unlocked
  const std::lock_guard lock(notes().mutex);
  std::swap(notes().last[notes().next++ % notes().last.size()], noted);
}

std::string failure_place() {
  const std::exception_ptr present = std::current_exception();
  const std::lock_guard lock(notes().mutex);
  const auto& last = notes().last;
  for (std::size_t i = 1; i <= last.size(); ++i)  // the newest first: it may be thrown again
    if (const Noted& each = last[(notes().next - i) % last.size()];
        present && each.error == present)
      return each.place;
  return {};
}

}  // namespace lockstep
