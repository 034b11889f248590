#include "lockstep/comm/thread_world.hpp"

#include <exception>
#include <mutex>
#include <thread>

#include "comm/backends.hpp"
#include "comm/failure.hpp"
#include "comm/group_registry.hpp"
#include "comm/host/message_executor.hpp"
#include "comm/thread/thread_transport.hpp"
#include "lockstep/comm/errors.hpp"
#include "runtime/background_failure.hpp"

namespace lockstep::comm {
namespace {

using Registries = std::vector<std::shared_ptr<GroupRegistry>>;

// A registry for each thread; what one announces is told to the others at once.
Registries make_registries(int ranks, const ComparisonPtr& comparison) {
  LOCKSTEP_CHECK(ranks >= 1, InvalidArgument, "a group needs at least one rank, got ", ranks);
  Registries registries;
  for (int rank = 0; rank < ranks; ++rank)
    registries.emplace_back(std::make_shared<GroupRegistry>())->set_comparison(comparison);
  const std::vector<std::weak_ptr<GroupRegistry>> all(registries.begin(), registries.end());
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    registries[rank]->set_announcer([all, rank](const std::string& news) {
      for (std::size_t other = 0; other < all.size(); ++other)
        if (const auto registry = other == rank ? nullptr : all[other].lock())
          registry->receive(news);
    });
  return registries;
}

std::vector<CommunicatorPtr> make_group(const Registries& registries,
                                        const CommunicatorOptions& options, Device device) {
  const int ranks = static_cast<int>(registries.size());
  const auto hub = std::make_shared<ThreadHub>(ranks);
  std::vector<CommunicatorPtr> group;
  for (int rank = 0; rank < ranks; ++rank) {
    auto backend =
        host::make_message_backend(std::make_unique<ThreadTransport>(hub, rank), "world", options,
                                   GroupMembership(registries[static_cast<std::size_t>(rank)]));
    if (device.is_cuda()) backend = make_staged(device, std::move(backend));
    group.push_back(make_intrusive<Communicator>(std::move(backend)));
  }
  return group;
}

}  // namespace

std::vector<CommunicatorPtr> make_thread_group(int ranks, const CommunicatorOptions& options,
                                               Device device) {
  return make_group(make_registries(ranks, nullptr), options, device);
}

void run_ranks(int ranks, const std::function<void(Communicator&)>& body,
               const CommunicatorOptions& options, Device device) {
  std::mutex mutex;
  std::exception_ptr first;
  const auto comparison = make_intrusive<SignatureComparison>(
      SignatureComparison::Send{}, [&](const std::string& difference) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::make_exception_ptr(Mismatch(difference));
      });
  const Registries registries = make_registries(ranks, comparison);
  std::vector<CommunicatorPtr> group = make_group(registries, options, device);
  const auto play = [&](Communicator& communicator) {
    try {
      body(communicator);
    } catch (...) {
      std::string message = Failure::from_current().message();
      {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      communicator.abort("rank " + std::to_string(communicator.rank()) + " failed: " + message);
    }
  };
  std::vector<std::uint64_t> kept;
  std::vector<std::thread> threads;
  // A rank whose body returns leaves its groups, whoever still has them: the others hear of it.
  for (std::size_t rank = 0; rank < group.size(); ++rank)
    threads.emplace_back([&, own = std::move(group[rank]), rank]() mutable {
      const BackgroundFailureScope failures;
      play(*own);
      registries[rank]->leave_all();
      own.reset();
      const std::lock_guard lock(mutex);
      kept.insert(kept.end(), failures.kept().begin(), failures.kept().end());
    });
  for (std::thread& thread : threads) thread.join();
  comparison->close();
  if (!first) return;
  // The caller is told: what comes after this job has nothing to do with it.
  for (const std::uint64_t failure : kept) forget_background_failure(failure);
  std::rethrow_exception(first);
}

}  // namespace lockstep::comm
