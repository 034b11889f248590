#pragma once

#include <cstdint>
#include <functional>
#include <vector>

/// @file
/// Failures met where there was no caller to throw to: in a collective after its last wait, or on a
/// thread that watches. Any thread may call these functions.

namespace lockstep {

/// Keeps a failure. From now on whoever waits for results of a GPU on the host gets it, because
/// they may be garbage, and a Session does not end well.
/// @param raise throws the failure, or does nothing once a caller knows it; called on any thread.
/// @return a number by which it can be forgotten.
std::uint64_t keep_background_failure(std::function<void()> raise);

/// Forgets a failure once it was thrown to a caller and what it concerns is gone.
void forget_background_failure(std::uint64_t number) noexcept;

/// Notes which failures the calling thread keeps until the end of scope, of something whose failure
/// somebody is told otherwise.
class BackgroundFailureScope {
 public:
  BackgroundFailureScope();
  BackgroundFailureScope(const BackgroundFailureScope&) = delete;
  BackgroundFailureScope& operator=(const BackgroundFailureScope&) = delete;
  ~BackgroundFailureScope();

  const std::vector<std::uint64_t>& kept() const noexcept { return kept_; }

 private:
  friend std::uint64_t keep_background_failure(std::function<void()> raise);

  BackgroundFailureScope* outer_;
  std::vector<std::uint64_t> kept_;
};

/// Throws the first failure that is kept. Costs one load where there is none.
void raise_background_failure();

}  // namespace lockstep
