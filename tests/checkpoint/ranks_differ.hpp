#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "lockstep/lockstep.hpp"
#include "support/temporary_folder.hpp"

/// @file
/// Ranks that do otherwise than the others.

namespace lockstep {

/// A weight of any shape.
struct OneWeight : nn::Module {
  explicit OneWeight(const Shape& shape) : weight(this, "weight", ones(shape)) {}
  nn::Parameter weight;
  Tensor forward(const Tensor& x) { return (x * Tensor(weight)).sum(); }
};

/// What is told of that.
inline std::string other_states(const std::string& which) {
  return "ranks do not save the same states: " + which +
         "; add the same ones on all ranks before a save";
}

/// What a call throws.
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
    return "nothing";
  } catch (const std::exception& error) {
    return error.what();
  }
}

class RanksDiffer : public ::testing::Test {
 protected:
  RanksDiffer() {
    set_log_sink([](std::string_view) {});
  }
  ~RanksDiffer() override { set_log_sink(nullptr); }
  testing::TemporaryFolder folder;
};

}  // namespace lockstep
