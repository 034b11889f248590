#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/options.hpp"
#include "engine/entry.hpp"
#include "engine/host.hpp"
#include "nccl/creation.hpp"
#include "nccl/failure.hpp"
#include "nccl/group.hpp"
#include "nccl/handle.hpp"

/// @file
/// NCCL's functions that make and end communicators.

using simgpu::Allowed;
using simgpu::EntryPoint;
using simgpu::nccl::Communicator;
using simgpu::nccl::communicator_of;
using simgpu::nccl::CommunicatorOptions;
using simgpu::nccl::Failure;
using simgpu::nccl::Group;
using simgpu::nccl::guarded;

namespace {

void require(bool condition, const std::string& message) {
  if (!condition) throw Failure(ncclInvalidArgument, message);
}

// What the configuration asks for, on top of what would hold without it.
void apply(const ncclConfig_t* config, CommunicatorOptions& options) {
  if (!config) return;
  const ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
  require(config->magic == initial.magic && config->size >= sizeof(size_t),
          "the configuration was not made with NCCL_CONFIG_INITIALIZER");
  require(
      config->blocking == NCCL_CONFIG_UNDEF_INT || config->blocking == 0 || config->blocking == 1,
      "blocking must be 0 or 1");
  if (config->blocking != NCCL_CONFIG_UNDEF_INT) options.is_blocking = config->blocking == 1;
  if (config->commName) options.name = config->commName;
}

ncclResult_t init(ncclComm_t* slot, const ncclUniqueId& id, const CommunicatorOptions& options) {
  require(slot != nullptr, "comm is null");
  *slot = nullptr;
  require(
      options.ranks >= 1 && options.rank >= 0 && options.rank < options.ranks,
      "there is no rank " + std::to_string(options.rank) + " of " + std::to_string(options.ranks));
  const auto communicator = std::make_shared<Communicator>(options);
  *slot = make_handle(communicator);
  Communicator* const raw = communicator.get();  // its own thread must not own it
  return Group::current().add(
      communicator, [raw, id] { simgpu::nccl::create(*raw, id); }, slot);
}

ncclResult_t init_on_current_device(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank,
                                    const ncclConfig_t* config) {
  CommunicatorOptions options{
      .ranks = ranks, .rank = rank, .device = simgpu::current_device(), .name = {}};
  apply(config, options);
  return init(comm, id, options);
}

ncclResult_t init_all(ncclComm_t* comms, int count, const int* devices) {
  require(comms != nullptr && count >= 1, "no communicators are asked for");
  const ncclUniqueId id = simgpu::nccl::start_rendezvous();
  Group& group = Group::current();
  group.start();
  ncclResult_t status = ncclSuccess;
  for (int rank = 0; rank < count && status == ncclSuccess; ++rank) {
    const int device = devices ? devices[rank] : rank;
    status = guarded([&] {
      require(device >= 0 && device < simgpu::options().devices,
              "there is no device " + std::to_string(device));
      return init(comms + rank, id, {.ranks = count, .rank = rank, .device = device, .name = {}});
    });
  }
  if (status != ncclSuccess)
    for (int rank = 0; rank < count; ++rank)
      if (comms[rank]) communicator_of(comms[rank])->abort();
  group.note_failure(status);
  return group.end();
}

// Without a configuration a part is as the whole; what a configuration leaves open is NCCL's
// default.
CommunicatorOptions options_of_part(const Communicator& whole, const ncclConfig_t* config) {
  CommunicatorOptions options = whole.options();
  options.name.clear();
  if (config) options.is_blocking = true;
  apply(config, options);
  return options;
}

// What the whole does in the background. The handle is there at the end and not before, of a part
// that failed as well.
void split_and_hand_out(Communicator& whole, std::uint64_t number, int color, int key,
                        const std::shared_ptr<Communicator>& part, ncclComm_t* slot) {
  const auto hand_out = [&] {
    if (part) std::atomic_ref(*slot).store(make_handle(part), std::memory_order_release);
  };
  try {
    simgpu::nccl::split(whole, number, color, key, part.get());
  } catch (const Failure& failure) {
    if (part) part->fail(failure.status(), failure.what());
    hand_out();
    throw;
  }
  hand_out();
}

ncclResult_t split(ncclComm_t comm, int color, int key, ncclComm_t* slot,
                   const ncclConfig_t* config) {
  const auto whole = communicator_of(comm);
  whole->require_open();
  require(slot != nullptr, "newcomm is null");
  require(color >= 0 || color == NCCL_SPLIT_NOCOLOR,
          "color must not be negative, but for NCCL_SPLIT_NOCOLOR");
  *slot = nullptr;
  std::shared_ptr<Communicator> part;
  if (color != NCCL_SPLIT_NOCOLOR)
    part = std::make_shared<Communicator>(options_of_part(*whole, config));
  const std::uint64_t number = whole->next_management();
  whole->answer();
  Communicator* const raw = whole.get();  // its own thread must not own it
  const auto work = [=] { split_and_hand_out(*raw, number, color, key, part, slot); };
  const ncclResult_t status = Group::current().add(whole, work, part ? slot : nullptr);
  // As NCCL from 2.18 to 2.30 at least: that the whole is in progress only its state says.
  return status == ncclInProgress ? ncclSuccess : status;
}

ncclResult_t finalize(ncclComm_t comm) {
  const auto communicator = communicator_of(comm);
  communicator->require_open();
  if (communicator->options().is_blocking) {
    communicator->finalize();
    return ncclSuccess;
  }
  Communicator* const raw = communicator.get();
  communicator->start([raw] { raw->finalize(); });
  return ncclInProgress;
}

}  // namespace

ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) {
  static EntryPoint entry("ncclGetUniqueId");
  return entry.call([&] {
    return guarded([&] {
      require(uniqueId != nullptr, "uniqueId is null");
      *uniqueId = simgpu::nccl::start_rendezvous();
      return ncclSuccess;
    });
  });
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  static EntryPoint entry("ncclCommInitRank");
  return entry.call([&] {
    return guarded([&] { return init_on_current_device(comm, nranks, commId, rank, nullptr); });
  });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t* config) {
  static EntryPoint entry("ncclCommInitRankConfig");
  return entry.call([&] {
    return guarded([&] { return init_on_current_device(comm, nranks, commId, rank, config); });
  });
}

ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  static EntryPoint entry("ncclCommInitAll");
  return entry.call([&] { return guarded([&] { return init_all(comm, ndev, devlist); }); });
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                           ncclConfig_t* config) {
  static EntryPoint entry("ncclCommSplit");
  return entry.call(
      [&] { return guarded([&] { return split(comm, color, key, newcomm, config); }); });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  static EntryPoint entry("ncclCommFinalize");
  return entry.call([&] { return guarded([&] { return finalize(comm); }); });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  static EntryPoint entry("ncclCommDestroy", Allowed::always);
  return entry.call([&] {
    return guarded([&] {
      if (!comm) return ncclSuccess;
      const auto communicator = communicator_of(comm);
      communicator->require_ready();
      communicator->finalize();
      communicator->registrations().end(communicator->describe(), true);
      simgpu::nccl::end_handle(comm);
      return ncclSuccess;
    });
  });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  static EntryPoint entry("ncclCommAbort", Allowed::always);
  return entry.call([&] {
    return guarded([&] {
      if (!comm) return ncclSuccess;
      const auto communicator = communicator_of(comm);
      communicator->abort();
      communicator->wait_for_graphs();
      simgpu::nccl::end_handle(comm);
      return ncclSuccess;
    });
  });
}
