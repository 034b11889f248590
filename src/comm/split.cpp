#include "comm/split.hpp"

#include <algorithm>
#include <cstring>

#include "lockstep/comm/host_values.hpp"

namespace lockstep::comm {

SplitPlan agree_on_split(Communicator& group, int color, int key, std::uint64_t number) {
  const int own[2] = {color, key};
  const auto all = all_gather_bytes(group, {reinterpret_cast<const char*>(own), sizeof own},
                                    "split: colour and key");
  std::vector<std::pair<int, int>> members;  // key, old rank
  for (int rank = 0; rank < group.size(); ++rank) {
    int theirs[2];
    std::memcpy(theirs, all[static_cast<std::size_t>(rank)].data(), sizeof theirs);
    if (color >= 0 && theirs[0] == color) members.emplace_back(theirs[1], rank);
  }
  std::ranges::sort(members);
  SplitPlan plan;
  plan.color = color;
  for (const auto& [_, rank] : members) plan.members.push_back(rank);
  plan.place =
      static_cast<int>(std::ranges::find(plan.members, group.rank()) - plan.members.begin());
  plan.name = group.name() + "/" + std::to_string(number) + "." + std::to_string(color);
  plan.all_gather = [&group](std::string_view bytes) {
    return all_gather_bytes(group, bytes, "split");
  };
  return plan;
}

}  // namespace lockstep::comm
