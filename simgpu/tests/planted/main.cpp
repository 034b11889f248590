#include <charconv>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planted/child.hpp"
#include "planted/suite.hpp"

namespace planted {
namespace {

constexpr const char* usage =
    "planted_faults [--only NAME] [--seeds N]   the table; N seeds without faults after it\n"
    "planted_faults NAME [--off]                one program here, with its fault or without\n"
    "planted_faults --list                      the names\n";

struct Arguments {
  std::string_view name, only;
  std::optional<std::uint64_t> seeds;
  bool off = false;
  bool list = false;
};

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<Arguments> parse(const std::vector<std::string_view>& words) {
  Arguments arguments;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool has_value = i + 1 < words.size();
    if (words[i] == "--off") {
      arguments.off = true;
    } else if (words[i] == "--list") {
      arguments.list = true;
    } else if (words[i] == "--only" && has_value && find_fault(words[i + 1])) {
      arguments.only = words[++i];
    } else if (words[i] == "--seeds" && has_value && number(words[i + 1])) {
      arguments.seeds = number(words[++i]);
    } else if (find_fault(words[i])) {
      arguments.name = words[i];
    } else {
      return std::nullopt;
    }
  }
  return arguments;
}

int run(const Arguments& arguments) {
  if (arguments.list) {
    for (const Fault& fault : faults())
      std::printf("%-34s%s\n", std::string(fault.name).c_str(), std::string(fault.what).c_str());
    return 0;
  }
  if (!arguments.name.empty()) return run_here(*find_fault(arguments.name), !arguments.off);
  int wrong = run_table(arguments.only);
  std::printf("%d missed\n", wrong);
  if (arguments.seeds) wrong += run_seeds(*arguments.seeds, arguments.only);
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace planted

int main(int argc, char** argv) {
  const auto arguments = planted::parse({argv + 1, argv + argc});
  if (arguments) return planted::run(*arguments);
  std::fputs(planted::usage, stderr);
  return 2;
}
