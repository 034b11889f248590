#include "train/finite_losses.hpp"

#include <cmath>
#include <utility>

#include "lockstep/observe/log.hpp"

namespace lockstep::train {

void FiniteLosses::add(std::int64_t step, double loss, int rank, bool warns) {
  constexpr std::int64_t enough = 10;
  last_ = loss;
  if (std::isfinite(loss)) {
    count_ = 0;
    return;
  }
  if (count_++ == 0) first_step_ = step;
  if (warns && count_ == enough) warn(rank);
}

void FiniteLosses::end(int rank, bool warns) {
  if (warns && count_ > 0) warn(rank);
}

void FiniteLosses::warn(int rank) {
  if (std::exchange(has_warned_, true)) return;
  LOCKSTEP_LOG(
      warning, "the loss has not been finite since step ", first_step_, ": it is ", last_,
      " on rank ", rank,
      "; a smaller lr, a max_norm or a GradScaler may help, and terminate_on_nan ends such "
      "a run before it is saved");
}

}  // namespace lockstep::train
