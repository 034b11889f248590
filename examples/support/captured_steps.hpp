#pragma once

#include <initializer_list>
#include <vector>

#include <lockstep/comm/session.hpp>
#include <lockstep/train/step_graph.hpp>

#include "support/command_line.hpp"

/// @file
/// The option --capture.

namespace examples {

/// Adds --capture: steps are captured, and replayed as one launch.
void add_capture_option(CLI::App& app, bool& capture);

/// Makes the steps of a training, captured or not.
class Steps {
 public:
  Steps(lockstep::StepGraph::Step step, bool capture, const lockstep::Session& session);

  std::vector<lockstep::Tensor> operator()(std::initializer_list<lockstep::Tensor> inputs);
  /// Says on the first rank why steps ran eagerly that were to be captured.
  void tell() const;

 private:
  lockstep::StepGraph::Step step_;
  lockstep::StepGraph graph_;
  bool capture_, is_main_;
};

}  // namespace examples
