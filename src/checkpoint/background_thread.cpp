#include "checkpoint/background_thread.hpp"

#include <sys/resource.h>
#include <unistd.h>

namespace lockstep::checkpoint {

// Linux has a nice value for each thread. One of 15 gets 3 % of a processor beside one of 0: with
// 19 it would be 1 %, and a save would take long where all processors are in use.
void yield_to_training() noexcept {
  constexpr int nice_value = 15;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), nice_value);
}

}  // namespace lockstep::checkpoint
