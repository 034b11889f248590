#pragma once

#include <chrono>
#include <functional>
#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

/// @file
/// Running steps on request, so that another program can interleave ours with a peer's.

namespace lockstep::benchmark {

/// Prints "ready", then for every line on standard input the answer to it, until the input ends.
inline void serve_requests(const std::function<nlohmann::json(const std::string&)>& answer) {
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);)
    std::cout << answer(line).dump() << std::endl;
}

/// Runs one step for every line on standard input and prints {"seconds": ..., "loss": ...}.
/// @param step does one whole training step and returns its loss.
inline void serve(const std::function<double()>& step) {
  using Clock = std::chrono::steady_clock;
  serve_requests([&](const std::string&) {
    const auto start = Clock::now();
    const double loss = step();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return nlohmann::json{{"seconds", seconds}, {"loss", loss}};
  });
}

}  // namespace lockstep::benchmark
