#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/state.hpp"

/// @file
/// All that belongs to a run.

namespace lockstep::checkpoint {

/// What stands behind the name of a state that a part of the ranks share, before that of the part.
inline constexpr std::string_view words_of_sharers = " of the replica over ";

/// In the order in which it was added, which is that of loading.
struct Registry {
  std::vector<std::pair<std::string, TensorState>> tensors;
  std::vector<std::pair<std::string, ValueState>> values;

  /// In alphabetical order, a line each: what ranks must have alike.
  std::string names() const;
  /// The same, and behind each what it tells of itself, which a load need not find alike, and who
  /// shares it where that are not all. @param ranks of the group that saves.
  std::string names_and_more(int ranks) const;
  /// Whether any state of this rank may have more; and whether one has.
  bool may_have_more() const;
  bool has_more() const;
  /// Those of `tensors` alone.
  std::vector<std::string> tensor_names() const;
  /// Whether something of that name is there.
  bool has(std::string_view name) const noexcept;
  /// Adds something. @throws InvalidArgument for a name that is taken or no name of a file.
  void add(std::string name, TensorState state);
  void add(std::string name, ValueState state);

 private:
  void check_name(const std::string& name) const;
};

}  // namespace lockstep::checkpoint
