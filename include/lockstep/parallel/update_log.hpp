#pragma once

#include <cstddef>
#include <string>
#include <string_view>

/// @file
/// What optimizers did to the parameters of a model, in few words.

namespace lockstep::parallel {

/// Notes the updates of parameters, by any number of optimizers, in the words that are compared
/// between the ranks: "parameters 0-7 after update 3 with lr 0.1, 8-9 after update 3 with lr 0.2".
class UpdateLog {
 public:
  /// A parameter is updated. @param how what its optimizer says of the update.
  void note(std::size_t parameter, std::string_view how);
  /// The updates that were noted last, those since a call before this one; empty if there never
  /// were any.
  std::string take();

 private:
  std::string text() const;

  bool taken_ = false;
  std::string earlier_;  // updates before the last
  std::string how_;      // the last update
  std::string ranges_;   // its parameters, but for the last range of them
  std::size_t first_ = 0, last_ = 0;
};

}  // namespace lockstep::parallel
