#include "comm/nccl/nccl_contacts.hpp"

#include <cstddef>

namespace lockstep::comm {

NcclContacts::NcclContacts(int rank, int size) : is_known_(static_cast<std::size_t>(size)) {
  is_known_[static_cast<std::size_t>(rank)] = true;
}

// An all-to-all is made of messages.
std::vector<int> NcclContacts::first_reached_by(std::span<const Operation> operations) const {
  std::vector<bool> is_reached(is_known_.size());
  for (const Operation& operation : operations)
    if (operation.kind == OperationKind::all_to_all)
      is_reached.assign(is_known_.size(), true);
    else if (operation.is_point_to_point())
      is_reached[static_cast<std::size_t>(operation.peer)] = true;
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < is_known_.size(); ++rank)
    if (is_reached[rank] && !is_known_[rank]) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

void NcclContacts::note(std::span<const int> ranks) {
  for (const int rank : ranks) is_known_[static_cast<std::size_t>(rank)] = true;
}

}  // namespace lockstep::comm
