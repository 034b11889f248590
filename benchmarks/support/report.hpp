#pragma once

#include <cstring>
#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

/// @file
/// What every benchmark prints: one JSON object a line with --json, else the same fields as text.

namespace lockstep::benchmark {

/// Prints cases in the form that the command line asked for.
class Report {
 public:
  /// @param benchmark name of the program, the first field of every line.
  Report(std::string benchmark, int argc, char** argv) : benchmark_(std::move(benchmark)) {
    for (int i = 1; i < argc; ++i) json_ |= std::strcmp(argv[i], "--json") == 0;
  }
  /// Prints one case.
  void add(const nlohmann::ordered_json& fields) const {
    if (!json_) return print_text(fields);
    nlohmann::ordered_json line{{"benchmark", benchmark_}};
    line.update(fields);
    std::cout << line.dump() << std::endl;
  }

 private:
  static void print_text(const nlohmann::ordered_json& fields) {
    for (const auto& [key, value] : fields.items()) std::cout << key << ' ' << value << "  ";
    std::cout << std::endl;
  }
  std::string benchmark_;
  bool json_ = false;
};

}  // namespace lockstep::benchmark
