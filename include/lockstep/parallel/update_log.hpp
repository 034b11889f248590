#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/parallel/index_ranges.hpp"

/// @file
/// What optimizers did to the parameters of a model, in few words.

namespace lockstep::parallel {

/// Notes the updates of parameters, by any number of optimizers, in the words that are compared
/// between the ranks: "8 parameters after update 3 with lr 0.1, 2 parameters after update 3 with lr
/// 0.2 (0-7, 8-9)". Which they are comes last, for messages show only the beginning.
class UpdateLog {
 public:
  /// A parameter is updated. @param how what its optimizer says of the update.
  void note(std::size_t parameter, std::string_view how);
  /// The updates that were noted last, those since a call before this one; empty if there never
  /// were any.
  std::string take();

 private:
  std::string last_update() const;

  struct Updates {
    std::string how, parameters;
  };
  bool taken_ = false;
  Updates earlier_;         // those before the last
  std::string how_;         // the last one
  IndexRanges parameters_;  // its
};

}  // namespace lockstep::parallel
