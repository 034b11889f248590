#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>

#include "comm/jobs/event.hpp"
#include "lockstep/comm/session.hpp"
#include "lockstep/tensor/factories.hpp"

/// @file
/// What the jobs of this folder are made of: numbers to exchange, and the rank at which things
/// happen.

namespace lockstep::testing {

using Event = std::function<void(Session&)>;

/// Does the event, and says when.
inline void happen(Session& session, const Event& event) {
  note_event();
  event(session);
}

inline int number_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}

/// The rank at which things happen.
inline int culprit(const Session& session) {
  return session.size() == 1 ? 0 : number_from("JOB_CULPRIT", 1);
}

/// Numbers on the rank's device.
class Values {
 public:
  Values(const Session& session, std::int64_t count)
      : tensor_(full({count}, 1.0, {.device = session.device()})) {}

  comm::Buffer buffer() const { return {tensor_.data_ptr(), tensor_.numel(), tensor_.dtype()}; }
  /// The first numbers alone.
  comm::Buffer first(std::int64_t count) const {
    return {tensor_.data_ptr(), count, tensor_.dtype()};
  }
  double last() const { return tensor_.slice(0, tensor_.numel() - 1, tensor_.numel()).item(); }

 private:
  Tensor tensor_;
};

}  // namespace lockstep::testing
