#include "lockstep_run/launch_plan.hpp"

#include <algorithm>
#include <cstdlib>
#include <ranges>
#include <span>
#include <string_view>

#include <lockstep/core/error.hpp>
#include <unistd.h>

namespace run {
namespace {

std::string_view name_of(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

bool is_of_a_launcher(std::string_view name) {
  constexpr std::string_view prefixes[] = {"OMPI_", "PMIX_", "PMI_", "MV2_COMM_", "TORCHELASTIC_"};
  return std::ranges::any_of(prefixes, [&](auto prefix) { return name.starts_with(prefix); });
}

bool is_set(const std::vector<std::string>& variables, std::string_view name) {
  return std::ranges::any_of(variables,
                             [&](const std::string& each) { return name_of(each) == name; });
}

// What a lockstep_run further out tells its own ranks.
bool is_of_another_run(std::string_view name) {
  return name.starts_with("LOCKSTEP_RUN_") || name == "LOCKSTEP_LISTENER";
}

// OMPI_MCA_... are options, which mean the same for whatever a rank starts.
bool is_kept(std::string_view name) {
  if (is_of_another_run(name)) return false;
  return !is_of_a_launcher(name) || name.starts_with("OMPI_MCA_") ||
         name.starts_with("OMPI_ALLOW_");
}

}  // namespace

std::string LaunchPlan::to_text() const {
  std::string text = folder + '\0' + std::to_string(command.size()) + '\0';
  for (const std::string& word : command) text += word + '\0';
  for (const std::string& variable : environment) text += variable + '\0';
  return text;
}

LaunchPlan LaunchPlan::parse(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t at = 0, end; (end = text.find('\0', at)) != std::string::npos; at = end + 1)
    words.push_back(text.substr(at, end - at));
  const auto count = words.size() < 2 ? 0 : std::strtoull(words[1].c_str(), nullptr, 10);
  LOCKSTEP_CHECK(count > 0 && count <= words.size() - 2, lockstep::CorruptData,
                 "a plan without a command");
  const auto behind = words.begin() + 2 + static_cast<std::ptrdiff_t>(count);
  return {words[0], {words.begin() + 2, behind}, {behind, words.end()}};
}

std::vector<std::string> environment_with(const std::vector<std::string>& variables) {
  std::vector<std::string> all = variables;
  for (char** entry = environ; *entry; ++entry)
    if (!is_set(variables, name_of(*entry)) && is_kept(name_of(*entry))) all.emplace_back(*entry);
  return all;
}

void pass_variables(std::vector<std::string>& variables, const std::vector<std::string>& asked) {
  for (const std::string& each : std::views::reverse(asked))  // of two the last counts
    if (each.find('=') != each.npos && !is_of_another_run(name_of(each)) &&
        !is_set(variables, name_of(each)))
      variables.push_back(each);
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view name = name_of(*entry);
    if (is_of_another_run(name) || is_set(variables, name)) continue;
    if (name.starts_with("LOCKSTEP_") || name.starts_with("OMP_") ||
        std::ranges::find(asked, name) != asked.end())
      variables.emplace_back(*entry);
  }
}

}  // namespace run
