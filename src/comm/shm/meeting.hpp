#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/shm/window.hpp"

namespace lockstep::comm::shm {

/// How the ranks of a new group meet, some of those that are in an exchange of bytes.
struct Meeting {
  std::vector<int>
      members;    ///< of the exchange, in the group's order; empty: this rank has no group
  int place = 0;  ///< of this rank among them
  /// Gives every rank of the exchange the bytes of all.
  std::function<std::vector<std::string>(std::string_view)> exchange;
};

/// Makes a window, which all members have entered. Every rank of the exchange calls it.
/// @return null for a rank without a group.
/// @throws Unsupported on all members alike, where one of them cannot have the memory
std::unique_ptr<Window> enter_window(const Meeting& meeting);

}  // namespace lockstep::comm::shm
