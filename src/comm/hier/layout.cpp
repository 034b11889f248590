#include "comm/hier/layout.hpp"

#include <algorithm>

namespace lockstep::comm::hier {

HostLayout::HostLayout(std::span<const int> host_of_rank, int rank) {
  std::vector<int> numbers;  // of the hosts, as given
  for (std::size_t other = 0; other < host_of_rank.size(); ++other) {
    const auto at = std::ranges::find(numbers, host_of_rank[other]) - numbers.begin();
    if (static_cast<std::size_t>(at) == numbers.size()) {
      numbers.push_back(host_of_rank[other]);
      hosts.emplace_back();
    }
    std::vector<int>& ranks = hosts[static_cast<std::size_t>(at)];
    if (static_cast<int>(other) == rank) {
      host = static_cast<int>(at);
      place = static_cast<int>(ranks.size());
    }
    ranks.push_back(static_cast<int>(other));
  }
}

std::vector<int> HostLayout::leaders() const {
  std::vector<int> ranks;
  for (const auto& of_host : hosts) ranks.push_back(of_host.front());
  return ranks;
}

}  // namespace lockstep::comm::hier
