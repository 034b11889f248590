#include "planted/ranks.hpp"

#include <barrier>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/comm/bootstrap.hpp"
#include "lockstep/runtime/stream.hpp"
#include "simgpu/simgpu.hpp"

namespace planted {
namespace {

using namespace lockstep;

/// What the threads of a job share.
struct Rendezvous {
  explicit Rendezvous(int ranks)
      : size(ranks), values(static_cast<std::size_t>(ranks)), all(ranks) {}
  int size;
  std::vector<std::string> values;
  std::barrier<> all;
};

/// Lets the ranks find each other through memory.
class ThreadBootstrap final : public comm::Bootstrap {
 public:
  ThreadBootstrap(Rendezvous& rendezvous, int rank) : rendezvous_(rendezvous), rank_(rank) {
    discover_peers();
  }

  int rank() const override { return rank_; }
  int size() const override { return rendezvous_.size; }
  std::string_view kind() const override { return "thread"; }
  void end_job(int exit_code) noexcept override { std::_Exit(exit_code); }

 private:
  std::vector<std::string> exchange(std::string_view bytes) override {
    rendezvous_.values[static_cast<std::size_t>(rank_)] = bytes;
    rendezvous_.all.arrive_and_wait();
    auto gathered = rendezvous_.values;
    rendezvous_.all.arrive_and_wait();
    return gathered;
  }

  Rendezvous& rendezvous_;
  int rank_;
};

}  // namespace

void run_ranks(int ranks, const std::function<void(CommunicatorPtr)>& body,
               const comm::CommunicatorOptions& options) {
  Rendezvous rendezvous(ranks);
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(ranks));
  const auto run = [&](int rank) {
    CommunicatorPtr group;
    try {
      ThreadBootstrap bootstrap(rendezvous, rank);
      group = comm::make_communicator(bootstrap, cuda(rank), options);
      body(group);
      synchronize(current_stream(cuda(rank)));
    } catch (const std::exception& error) {
      failures[static_cast<std::size_t>(rank)] = std::current_exception();
      if (group) group->abort(error.what());
    }
  };
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  threads.clear();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

void run_disagreeing_ranks(const std::function<void(CommunicatorPtr)>& body) {
  const auto until_reported = [&](const CommunicatorPtr& group) {
    const std::jthread watch([&group](const std::stop_token& end) {
      while (!end.stop_requested() && simgpu::findings() == 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (!end.stop_requested()) group->abort("the ranks disagree");
    });
    body(group);
  };
  try {
    run_ranks(2, until_reported);
  } catch (const Error&) {
    // The abort of what hangs.
  }
}

}  // namespace planted
