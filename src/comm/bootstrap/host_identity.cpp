#include "comm/bootstrap/host_identity.hpp"

#include <array>
#include <charconv>
#include <fstream>

#include <sys/stat.h>
#include <unistd.h>

namespace lockstep::comm {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// A random number that Linux draws when it starts; empty where it does not say.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

// The number of one of this process' namespaces, "net" or "pid", unique on its machine.
std::string number_of_namespace(const char* kind) {
  struct stat status {};
  const std::string path = std::string("/proc/self/ns/") + kind;
  return stat(path.c_str(), &status) == 0 ? std::to_string(status.st_ino) : "?";
}

// Takes the text up to the next line break.
std::string take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  LOCKSTEP_CHECK(end != std::string_view::npos, CorruptData, "malformed peer '", text, "'");
  const std::string line(text.substr(0, end));
  text.remove_prefix(end + 1);
  return line;
}

}  // namespace

// Names count beside the ids: clones of a virtual machine that slept have the ids of the original.
Peer describe_this_process() {
  const std::string name = host_name(), boot = boot_id();
  const std::string machine = boot.empty() ? name : boot;
  return {.host = name,
          .pid = getpid(),
          .machine = machine,
          .network = machine + ' ' + number_of_namespace("net") + ' ' + name,
          .processes = machine + ' ' + number_of_namespace("pid") + ' ' + name};
}

std::string to_text(const Peer& peer) {
  return std::to_string(peer.pid) + '\n' + peer.machine + '\n' + peer.network + '\n' +
         peer.processes + '\n' + peer.host;
}

Peer parse_peer(const std::string& text) {
  std::string_view rest = text;
  const std::string pid = take_line(rest);
  Peer peer;
  const auto [end, status] = std::from_chars(pid.data(), pid.data() + pid.size(), peer.pid);
  LOCKSTEP_CHECK(status == std::errc() && end == pid.data() + pid.size(), CorruptData,
                 "malformed peer '", text, "'");
  peer.machine = take_line(rest);
  peer.network = take_line(rest);
  peer.processes = take_line(rest);
  peer.host = rest;
  return peer;
}

LocalPlace local_place(std::span<const Peer> peers, int rank) {
  const auto own = static_cast<std::size_t>(rank);
  LocalPlace place{0, 0};
  for (std::size_t other = 0; other < peers.size(); ++other) {
    if (peers[other].network != peers[own].network) continue;
    ++place.size;
    if (other < own) ++place.rank;
  }
  return place;
}

}  // namespace lockstep::comm
