#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/finding.hpp"
#include "checkpoint/registry.hpp"
#include "lockstep/comm/communicator.hpp"

/// @file
/// What ranks ask each other first when they save.

namespace lockstep::checkpoint {

/// What all ranks together have.
struct SharedStates {
  bool has_more = false;   ///< any of them: TensorState::has_more
  Finding finding;         ///< of the checkpoints before
  std::string difference;  ///< who has which state that others lack; empty: nobody
};

/// The first exchange of a save: four numbers, and names where these differ. Ranks whose states
/// may have more need the answer before they copy them, and wait for it in `begin`; those of others
/// get it in `answer`, on the thread behind the save, so that these wait for nobody. One meets the
/// other.
class SameStates {
 public:
  /// @param label of the exchange.
  explicit SameStates(std::string_view label) : label_(label) {}
  /// A save begins. @param finding what this rank knows of those before. @return whether it takes
  /// what states give by `more`.
  /// @throws InvalidArgument for a difference, and what states and the group throw; `answer` is to
  /// be called then, too.
  bool begin(comm::Communicator& group, const Registry& registry, Finding finding = {});
  /// Compares on its own. Blocks. @throws InvalidArgument on every rank for a difference.
  void check(comm::Communicator& group, const Registry& registry);
  /// Asks, unless that was done.
  const SharedStates& answer(comm::Communicator& group) { return answer(group, false); }

 private:
  const SharedStates& answer(comm::Communicator& group, bool has_more);

  std::string_view label_;
  std::string names_;
  Finding finding_;
  std::optional<SharedStates> answer_;
};

}  // namespace lockstep::checkpoint
