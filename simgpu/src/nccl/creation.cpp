#include "nccl/creation.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <thread>

#include "base/first_device.hpp"
#include "nccl/failure.hpp"
#include "nccl/membership.hpp"

namespace simgpu::nccl {
namespace {

// Every rank sends its info to every other, over the communicator that is there.
std::vector<PeerInfo> exchange_peer_info(Communicator& parent, std::uint64_t number,
                                         const PeerInfo& own, const GiveUp& give_up) {
  CallExchange& exchange = *parent.exchange();
  const auto pause = [&] {
    if (give_up()) throw Failure(ncclInvalidUsage, "a communicator was aborted while it was split");
    parent.look_for_lost_peers();
    if (parent.has_failed()) throw Failure(ncclRemoteError, last_error());
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  };
  std::vector<PeerInfo> infos(static_cast<std::size_t>(exchange.size()));
  infos[static_cast<std::size_t>(exchange.rank())] = own;
  while (!exchange.publish(management, number, {}, std::as_bytes(std::span(&own, 1)))) pause();
  for (int rank = 0; rank < exchange.size(); ++rank) {
    if (rank == exchange.rank()) continue;
    while (!exchange.find(rank, management, number)) pause();
    const auto seen = exchange.find(rank, management, number);
    std::memcpy(static_cast<void*>(&infos[static_cast<std::size_t>(rank)]), seen->data,
                std::min(seen->bytes, sizeof(PeerInfo)));
    exchange.release(rank, management, number);
  }
  return infos;
}

// Ranks of the new communicator are numbered by key, then by their old rank.
std::vector<PeerInfo> members(std::vector<PeerInfo> infos, int color) {
  std::erase_if(infos, [color](const PeerInfo& info) { return info.color != color; });
  std::ranges::stable_sort(infos, {}, &PeerInfo::key);
  std::int32_t rank = 0;
  for (PeerInfo& info : infos) info.rank = rank++;
  return infos;
}

}  // namespace

void create(Communicator& communicator, const ncclUniqueId& id) {
  const GiveUp give_up = [&] { return communicator.is_aborted(); };
  PeerInfo identity;
  identity.rank = communicator.rank();
  identity.device = first_device() + communicator.options().device;
  communicator.set_exchange(form(
      identity, communicator.size(),
      [&](const PeerInfo& own) { return join_rendezvous(id, own, communicator.size(), give_up); },
      give_up));
}

void split(Communicator& parent, std::uint64_t number, int color, int key, Communicator* child) {
  const GiveUp give_up = [&] { return parent.is_aborted() || (child && child->is_aborted()); };
  PeerInfo identity;
  identity.rank = parent.rank();
  identity.device = first_device() + parent.options().device;
  identity.color = color;
  identity.key = key;
  if (!child) {
    exchange_peer_info(parent, number, identity, give_up);
    return;
  }
  child->set_exchange(form(
      identity, parent.size(),
      [&](const PeerInfo& own) {
        return members(exchange_peer_info(parent, number, own, give_up), color);
      },
      give_up));
}

}  // namespace simgpu::nccl
