#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace run {

/// A line of a file of hosts.
struct Host {
  std::string name;     ///< as the launcher knows it
  int slots = 1;        ///< how many ranks it takes
  std::string address;  ///< at which other hosts reach it
};

/// Reads a file of hosts, one a line: "NAME [slots=N] [address=ADDRESS]", as mpirun's; # begins a
/// comment. The address is the name, unless it is given. @throws InvalidArgument naming the line.
std::vector<Host> read_hosts(const std::filesystem::path& file);

/// How many of so many ranks each host gets: hosts are filled in their order.
std::vector<int> deal_ranks(const std::vector<Host>& hosts, int ranks);

}  // namespace run
