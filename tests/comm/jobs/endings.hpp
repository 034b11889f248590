#pragma once

#include <functional>
#include <map>
#include <string>

#include "lockstep/comm/session.hpp"

namespace lockstep::testing {

/// How a rank ends its program at some point: JOB_ENDING is "throw", "return", "return3" (from
/// where others would with code 0), "exit" (std::exit, with code 0), "exit3", or the signal that
/// ends it, "kill", "segv" or "abort"; JOB_CULPRIT is the rank that does so, -1 all of them.
class Ending {
 public:
  explicit Ending(int rank);
  /// Ends the program, if this rank is to. @return true if the caller is to return from `main`.
  bool operator()();
  /// True on a rank that is to return from where it stands.
  bool returns() const { return is_mine_ && way_ == "return"; }
  /// What its program returns.
  int code() const { return is_mine_ && way_ == "return3" ? 3 : 0; }

 private:
  std::string way_;
  bool is_mine_;
};

/// Jobs that train, whose ranks end in the middle: by the stage at which that happens.
std::map<std::string, std::function<int(Session&, Ending&)>> ending_stages();

}  // namespace lockstep::testing
