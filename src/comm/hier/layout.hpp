#pragma once

#include <span>
#include <vector>

namespace lockstep::comm::hier {

/// Which ranks of a group share a host. The first of a host is its leader, who speaks with the
/// others'.
struct HostLayout {
  std::vector<std::vector<int>> hosts;  ///< their ranks, in order; hosts in the order of leaders
  int host = 0;                         ///< of this rank
  int place = 0;                        ///< of this rank on its host

  /// @param host_of_rank a number for each host, as they come.
  HostLayout(std::span<const int> host_of_rank, int rank);

  const std::vector<int>& own() const { return hosts[static_cast<std::size_t>(host)]; }
  bool is_leader() const { return place == 0; }
  std::vector<int> leaders() const;
};

}  // namespace lockstep::comm::hier
