#pragma once

#include <chrono>
#include <functional>
#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

/// @file
/// Running steps on request, so that another program can interleave ours with a peer's.

namespace lockstep::benchmark {

/// Prints "ready", then for every line on standard input runs one step and prints
/// {"seconds": ..., "loss": ...}, until the input ends.
/// @param step does one whole training step and returns its loss.
inline void serve(const std::function<double()>& step) {
  using Clock = std::chrono::steady_clock;
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    const auto start = Clock::now();
    const double loss = step();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    std::cout << nlohmann::json{{"seconds", seconds}, {"loss", loss}}.dump() << std::endl;
  }
}

}  // namespace lockstep::benchmark
