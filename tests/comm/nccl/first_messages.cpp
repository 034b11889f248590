#include "comm/nccl/first_messages.hpp"

#include <cstdio>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include "comm/nccl/job_parts.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/runtime/stream.hpp"
#include "lockstep/tensor/factories.hpp"
#include "lockstep/tensor/tensor.hpp"
#include "lockstep/train/step_graph.hpp"

namespace lockstep::testing {
namespace {

Tensor filled(const Session& session, double value) {
  return full({64}, value, {.dtype = DType::f32, .device = session.device()});
}

// Sends this rank's number and receives the other's, as a batch on rank 0, one by one on rank 1.
double exchange_ranks(Session& session, Communicator& group) {
  const int rank = group.rank(), other = 1 - rank;
  const Tensor sent = filled(session, rank), received = filled(session, -1);
  if (rank == 0) {
    group
        .batch([&] {
          group.send(buffer_of(sent), other);
          group.receive(buffer_of(received), other);
        })
        .wait();
  } else {
    group.receive(buffer_of(received), other).wait();
    group.send(buffer_of(sent), other).wait();
  }
  return received.mean().item();
}

}  // namespace

int fail_before_first_message(Session& session) {
  const Tensor x = filled(session, 1);
  if (session.rank() == 1) {
    sleep(0.5);
    note_event();
    throw std::runtime_error("bad batch");
  }
  session.world()->send(buffer_of(x), 1).synchronize();
  return 0;
}

int leave_before_first_batch(Session& session) {
  const Tensor x = filled(session, 1), y = filled(session, 2);
  Communicator& world = *session.world();
  world.barrier().synchronize();
  if (session.rank() == 1) note_event();
  if (session.rank() == 2) sleep(60);
  if (session.rank() == 0)
    world
        .batch([&] {
          world.send(buffer_of(x), 2);
          world.receive(buffer_of(y), 1);
        })
        .synchronize();
  return 0;
}

int leave_after_first_message(Session& session) {
  const Tensor x = filled(session, 1);
  exchange_ranks(session, *session.world());
  if (session.rank() == 1) note_event();
  if (session.rank() == 0) session.world()->receive(buffer_of(x), 1).synchronize();
  return 0;
}

int ignore_first_message(Session& session) {
  const Tensor x = filled(session, 1);
  session.world()->barrier().synchronize();
  if (session.rank() == 1) sleep(60);
  session.world()->send(buffer_of(x), 1).synchronize();
  return 0;
}

int begin_on_threads(Session& session) {
  const auto one = session.world()->split(0, session.rank());
  const auto two = session.world()->split(0, session.rank());
  const auto three = session.world()->split(0, session.rank());
  const bool is_first = session.rank() == 0;
  const auto run = [&](Communicator& group, bool is_late) {
    const Stream stream(session.device());  // on one of both, each would wait for the other
    const StreamGuard guard(stream);
    if (is_late) sleep(0.2);
    std::printf("exchanged %g in %s\n", exchange_ranks(session, group), group.name().c_str());
  };
  const auto meet = [&] { three->barrier().synchronize(); };
  std::thread waiting;
  if (is_first) waiting = std::thread(meet);
  std::thread beside([&] { run(*two, is_first); });
  run(*one, !is_first);
  beside.join();
  if (!is_first) meet();
  if (waiting.joinable()) waiting.join();
  session.world()->barrier().synchronize();
  return 0;
}

int begin_in_captured_step(Session& session) {
  int calls = 0;
  StepGraph step(
      [&](std::span<const Tensor> in) {
        const Tensor sum = in[0] + in[0], received = filled(session, 0);
        Communicator& world = *session.world();
        world.all_reduce(buffer_of(sum)).wait();
        if (++calls == 1) return std::vector{sum};  // a warm-up without messages
        if (session.rank() == 0) {
          world
              .batch([&] {
                world.send(buffer_of(sum), 1);
                world.receive(buffer_of(received), 1);
              })
              .wait();
        } else {
          world.receive(buffer_of(received), 0).wait();
          world.send(buffer_of(sum), 0).wait();
        }
        return std::vector{received};
      },
      {.num_warmup_iters = 1, .group = session.world()});
  double value = 0;
  for (int i = 0; i < 5; ++i) value = step({filled(session, 1)})[0].mean().item();
  std::printf("got %g, %s %s\n", value, step.replayed() ? "replayed" : "eager",
              step.fallback_reason().c_str());
  return 0;
}

}  // namespace lockstep::testing
