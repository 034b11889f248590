// One rank of the jobs that the tests of this folder start: does what its first argument says.

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "comm/jobs/disagreements.hpp"
#include "comm/jobs/endings.hpp"
#include "comm/jobs/stops.hpp"
#include "comm/jobs/training.hpp"
#include "comm/jobs/values.hpp"
#include "lockstep/comm/bootstrap.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/comm/session.hpp"
#include "lockstep/core/parallel.hpp"
#include "lockstep/runtime/stream.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/core_share.hpp"

namespace {

namespace ls = lockstep;
using ls::testing::culprit;
using ls::testing::Event;
using ls::testing::happen;
using ls::testing::number_from;
using ls::testing::Values;

// All-reduces until something ends the job; the culprit does `event` in the middle.
int train(ls::Session& session, const Event& event) {
  const Values values(session, 200'000);
  for (int step = 0; step < 100'000; ++step) {
    if (session.rank() == culprit(session) && step == 20) happen(session, event);
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

// As many threads as it has been given by the time.
int tell_threads(ls::Session& session) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  std::thread([&] { sched_getaffinity(0, sizeof cores, &cores); }).join();
  std::printf("rank %d has %d, others run on %d cores\n", session.rank(), ls::num_threads(),
              CPU_COUNT(&cores));
  return 0;
}

// Sums of 4 MiB, for those who count what the ranks send.
int sum_much(ls::Session& session) {
  const Values values(session, 1 << 20);
  for (int step = 0; step < 5; ++step) session.world()->all_reduce(values.buffer()).synchronize();
  return 0;
}

// Large sums without end; a command runs beside them on the culprit.
int sum_beside_a_command(ls::Session& session) {
  const Values values(session, 4 << 20);
  std::thread command;
  for (int step = 0; step < 100'000; ++step) {
    if (session.rank() == culprit(session) && step == 5)
      command = std::thread([&] {
        happen(session, [](auto&) {
          if (std::system(std::getenv("JOB_COMMAND")) != 0) std::abort();
        });
      });
    if (step == 6 && command.joinable()) command.detach();
    session.world()->all_reduce(values.buffer()).synchronize();
  }
  return 0;
}

int compute_alone(ls::Session& session, const Event& event) {
  if (session.rank() == culprit(session)) happen(session, event);
  std::this_thread::sleep_for(std::chrono::seconds(60));
  return 0;
}

// The culprit takes fewer steps than the others, which may have left their world or a part of it.
int leave_early(ls::Session& session, ls::Communicator& group) {
  const Values values(session, 200'000);
  const bool is_culprit = session.rank() == culprit(session);
  for (int step = 0; step < (is_culprit ? 20 : 100'000); ++step)
    group.all_reduce(values.buffer()).synchronize();
  happen(session, [](auto&) {});
  return 0;
}

// Where something lives on that the session's end does not wait for.
ls::CommunicatorPtr& kept_group() {
  static ls::CommunicatorPtr group;
  return group;
}

// The culprit's session ends early, while something still owns the group.
int leave_with_kept_group(ls::Session& session, bool is_part) {
  const auto group = is_part ? session.world()->split(0, session.rank()) : session.world();
  if (session.rank() == culprit(session)) kept_group() = group;
  return leave_early(session, *group);
}

// An operation under way that nobody waits for, in a group that something still owns.
int keep_pending(ls::Session& session) {
  static const Values values(session, 200'000);
  kept_group() = session.world();
  session.world()->all_reduce(values.buffer());
  return 0;
}

// The culprit leaves after a few collectives; the other rank then exchanges a message with it.
int leave_before_a_message(ls::Session& session,
                           const std::function<ls::comm::Work(const Values&)>& alone) {
  const Values values(session, 200'000);
  for (int step = 0; step < 20; ++step) session.world()->all_reduce(values.buffer()).synchronize();
  if (session.rank() != culprit(session)) alone(values).synchronize();
  happen(session, [](auto&) {});
  return 0;
}

// Dies once the ranks have met, and before it is connected to rank 0 by what tells of its death.
int vanish_while_joining() {
  const auto bootstrap = ls::comm::make_bootstrap();
  if (bootstrap->rank() != 1) return 3;
  bootstrap->all_gather_bytes(".", "options of the session");
  bootstrap->broadcast_bytes({}, 0, "address of the control channel");
  std::_Exit(0);
}

int leave_part_early(ls::Session& session) {
  const auto part = session.world()->split(session.rank() < 2 ? 0 : -1, 0);
  return part ? leave_early(session, *part) : 0;
}

// All but the culprit have left, or are about to, when it is killed.
int die_at_exit(ls::Session& session) {
  const Values values(session, 200'000);
  for (int step = 0; step < 5; ++step) session.world()->all_reduce(values.buffer()).synchronize();
  if (session.rank() != culprit(session)) return 0;
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  happen(session, [](auto&) { std::raise(SIGKILL); });
  return 0;
}

// Every rank gets the signal, as all of a shell's foreground get Ctrl-C.
int interrupt_all(ls::Session& session) {
  session.world()->barrier().synchronize();
  happen(session, [](auto&) { std::raise(SIGINT); });
  std::this_thread::sleep_for(std::chrono::seconds(60));
  return 0;
}

// JOB_SLOW: so many ms the culprit takes for the first step.
int go_slowly(ls::Session& session) {
  const Values values(session, 1000);
  if (session.rank() == culprit(session))
    std::this_thread::sleep_for(std::chrono::milliseconds(number_from("JOB_SLOW", 0)));
  for (int step = 0; step < 10; ++step) {
    const bool is_slow = session.rank() == culprit(session);
    std::this_thread::sleep_for(std::chrono::milliseconds(is_slow ? 400 : 20));
    session.world()->all_reduce(values.buffer()).wait();
  }
  std::printf("rank %d is through\n", session.rank());
  return 0;
}

// Tells how much of a core a rank takes that has nothing to do.
int be_idle(ls::Session& session) {
  const Values values(session, 1000);
  for (int step = 0; step < 20; ++step) session.world()->all_reduce(values.buffer()).synchronize();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const double taken = ls::testing::core_share_of_idling();
  const std::string backend(session.world()->backend());
  std::printf("over %s rank %d takes %.4f of a core\n", backend.c_str(), session.rank(), taken);
  if (!session.device().is_cuda()) return 0;
  ls::comm::Work sum;
  if (session.rank() == 0) sum = session.world()->all_reduce(values.buffer());
  const double waiting = ls::testing::core_share_of_idling();
  std::printf("over %s rank %d takes waiting %.4f of a core\n", backend.c_str(), session.rank(),
              waiting);
  if (session.rank() != 0) sum = session.world()->all_reduce(values.buffer());
  sum.synchronize();
  return 0;
}

[[noreturn]] void loop_for_ever() {
  for (std::atomic<bool> always{true};;) always.load();
}

// Its group fails at once, the reason comes later.
void abort_and_throw(ls::Session& session) {
  session.world()->abort("rank 1 gave up");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  LOCKSTEP_THROW(InvalidArgument, "lr must be positive");
}

// Leaves while a collective is under way that nobody waits for.
int leave_unwaited(ls::Session& session) {
  static const Values values(session, 1000);
  session.world()->all_reduce(values.buffer()).synchronize();
  session.world()->all_reduce(values.buffer());
  return 0;
}

// The culprit calls a collective that no other rank joins, and does not wait for it.
int call_alone(ls::Session& session, ls::Communicator& group) {
  static const Values values(session, 1000);
  group.all_reduce(values.buffer()).synchronize();
  if (session.rank() != culprit(session)) return 0;
  happen(session, [&](auto&) { group.all_reduce(values.buffer()); });
  return 0;
}

int call_alone_in_part(ls::Session& session) {
  const auto part = session.world()->split(session.rank() < 2 ? 0 : -1, 0);
  return part ? call_alone(session, *part) : 0;
}

// Tries what fails, and says so; the program goes on.
void expect_failure(const std::function<void()>& attempt) {
  try {
    attempt();
    std::printf("nothing failed\n");
  } catch (const std::exception& error) {
    std::printf("caught: %s\n", error.what());
  }
}

// A part of the job fails on the culprit, while the other ranks have nothing under way in it and go
// on with the world.
int go_on_without_a_part(ls::Session& session,
                         const std::function<void(ls::CommunicatorPtr&)>& fail) {
  ls::CommunicatorPtr part = session.world()->split(0, session.rank());
  const Values values(session, 1000);
  part->all_reduce(values.buffer()).synchronize();
  session.world()->barrier().synchronize();  // it has ended on all ranks
  if (session.rank() == culprit(session)) fail(part);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the others hear of it
  session.world()->all_reduce(values.buffer()).synchronize();
  std::printf("rank %d went on to %g\n", session.rank(), values.last());
  return 0;
}

void receive_in_vain(ls::Communicator& group) {
  const ls::Tensor x = ls::ones({4}, {.device = group.device()});
  group
      .receive({x.data_ptr(), x.numel(), x.dtype()}, 0, {.timeout = std::chrono::milliseconds(300)})
      .synchronize();
}

void unwind_through(ls::CommunicatorPtr& group) {
  const ls::CommunicatorPtr own = std::move(group);
  throw std::runtime_error("a step that is tried again");
}

// The culprit gives up a part which the other ranks have left with their sessions, and still own.
int give_up_a_part_that_others_left(ls::Session& session) {
  const auto part = session.world()->split(0, session.rank());
  const Values values(session, 1000);
  part->all_reduce(values.buffer()).synchronize();
  if (session.rank() != culprit(session)) {
    kept_group() = part;
    return 0;
  }
  std::this_thread::sleep_for(std::chrono::seconds(1));
  part->abort("rank 1 gave up");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  return 0;
}

const std::map<std::string, std::function<int(ls::Session&)>> modes{
    {"unwaited", leave_unwaited},
    {"alone", [](ls::Session& s) { return call_alone(s, *s.world()); }},
    {"alone-in-part", call_alone_in_part},
    {"abort-idle-part",
     [](ls::Session& s) {
       return go_on_without_a_part(s, [](auto& part) { part->abort("not needed any more"); });
     }},
    {"unwind-idle-part",
     [](ls::Session& s) {
       return go_on_without_a_part(
           s, [](auto& part) { expect_failure([&] { unwind_through(part); }); });
     }},
    {"time-out-in-part",
     [](ls::Session& s) {
       return go_on_without_a_part(
           s, [](auto& part) { expect_failure([&] { receive_in_vain(*part); }); });
     }},
    {"give-up-left-part", give_up_a_part_that_others_left},
    {"sum", sum_ranks},
    {"sum-much", sum_much},
    {"sum-beside-command", sum_beside_a_command},
    {"threads", tell_threads},
    {"end-before", sum_ranks},
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
    {"fork-kill",
     [](ls::Session& s) {
       return train(s, [](auto&) {
         if (fork() == 0) {
           for (const int stream : {0, 1, 2}) close(stream);  // who reads them waits for no child
           sleep(20);
           _exit(0);
         }
         std::raise(SIGKILL);
       });
     }},
    {"segv", [](ls::Session& s) { return train(s, [](auto&) { std::raise(SIGSEGV); }); }},
    {"kill-alone",
     [](ls::Session& s) { return compute_alone(s, [](auto&) { std::raise(SIGKILL); }); }},
    {"throw-alone",
     [](ls::Session& s) {
       return compute_alone(s, [](auto&) { throw std::runtime_error("lonely"); });
     }},
    {"command-alone",
     [](ls::Session& s) {
       return compute_alone(s, [](auto&) {
         if (std::system(std::getenv("JOB_COMMAND")) != 0) std::abort();
       });
     }},
    {"thread",
     [](ls::Session& s) {
       return train(
           s, [](auto&) { std::thread([] { throw std::runtime_error("in a thread"); }).join(); });
     }},
    {"leave", [](ls::Session& s) { return leave_early(s, *s.world()); }},
    {"leave-part", leave_part_early},
    {"leave-kept-world", [](ls::Session& s) { return leave_with_kept_group(s, false); }},
    {"leave-kept-part", [](ls::Session& s) { return leave_with_kept_group(s, true); }},
    {"keep-pending", keep_pending},
    {"leave-receiver",
     [](ls::Session& s) {
       return leave_before_a_message(
           s, [&](const Values& v) { return s.world()->receive(v.buffer(), culprit(s)); });
     }},
    {"leave-sender",
     [](ls::Session& s) {
       return leave_before_a_message(
           s, [&](const Values& v) { return s.world()->send(v.buffer(), culprit(s)); });
     }},
    {"kill-at-exit", die_at_exit},
    {"stop", [](ls::Session& s) { return train(s, [](auto&) { std::raise(SIGSTOP); }); }},
    {"loop", [](ls::Session& s) { return train(s, [](auto&) { loop_for_ever(); }); }},
    {"slow", go_slowly},
    {"idle", be_idle},
    {"sigabrt", [](ls::Session& s) { return train(s, [](auto&) { std::abort(); }); }},
    {"terminate",
     [](ls::Session& s) { return compute_alone(s, [](auto&) { std::raise(SIGTERM); }); }},
    {"interrupt",
     [](ls::Session& s) { return compute_alone(s, [](auto&) { std::raise(SIGINT); }); }},
    {"interrupt-all", interrupt_all},
    {"stop-request", ls::testing::train_until_stopped},
    {"time-stop-request", ls::testing::time_stop_request},
    {"exit", [](ls::Session& s) { return train(s, [](auto&) { std::_Exit(0); }); }},
};

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGINT, SIG_DFL);  // a shell starts what runs in the background without it
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "uncaught") {
    ls::Session session(argc, argv);
    return train(session, [](auto&) { throw std::runtime_error("nobody catches this"); });
  }
  if (mode == "vanish") return vanish_while_joining();
  if (mode == "now") {
    ls::testing::note_event();
    return 0;
  }
  if (mode == "again") {
    try {
      const ls::Session refused(argc, argv, {.device = "no such device"});
    } catch (const ls::InvalidArgument& error) {
      std::printf("refused: %s\n", error.what());
    }
    const ls::Session session(argc, argv, {.device = "cpu"});
    session.world()->barrier().wait();
    return 0;
  }
  if (mode == "end-before") {
    // The others are on their way in by then: of what comes before it Open MPI takes no notice.
    std::this_thread::sleep_for(std::chrono::seconds(1));
    ls::testing::Ending ending(number_from("OMPI_COMM_WORLD_RANK", number_from("RANK", 0)));
    if (ending()) return 0;
  }
  auto all_modes = modes;
  all_modes.merge(ls::testing::disagreement_modes());
  for (const auto& [name, body] : ls::testing::training_modes())
    all_modes[name] = [body](ls::Session& s) { return body(s, culprit(s)); };
  for (const auto& [stage, body] : ls::testing::ending_stages())
    all_modes["end-" + stage] = [body](ls::Session& s) {
      ls::testing::Ending ending(s.rank());
      return body(s, ending) + ending.code();
    };
  const auto found = all_modes.find(mode);
  if (found == all_modes.end()) return 3;
  ls::SessionOptions options;
  if (const char* backend = std::getenv("JOB_COMM")) options.communicator.backend = backend;
  const int code = ls::Session::run(argc, argv, found->second, options);
  try {
    if (kept_group()) {
      ls::ones({1}, {.device = kept_group()->device()}).item();  // results can be read
      kept_group()->barrier();
    }
  } catch (const ls::InvalidArgument& error) {
    std::printf("afterwards: %s\n", error.what());
  }
  return code;
}
