#include "comm/batch.hpp"

#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {

// Waiting for it could only end in a timeout.
const Work& BatchWork::started() const {
  LOCKSTEP_CHECK(is_started(), InvalidArgument,
                 "an operation of a batch was waited for before the batch was started; its "
                 "operations start together, when `batch` returns");
  return *work_;
}

Work Batch::add(Operation operation) {
  operations_.push_back(std::move(operation));
  return work();
}

Work Batch::start(CommunicatorBackend& backend) {
  work_->start(operations_.empty() ? Work() : backend.submit(operations_));
  is_started_ = true;
  return work();
}

}  // namespace lockstep::comm
