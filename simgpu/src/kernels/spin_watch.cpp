#include "kernels/spin_watch.hpp"

#include <algorithm>
#include <cstring>

namespace simgpu {
namespace {

std::uint64_t value_of(const Poll& poll) {
  std::array<std::uint64_t, 2> words{};
  std::memcpy(words.data(), reinterpret_cast<const void*>(poll.address),
              std::min<std::size_t>(poll.bytes, sizeof words));
  return words[0] ^ words[1] * 0x9E3779B97F4A7C15u;
}

}  // namespace

void SpinWatch::begin_launch() {
  in_vain_ = 0;
  last_ = {};
  set_turns_in_vain(0);
}

void SpinWatch::set_turns_in_vain(std::uint64_t turns) {
  constexpr std::uint64_t longest = 10;
  turn_ = 64u << std::min(turns, longest);
}

/// A loop that waits reads and writes what it looks at, once or twice, and nothing else.
void SpinWatch::note_work(unsigned thread, std::uint64_t traffic) {
  if (thread == last_thread_ && traffic - last_traffic_ > 2 * last_.bytes) {
    in_vain_ = 0;
    ++changes_;
  }
}

bool SpinWatch::poll(unsigned thread, std::uint32_t run, const Poll& poll, std::uint64_t traffic) {
  note_work(thread, traffic);
  last_ = poll;
  last_thread_ = thread;
  last_traffic_ = traffic;
  Polls& polls = of_[thread];
  if (polls.run != run) polls = {.run = run};
  const std::uint64_t value = value_of(poll);
  const auto known = std::find_if(polls.seen.begin(), polls.seen.end(),
                                  [&](const Seen& each) { return each.address == poll.address; });
  if (known == polls.seen.end()) {
    polls.seen[polls.next++ % polls.seen.size()] = {poll.address, value};
    polls.count = 0;
    return false;
  }
  if (known->value != value) {
    known->value = value;
    polls.count = 0;
    in_vain_ = 0;
    ++changes_;
    return false;
  }
  ++in_vain_;
  return ++polls.count % turn_ == 0;
}

}  // namespace simgpu
