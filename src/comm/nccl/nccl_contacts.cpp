#include "comm/nccl/nccl_contacts.hpp"

#include <algorithm>
#include <cstddef>

namespace lockstep::comm {
namespace {

// One of no elements connects nobody.
bool have_all_to_all(std::span<const Operation> operations) {
  return std::ranges::any_of(operations, [](const Operation& operation) {
    return operation.kind == OperationKind::all_to_all && operation.count > 0;
  });
}

}  // namespace

NcclContacts::NcclContacts(int rank, int size) : is_known_(static_cast<std::size_t>(size)) {
  note(rank);
}

std::vector<int> NcclContacts::first_reached_by(std::span<const Operation> operations) const {
  if (have_all_to_all(operations)) return {};
  std::vector<int> ranks = partners_of(operations);
  std::erase_if(ranks, [&](int rank) { return is_known_[static_cast<std::size_t>(rank)]; });
  std::ranges::sort(ranks);
  const auto repeated = std::ranges::unique(ranks);
  ranks.erase(repeated.begin(), repeated.end());
  return ranks;
}

void NcclContacts::note(std::span<const Operation> operations) {
  if (have_all_to_all(operations)) is_known_.assign(is_known_.size(), true);
}

}  // namespace lockstep::comm
