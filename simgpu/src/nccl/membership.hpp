#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "nccl/call_exchange.hpp"
#include "nccl/rendezvous.hpp"

/// @file
/// From the peer infos of the ranks to the exchange of their communicator.

namespace simgpu::nccl {

/// Gives this rank's info to the others and returns those of all ranks of the new communicator,
/// by their rank in it.
using ExchangePeerInfo = std::function<std::vector<PeerInfo>(const PeerInfo& own)>;

/// Makes this rank's segment, exchanges peer infos, and connects to every rank: through shared
/// memory where ranks are on one host, through TCP otherwise (or with
/// LOCKSTEP_SIM_NCCL_TRANSPORT=tcp).
/// @param ranks_at_most how many ranks the communicator may have
/// @return the exchange, once all ranks are ready. @throws Failure
std::unique_ptr<CallExchange> form(const PeerInfo& identity, int ranks_at_most,
                                   const ExchangePeerInfo& exchange, const GiveUp& give_up);

}  // namespace simgpu::nccl
