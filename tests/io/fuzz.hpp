#pragma once

#include <algorithm>
#include <chrono>
#include <string>

#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"

namespace lockstep::io {

/// Feeds a parser `inputs` files that `make` produces: each must be accepted or refused with a
/// typed error, within a second. Both must happen, or the test would be testing nothing.
template <class Make, class Parse>
void expect_accepted_or_named(int inputs, Make make, Parse parse) {
  int accepted = 0;
  auto slowest = std::chrono::steady_clock::duration::zero();
  for (int i = 0; i < inputs; ++i) {
    const std::string file = make();
    const auto start = std::chrono::steady_clock::now();
    try {
      parse(file);
      ++accepted;
    } catch (const CorruptData&) {
    } catch (const Unsupported&) {
    }
    slowest = std::max(slowest, std::chrono::steady_clock::now() - start);
  }
  EXPECT_GT(accepted, inputs / 20);
  EXPECT_LT(accepted, inputs * 19 / 20);
  EXPECT_LT(slowest, std::chrono::seconds(1));
}

}  // namespace lockstep::io
