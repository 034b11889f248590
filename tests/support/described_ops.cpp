#include "support/described_ops.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>

#include "lockstep/core/error.hpp"
#include "support/golden.hpp"

namespace lockstep::testing {

std::vector<std::string> described_ops() {
  const std::regex description(R"(LOCKSTEP_OP\((\w+), .*\))");
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() / "src/autograd/ops")) {
    if (entry.path().extension() != ".cpp") continue;
    std::ifstream source(entry.path());
    std::smatch found;
    for (std::string line; std::getline(source, line);)
      if (std::regex_match(line, found, description)) names.push_back(found[1]);
  }
  LOCKSTEP_CHECK(!names.empty(), CorruptData, "no op is described in ", source_dir().string(),
                 "/src/autograd/ops");
  std::ranges::sort(names);
  return names;
}

}  // namespace lockstep::testing
