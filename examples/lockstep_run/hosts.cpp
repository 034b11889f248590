#include "lockstep_run/hosts.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>

#include <lockstep/core/error.hpp>

namespace run {
namespace {

constexpr int max_slots = 1 << 16;

Host parse_host(const std::string& line, const std::string& place) {
  std::istringstream words(line);
  Host host;
  words >> host.name;
  LOCKSTEP_CHECK(!host.name.starts_with('-'), lockstep::InvalidArgument, place, ": '", host.name,
                 "' is no name of a host: ssh would take it for an option");
  host.address = host.name.substr(host.name.rfind('@') + 1);  // of USER@NAME, as ssh has it
  constexpr std::string_view slots = "slots=", address = "address=";
  for (std::string word; words >> word;) {
    if (word.starts_with(address) && word.size() > address.size()) {
      host.address = word.substr(address.size());
      if (host.address.starts_with('[') && host.address.ends_with(']'))  // IPv6 as in MASTER_ADDR
        host.address = host.address.substr(1, host.address.size() - 2);
      continue;
    }
    const char* end = word.data() + word.size();
    const bool is_number = word.starts_with(slots) && word.size() > slots.size() &&
                           std::from_chars(word.data() + slots.size(), end, host.slots).ptr == end;
    LOCKSTEP_CHECK(is_number && host.slots >= 1 && host.slots <= max_slots,
                   lockstep::InvalidArgument, place, ": '", word,
                   "' is neither slots=N, with N from 1 on, nor address=ADDRESS");
  }
  return host;
}

}  // namespace

std::vector<Host> read_hosts(const std::filesystem::path& file) {
  std::ifstream in(file);
  LOCKSTEP_CHECK(in, lockstep::InvalidArgument, "cannot read the hosts in ", file.string());
  std::vector<Host> hosts;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";  // of editors
    if (number == 0 && line.starts_with(byte_order_mark)) line.erase(0, byte_order_mark.size());
    const std::string place = file.string() + ":" + std::to_string(++number);
    line.erase(std::min(line.find('#'), line.size()));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const Host host = parse_host(line, place);
    const bool is_known = std::ranges::find(hosts, host.name, &Host::name) != hosts.end();
    LOCKSTEP_CHECK(!is_known, lockstep::InvalidArgument, place, ": ", host.name,
                   " is there twice; give it slots=N for several ranks");
    hosts.push_back(host);
  }
  LOCKSTEP_CHECK(!hosts.empty(), lockstep::InvalidArgument, file.string(),
                 " names no host; give lines such as 'node1 slots=8'");
  return hosts;
}

std::vector<int> deal_ranks(const std::vector<Host>& hosts, int ranks) {
  std::vector<int> dealt;
  for (const Host& host : hosts) {
    dealt.push_back(std::min(host.slots, ranks));
    ranks -= dealt.back();
  }
  return dealt;
}

}  // namespace run
