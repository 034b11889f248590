#include "lockstep/comm/thread_world.hpp"

#include <exception>
#include <mutex>
#include <thread>

#include "comm/host/failure.hpp"
#include "comm/host/host_communicator.hpp"
#include "comm/thread/thread_transport.hpp"

namespace lockstep::comm {

std::vector<CommunicatorPtr> make_thread_group(int ranks, const CommunicatorOptions& options) {
  LOCKSTEP_CHECK(ranks >= 1, InvalidArgument, "a group needs at least one rank, got ", ranks);
  const auto hub = std::make_shared<ThreadHub>(ranks);
  std::vector<CommunicatorPtr> group;
  for (int rank = 0; rank < ranks; ++rank)
    group.push_back(make_intrusive<host::HostCommunicator>(
        std::make_unique<ThreadTransport>(hub, rank), "world", options));
  return group;
}

void run_ranks(int ranks, const std::function<void(Communicator&)>& body,
               const CommunicatorOptions& options) {
  const std::vector<CommunicatorPtr> group = make_thread_group(ranks, options);
  std::mutex mutex;
  std::exception_ptr first;
  const auto play = [&](Communicator& communicator) {
    try {
      body(communicator);
    } catch (...) {
      std::string message = host::Failure::from_current().message();
      {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      communicator.abort("rank " + std::to_string(communicator.rank()) + " failed: " + message);
    }
  };
  std::vector<std::thread> threads;
  for (const CommunicatorPtr& communicator : group)
    threads.emplace_back([&play, communicator] { play(*communicator); });
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace lockstep::comm
