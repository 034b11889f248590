#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "lockstep/comm/thread_world.hpp"
#include "parallel/replicas.hpp"

/// @file
/// What one rank does alone is refused on every rank; nothing is averaged that does not belong
/// together.

namespace lockstep::parallel::testing {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using namespace std::chrono_literals;

/// Runs a body on two ranks, which must fail on each of them. Returns their messages.
inline std::vector<std::string> messages_of_ranks(const std::function<void(Communicator&)>& body) {
  std::vector<std::string> messages(2);
  try {
    comm::run_ranks(2,
                    [&](Communicator& group) {
                      std::string& message = messages[static_cast<std::size_t>(group.rank())];
                      try {
                        body(group);
                      } catch (const std::exception& error) {
                        message = error.what();
                        throw;
                      }
                    },
                    {.timeout = 10s});
    ADD_FAILURE() << "no rank noticed anything";
  } catch (const std::exception&) {
  }
  return messages;
}

}  // namespace lockstep::parallel::testing
