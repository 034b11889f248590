// One rank of the jobs that job_test.cpp starts: does what its first argument says.

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "lockstep/comm/host_values.hpp"
#include "lockstep/comm/session.hpp"
#include "lockstep/runtime/stream.hpp"
#include "lockstep/tensor/factories.hpp"

namespace {

namespace ls = lockstep;

using Event = std::function<void(ls::Session&)>;

// Does the event, and says when: tests measure from there how soon the job ends.
void happen(ls::Session& session, const Event& event) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  std::printf(
      "event at %lld ms\n",
      static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()));
  std::fflush(stdout);
  event(session);
}

// Numbers on the rank's device.
class Values {
 public:
  Values(const ls::Session& session, std::int64_t count)
      : tensor_(ls::full({count}, 1.0, {.device = session.device()})) {}

  ls::comm::Buffer buffer() const { return {tensor_.data_ptr(), tensor_.numel(), tensor_.dtype()}; }
  double last() const { return tensor_.slice(0, tensor_.numel() - 1, tensor_.numel()).item(); }

 private:
  ls::Tensor tensor_;
};

// All-reduces until something ends the job; rank 1 does `event` in the middle.
int train(ls::Session& session, const Event& event) {
  const Values values(session, 200'000);
  for (int step = 0; step < 100'000; ++step) {
    if (session.rank() == 1 && step == 20) happen(session, event);
    session.world()->all_reduce(values.buffer()).wait();
    ls::synchronize(ls::current_stream(session.device()));
  }
  return 0;
}

int sum_ranks(ls::Session& session) {
  const auto sum = ls::comm::all_reduce_scalar(*session.world(), std::int64_t{session.rank()});
  const auto half = session.world()->split(session.rank() % 2, 0);
  const Values values(session, 50'000);
  half->all_reduce(values.buffer()).wait();
  std::printf("rank %d of %d (%s), local %d of %d, sum %lld, half %g\n", session.rank(),
              session.size(), std::string(session.world()->backend()).c_str(), session.local_rank(),
              session.local_size(), static_cast<long long>(sum), values.last());
  return 0;
}

int compute_alone(ls::Session& session, const Event& event) {
  if (session.rank() == 1) happen(session, event);
  std::this_thread::sleep_for(std::chrono::seconds(60));
  return 0;
}

// Its group fails at once, the reason comes later.
void abort_and_throw(ls::Session& session) {
  session.world()->abort("rank 1 gave up");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  LOCKSTEP_THROW(InvalidArgument, "lr must be positive");
}

const std::map<std::string, std::function<int(ls::Session&)>> modes{
    {"sum", sum_ranks},
    {"throw",
     [](ls::Session& s) {
       return train(s, [](auto&) { LOCKSTEP_THROW(OutOfMemory, "no memory for 7 bytes"); });
     }},
    {"refuse",
     [](ls::Session& s) {
       return train(s, [](auto&) { LOCKSTEP_THROW(InvalidArgument, "lr must be positive"); });
     }},
    {"refuse-all",
     [](ls::Session&) -> int { LOCKSTEP_THROW(InvalidArgument, "steps must be positive"); }},
    {"abort", [](ls::Session& s) { return train(s, abort_and_throw); }},
    {"kill", [](ls::Session& s) { return train(s, [](auto&) { std::raise(SIGKILL); }); }},
    {"segv", [](ls::Session& s) { return train(s, [](auto&) { std::raise(SIGSEGV); }); }},
    {"kill-alone",
     [](ls::Session& s) { return compute_alone(s, [](auto&) { std::raise(SIGKILL); }); }},
    {"throw-alone",
     [](ls::Session& s) {
       return compute_alone(s, [](auto&) { throw std::runtime_error("lonely"); });
     }},
    {"thread",
     [](ls::Session& s) {
       return train(
           s, [](auto&) { std::thread([] { throw std::runtime_error("in a thread"); }).join(); });
     }},
    {"exit", [](ls::Session& s) { return train(s, [](auto&) { std::_Exit(0); }); }},
};

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "uncaught") {
    ls::Session session(argc, argv);
    return train(session, [](auto&) { throw std::runtime_error("nobody catches this"); });
  }
  const auto found = modes.find(mode);
  if (found == modes.end()) return 3;
  return ls::Session::run(argc, argv, found->second);
}
