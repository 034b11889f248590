#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "checkpoint/thread_job.hpp"
#include "lockstep/checkpoint/manager.hpp"
#include "lockstep/observe/log.hpp"
#include "support/temporary_folder.hpp"

/// @file
/// The smallest run that saves something.

namespace lockstep::checkpoint {

/// A rank alone that saves a number, in silence.
inline void with_manager(const testing::TemporaryFolder& folder,
                         const std::function<void(Manager&, std::int64_t&)>& body) {
  set_log_sink([](std::string_view) {});
  testing::run_job(1, [&](const CommunicatorPtr& group) {
    std::int64_t value = 4;
    Manager manager(folder / "run", group, {.asynchronous = false, .read_back = false});
    manager.add("value", value);
    body(manager, value);
  });
  set_log_sink(nullptr);
}

}  // namespace lockstep::checkpoint
