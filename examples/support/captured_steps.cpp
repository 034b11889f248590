#include "support/captured_steps.hpp"

#include <iostream>
#include <span>
#include <utility>

namespace examples {

void add_capture_option(CLI::App& app, bool& capture) {
  app.add_flag("--capture", capture,
               "Capture the step once, and replay it: on a GPU as one launch");
}

Steps::Steps(lockstep::StepGraph::Step step, bool capture, const lockstep::Session& session)
    : step_(std::move(step)),
      graph_(step_, {.group = session.world()}),
      capture_(capture),
      is_main_(session.is_main()) {}

std::vector<lockstep::Tensor> Steps::operator()(std::initializer_list<lockstep::Tensor> inputs) {
  return capture_ ? graph_(inputs) : step_(std::span(inputs.begin(), inputs.size()));
}

void Steps::tell() const {
  if (capture_ && is_main_ && !graph_.fallback_reason().empty())
    std::cout << "steps ran eagerly: " << graph_.fallback_reason() << std::endl;
}

}  // namespace examples
