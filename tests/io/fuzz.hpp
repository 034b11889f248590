#pragma once

#include <algorithm>
#include <chrono>
#include <string>

#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"
#include "support/cpu_time.hpp"

namespace lockstep::io {

/// Feeds a parser `inputs` files that `make` produces: each must be accepted or refused with a
/// typed error, within a second of processor time. Both must happen, or the test would be testing
/// nothing.
template <class Make, class Parse>
void expect_accepted_or_named(int inputs, Make make, Parse parse) {
  int accepted = 0;
  std::chrono::nanoseconds slowest{0};
  for (int i = 0; i < inputs; ++i) {
    const std::string file = make();
    const auto start = lockstep::testing::thread_cpu_time();
    try {
      parse(file);
      ++accepted;
    } catch (const CorruptData&) {
    } catch (const Unsupported&) {
    }
    slowest = std::max(slowest, lockstep::testing::thread_cpu_time() - start);
  }
  EXPECT_GT(accepted, inputs / 20);
  EXPECT_LT(accepted, inputs * 19 / 20);
  EXPECT_LT(slowest, std::chrono::seconds(1));
}

}  // namespace lockstep::io
