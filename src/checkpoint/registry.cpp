#include "checkpoint/registry.hpp"

#include <algorithm>
#include <exception>
#include <set>
#include <string_view>
#include <utility>

#include "io/in_quotes.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::checkpoint {
namespace {

std::string in_lines(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text.append(name).append("\n");
  return text;
}

/// What fails here fails again where the state is saved; until then the others hear of it.
std::string what_is_told(const TensorState& state) {
  std::string text;
  try {
    text = state.told();
  } catch (const std::exception& error) {
    text = detail::concat(" (", error.what(), ")");
  }
  std::ranges::replace(text, '\n', ' ');  // names are told line by line
  return text;
}

}  // namespace

void Registry::check_name(const std::string& name) const {
  const bool is_plain = !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
  LOCKSTEP_CHECK(is_plain, InvalidArgument, io::in_quotes(name),
                 " names files of a checkpoint; use letters a to z, digits and _");
  LOCKSTEP_CHECK(!has(name), InvalidArgument, "a checkpoint has ", io::in_quotes(name), " already");
}

std::vector<std::string> Registry::tensor_names() const {
  std::vector<std::string> all;
  for (const auto& [name, state] : tensors) all.push_back(name);
  return all;
}

bool Registry::has(std::string_view name) const noexcept {
  const auto is_it = [&](const auto& each) { return each.first == name; };
  return std::ranges::any_of(tensors, is_it) || std::ranges::any_of(values, is_it);
}

std::string Registry::names() const {
  std::set<std::string> sorted;
  for (const auto& [name, state] : tensors) sorted.insert(name);
  for (const auto& [name, state] : values) sorted.insert(name);
  return in_lines(sorted);
}

std::string Registry::names_and_more(int ranks) const {
  std::set<std::string> sorted;
  for (const auto& [name, state] : tensors) {
    std::string text = name;
    if (state.told && ranks > 1) text += what_is_told(state);
    if (state.sharers && state.sharers->ranks != ranks)
      text.append(words_of_sharers).append(state.sharers->group);
    sorted.insert(std::move(text));
  }
  for (const auto& [name, state] : values) sorted.insert(name);
  return in_lines(sorted);
}

bool Registry::may_have_more() const {
  return std::ranges::any_of(tensors, [](const auto& each) { return bool{each.second.has_more}; });
}

bool Registry::has_more() const {
  return std::ranges::any_of(
      tensors, [](const auto& each) { return each.second.has_more && each.second.has_more(); });
}

void Registry::add(std::string name, TensorState state) {
  check_name(name);
  LOCKSTEP_CHECK(state.pieces && state.load && bool{state.more} == bool{state.has_more},
                 InvalidArgument, io::in_quotes(name),
                 " has no functions that give its tensors and take them back");
  tensors.emplace_back(std::move(name), std::move(state));
}

void Registry::add(std::string name, ValueState state) {
  check_name(name);
  LOCKSTEP_CHECK(state.values && state.load, InvalidArgument, io::in_quotes(name),
                 " has no functions that give its values and take them back");
  values.emplace_back(std::move(name), std::move(state));
}

}  // namespace lockstep::checkpoint
