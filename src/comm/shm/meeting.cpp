#include "comm/shm/meeting.hpp"

#include <algorithm>

#include "lockstep/core/error.hpp"
#include "lockstep/core/function_ref.hpp"

namespace lockstep::comm::shm {
namespace {

// What one rank tells the others: bytes that lead on, or why there are none.
constexpr char fine = '+', failed = '-';

std::string outcome_of(FunctionRef<std::string()> act) {
  try {
    return fine + act();
  } catch (const std::exception& error) {
    return failed + std::string(error.what());
  }
}

void require_fine(const std::string& outcome, int place) {
  LOCKSTEP_CHECK(outcome.starts_with(fine), Unsupported, "rank ", place, ": ",
                 outcome.substr(std::min<std::size_t>(1, outcome.size())));
}

}  // namespace

std::unique_ptr<Window> enter_window(const Meeting& meeting) {
  const int size = static_cast<int>(meeting.members.size());
  const auto of_member = [&](const std::vector<std::string>& all, int place) {
    return all[static_cast<std::size_t>(meeting.members[static_cast<std::size_t>(place)])];
  };
  std::unique_ptr<Window> window;
  const auto make = [&] {
    window = std::make_unique<Window>(size);
    return window->address();
  };
  const bool makes = size > 0 && meeting.place == 0;
  const auto made = meeting.exchange(makes ? outcome_of(make) : std::string{fine});
  const auto enter = [&]() -> std::string {
    require_fine(of_member(made, 0), 0);
    if (!window) window = std::make_unique<Window>(size, of_member(made, 0).substr(1));
    window->enter(meeting.place);
    return "";
  };
  const auto entered = meeting.exchange(size > 0 ? outcome_of(enter) : std::string{fine});
  if (size == 0) return nullptr;
  require_fine(of_member(made, 0), 0);
  for (int place = 0; place < size; ++place) require_fine(of_member(entered, place), place);
  return window;
}

}  // namespace lockstep::comm::shm
