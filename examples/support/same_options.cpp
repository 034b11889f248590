#include "support/same_options.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include <lockstep/parallel/agreement.hpp>

namespace examples {
namespace {

namespace fs = std::filesystem;

/// One spelling for a number; other words, and whole numbers of any length, stay as they are.
std::string normal(const std::string& text) {
  const bool is_whole = text.find_first_not_of("0123456789") == std::string::npos;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (is_whole || *end != '\0') return text;
  char spelled[32];
  return {spelled, std::to_chars(spelled, spelled + sizeof spelled, value).ptr};
}

/// What an option was given, or what its variable holds: CLI11 spells a list "[a,b]".
std::vector<std::string> words_of(CLI::Option& option) {
  if (option.count() > 0) return option.results();
  std::string text = option.capture_default_str()->get_default_str();
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  return CLI::detail::split(text, ',');
}

std::string value_of(CLI::Option& option) {
  const bool is_flag = option.get_expected_max() == 0;
  if (is_flag) return option.count() > 0 ? "on" : "off";
  std::string value;
  for (const std::string& word : words_of(option))
    value += (value.empty() ? "" : ",") + normal(word);
  return value.empty() ? "not given" : value;
}

/// Bytes of a file, or of the files right in a folder.
std::uintmax_t bytes_in(const fs::path& path) {
  if (!fs::is_directory(path)) return fs::file_size(path);
  std::uintmax_t sum = 0;
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.is_regular_file()) sum += entry.file_size();
  return sum;
}

std::string contents_of(const CLI::Option& option) {
  if (option.count() == 0) return "not given";
  std::string sizes;
  for (const std::string& path : option.results())
    sizes += (sizes.empty() ? "" : " and ") + std::to_string(bytes_in(path)) + " bytes";
  return sizes;
}

}  // namespace

void check_same_options(lockstep::Communicator& group, CLI::App& app, const OptionKinds& kinds) {
  const auto among = [](const std::vector<std::string_view>& names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  std::vector<std::pair<std::string, std::string>> settings;
  for (CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (option == app.get_help_ptr() || among(kinds.own, name)) continue;
    settings.emplace_back(name,
                          among(kinds.inputs, name) ? contents_of(*option) : value_of(*option));
  }
  lockstep::parallel::check_same_settings(group, settings);
}

}  // namespace examples
