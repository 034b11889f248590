#pragma once

#include "support/contract_ranks.hpp"

/// @file
/// The contracts of communicators: a backend instantiates those that concern it for its ranks.

namespace lockstep::comm {

/// What every communicator must do, over buffers on the host.
class CommunicatorContract : public testing::ContractOfRanks {};

/// What every communicator must do with operations that start as one.
class BatchContract : public testing::ContractOfRanks {};

/// What communicators over a transport of the host do beyond the contract of all: they compare
/// signatures, name who is absent, carry an abort to the other ranks, and add 16-bit floats in
/// float.
class HostCommunicatorContract : public testing::ContractOfRanks {};

/// What communicators over a transport of the host do when a batch fails.
class HostBatchContract : public testing::ContractOfRanks {};

/// What communicators on host memory do whoever waits for their operations: one thread, several or
/// none. Small operations may run on a thread that waits for them.
class HostWaitingContract : public testing::ContractOfRanks {};

}  // namespace lockstep::comm
