#include "memory/peer_access.hpp"

#include <array>
#include <atomic>

#include "memory/allocations.hpp"
#include "memory/layout.hpp"

namespace simgpu {
namespace {

/// A bit for each peer.
std::array<std::atomic<unsigned>, Layout::max_devices> peers;

unsigned bit_of(int peer) { return 1u << peer; }

std::atomic<unsigned>& peers_of(int device) { return peers[static_cast<std::size_t>(device)]; }

}  // namespace

bool set_peer_access(int device, int peer, bool enabled) {
  const unsigned before =
      enabled ? peers_of(device).fetch_or(bit_of(peer)) : peers_of(device).fetch_and(~bit_of(peer));
  return (before & bit_of(peer)) != 0;
}

bool can_reach(int device, const void* address) {
  const int slot = slot_of(address);
  if (slot == device || slot == Layout::pinned_slot) return true;
  if ((peers_of(device) & bit_of(slot)) == 0) return false;
  const auto allocation = Allocations::instance().find(address);
  return !allocation || allocation->reservation == 0;
}

}  // namespace simgpu
