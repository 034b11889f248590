// One rank of the jobs that nccl_jobs_test.cpp starts: does what its first argument says.

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>

#include "comm/nccl/first_messages.hpp"
#include "comm/nccl/job_parts.hpp"
#include "comm/nccl/stubborn_nccl.hpp"
#include "lockstep/comm/memory.hpp"
#include "lockstep/comm/session.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/parallel/reducer.hpp"
#include "lockstep/parallel/tensor_work.hpp"

namespace {

namespace ls = lockstep;
using ls::testing::buffer_of;
using ls::testing::note_event;
using ls::testing::sleep;
using ls::testing::StubbornNccl;
using Clock = std::chrono::steady_clock;

StubbornNccl& nccl() { return StubbornNccl::instance(); }

ls::Tensor ones(const ls::Session& session, std::int64_t count = 64) {
  return ls::ones({count}, {.dtype = ls::DType::f32, .device = session.device()});
}

void stop_if(bool is_stopped) {
  if (!is_stopped) return;
  sleep(0.3);
  note_event();
  std::raise(SIGSTOP);
}

// Rank 1 stops; rank 0 goes on to queue collectives until the queue is full.
int fill_queue(ls::Session& session) {
  const ls::Tensor x = ones(session);
  ls::Communicator& world = *session.world();
  world.all_reduce(buffer_of(x)).synchronize();
  stop_if(session.rank() == 1);
  nccl().launches_left = 100;
  for (int i = 0; i < 1500; ++i) world.all_reduce(buffer_of(x));
  return 0;
}

// Rank 1 stops; rank 0 waits for it in a part of the world, and its aborts do not come back.
int abort_that_waits(ls::Session& session) {
  const auto part = session.world()->split(0, session.rank());
  const ls::Tensor x = ones(session);
  part->all_reduce(buffer_of(x)).synchronize();
  stop_if(session.rank() == 1);
  nccl().abort_waits = true;
  part->all_reduce(buffer_of(x)).synchronize();
  return 0;
}

// Rank 0 aborts a group and goes on with other things; rank 1 waits in the group.
int abort_on_one_rank(ls::Session& session, bool in_part) {
  const auto part = session.world()->split(0, session.rank());
  const auto group = in_part ? part : session.world();
  const ls::Tensor x = ones(session);
  if (session.rank() == 0) {
    sleep(0.5);
    note_event();
    group->abort("the user gave up");
    sleep(60);
    return 0;
  }
  group->all_reduce(buffer_of(x)).synchronize();
  return 0;
}

// A hook throws on rank 0, which catches that and goes on with other things.
// Rank 0's backward fails, after its first gradient or before.
int fail_in_backward(ls::Session& session, bool before_gradients) {
  ls::Tensor w = ls::ones({64, 64}, {.dtype = ls::DType::f32, .device = session.device()});
  ls::Tensor v = ls::ones({64, 64}, {.dtype = ls::DType::f32, .device = session.device()});
  w.set_requires_grad(true);
  v.set_requires_grad(true);
  ls::parallel::Reducer reducer({{"w", w}, {"v", v}}, session.world());
  const ls::Tensor x = ls::ones({4, 64}, {.dtype = ls::DType::f32, .device = session.device()});
  try {
    ls::Tensor y, loss;
    {
      auto forward = reducer.record_forward(ls::parallel::Reducer::Mode::reduce);
      y = ls::matmul(ls::matmul(x, w), v);
      loss = y.sum();
    }
    if (session.rank() == 0) {
      (before_gradients ? y : w).register_hook([](const ls::Tensor&) -> ls::Tensor {
        throw std::runtime_error("bad batch");
      });
      note_event();
    }
    loss.backward();
    ls::synchronize(ls::current_stream(session.device()));
  } catch (const std::exception&) {
    if (session.rank() != 0) throw;
    sleep(60);
  }
  return 0;
}

// A backward fails on rank 1. All ranks catch that and make calls that differ, which are refused.
// Rank 1's failure may reach rank 0 while that makes its reducer.
int go_on_after_a_failed_backward(ls::Session& session) {
  ls::Tensor w = ones(session).set_requires_grad();
  std::optional<ls::parallel::Reducer> reducer;
  if (session.rank() == 1)
    w.register_hook([](const ls::Tensor&) -> ls::Tensor { throw std::runtime_error("bad batch"); });
  const auto is_refused = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const std::exception&) {
      return true;
    }
    return false;
  };
  const bool failed = is_refused([&] {
    reducer.emplace(std::vector<ls::parallel::NamedParameter>{{"w", w}}, session.world());
    ls::Tensor loss;
    {
      auto forward = reducer->record_forward(ls::parallel::Reducer::Mode::reduce);
      loss = (w * 2.0).sum();
    }
    loss.backward();
    ls::synchronize(ls::current_stream(session.device()));
  });
  const ls::Tensor x = ones(session);
  const bool refused = is_refused([&] {
    if (session.rank() == 0)
      session.world()->all_reduce(buffer_of(x)).wait();
    else
      session.world()->broadcast(buffer_of(x), 0).wait();
  });
  std::printf("rank %d: %s, %s\n", session.rank(), failed ? "failed" : "did not fail",
              refused ? "was refused" : "was not refused");
  return 0;
}

// Rank 0 drops its part of a group before rank 1 does, and both go on with the world.
int drop_early(ls::Session& session) {
  nccl().destroy_is_collective = true;
  const ls::Tensor x = ones(session);
  ls::CommunicatorPtr part = session.world()->split(0, session.rank());
  part->all_reduce(buffer_of(x)).synchronize();
  if (session.rank() == 0) part = nullptr;
  for (int i = 0; i < 3; ++i) session.world()->all_reduce(buffer_of(x)).synchronize();
  std::printf("rank %d went on\n", session.rank());
  return 0;
}

// The group fails while it splits; NCCL writes to where the new communicator was to go, which then
// has to be ended as well.
int fail_in_split(ls::Session& session) {
  const auto world = session.world();
  nccl().split_hangs = true;
  std::thread failure([&] {
    while (!nccl().split_slot.load()) sleep(0.001);
    sleep(0.1);
    world->abort("rank 1 failed");
  });
  char here = 0;
  try {
    world->split(0, 0);
  } catch (const ls::Error&) {
    const auto distance = static_cast<char*>(nccl().split_slot.load()) - &here;
    const bool is_on_stack = distance > -(1 << 16) && distance < (1 << 16);
    std::printf("NCCL writes %s\n", is_on_stack ? "to the stack" : "elsewhere");
  }
  failure.join();
  while (!nccl().split_has_written || !nccl().late_part_is_aborted) sleep(0.001);
  std::printf("rank %d ended the part\n", session.rank());
  return 0;
}

// The ranks call the collectives of two groups in one order, behind streams that differ.
int use_two_groups(ls::Session& session) {
  const ls::Device gpu = session.device();
  const ls::Tensor x = ones(session), y = ones(session);
  const ls::Tensor w = ls::ones({256, 256}, {.dtype = ls::DType::f32, .device = gpu});
  const auto a = session.world(), b = session.world()->split(0, session.rank());
  const ls::Stream one(gpu), two(gpu);
  ls::synchronize(ls::current_stream(gpu));
  {
    const ls::StreamGuard guard(session.rank() == 0 ? one : two);
    ls::Tensor v = w;
    for (int i = 0; i < 20; ++i) v = ls::matmul(v, w);
  }
  ls::comm::Work first, second;
  {
    const ls::StreamGuard guard(one);
    first = a->all_reduce(buffer_of(x));
  }
  {
    const ls::StreamGuard guard(two);
    second = b->all_reduce(buffer_of(y));
  }
  first.synchronize();
  second.synchronize();
  const char* const implicit = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  const char* const graphs = std::getenv("NCCL_GRAPH_REGISTER");
  std::printf(
      "rank %d began the one called %s first, with NCCL_LAUNCH_ORDER_IMPLICIT=%s and "
      "NCCL_GRAPH_REGISTER=%s\n",
      session.rank(), first.times()->started < second.times()->started ? "first" : "second",
      implicit ? implicit : "", graphs ? graphs : "");
  return 0;
}

// Counts what a rank does with other devices than its own.
int stay_on_own_device(ls::Session& session) {
  nccl().own_device = session.device().index;
  const ls::Tensor w = ls::ones({16, 4}, {.dtype = ls::DType::f32, .device = session.device()});
  const ls::Tensor x = ls::ones({8, 16}, {.dtype = ls::DType::f32, .device = session.device()});
  ls::matmul(x, w).sum().item<float>();
  std::thread([] { ls::empty_pinned({64}, ls::DType::f32); }).join();
  session.world()->barrier().synchronize();
  {  // whose memory is pinned by a thread of its own
    ls::checkpoint::Manager manager(std::getenv("JOB_FOLDER"), session.host_world());
    auto net = ls::nn::make<ls::nn::Linear>(512, 512);  // of which each rank has a part
    net->to(session.device());
    ls::DistributedDataParallel ddp(net, session.world());
    manager.add("model", ddp);
    manager.save(1);
    for (int i = 0; i < 100 && nccl().pinned_ranges == 0; ++i) sleep(0.1);
    manager.save(2);
    manager.wait();
    std::printf("rank %d pinned %d ranges\n", session.rank(), nccl().pinned_ranges.load());
  }
  std::printf("rank %d used other devices %d times\n", session.rank(),
              nccl().foreign_devices.load());
  return 0;
}

// Rank 0 leaves a group in whose collective rank 1 is, while rank 1's driver answers nobody.
int leave_while_the_driver_waits(ls::Session& session) {
  ls::CommunicatorPtr part = session.world()->split(0, session.rank());
  const ls::Tensor x = ones(session);
  part->all_reduce(buffer_of(x)).synchronize();
  session.world()->barrier().synchronize();
  if (session.rank() == 1) {
    const auto work = part->all_reduce(buffer_of(x));
    sleep(0.3);
    nccl().driver_waits = true;
    sleep(30);
    std::_Exit(1);
  }
  sleep(1);
  part = nullptr;
  sleep(7);
  std::printf("rank 0 hears of rank 1\n");
  std::fflush(stdout);
  std::_Exit(0);
}

// Rank 1 never comes to a collective in which rank 0 is, whose driver answers nobody meanwhile.
int time_out_while_the_driver_waits(ls::Session& session) {
  const ls::Tensor x = ones(session);
  session.world()->all_reduce(buffer_of(x)).synchronize();
  if (session.rank() == 0) {
    nccl().driver_waits = true;
    note_event();
    session.world()->all_reduce(buffer_of(x)).synchronize();
  }
  sleep(60);
  return 0;
}

// Gives the GPU something to do, for so many seconds, before what comes next on the stream.
void keep_busy(ls::StreamRef stream, int seconds) {
  const auto rest = [](void* time) {
    sleep(static_cast<double>(reinterpret_cast<std::intptr_t>(time)));
  };
  cudaLaunchHostFunc(static_cast<cudaStream_t>(stream.handle), rest,
                     reinterpret_cast<void*>(static_cast<std::intptr_t>(seconds)));
}

// Rank 0 sends and leaves; rank 1 takes the message behind work that takes its GPU a second.
int send_and_leave(ls::Session& session) {
  nccl().sends_are_buffered = true;
  const ls::Tensor x = ones(session);
  ls::CommunicatorPtr part = session.world()->split(0, session.rank());
  if (session.rank() == 0) {
    part->send(buffer_of(x), 1);
    part = nullptr;
  } else {
    const auto start = Clock::now();
    keep_busy(ls::current_stream(session.device()), 1);
    const auto work = part->receive(buffer_of(x), 0);
    ls::synchronize(ls::current_stream(session.device()));
    const std::chrono::duration<double> took = Clock::now() - start;
    work.synchronize();
    std::printf("received behind %s work\n", took.count() > 0.7 ? "long" : "short");
  }
  session.world()->barrier().synchronize();
  return 0;
}

// A collective that nobody waits for, of which each rank's GPU is seconds away.
void call_behind_long_work(ls::Session& session, ls::Communicator& group) {
  static const ls::Tensor x = ones(session);
  group.all_reduce(buffer_of(x)).synchronize();
  keep_busy(ls::current_stream(session.device()), 4);
  group.all_reduce(buffer_of(x)).wait();
}

int end_behind_long_work(ls::Session& session) {
  call_behind_long_work(session, *session.world());
  return 0;
}

int drop_behind_long_work(ls::Session& session) {
  ls::CommunicatorPtr part = session.world()->split(0, session.rank());
  call_behind_long_work(session, *part);
  part = nullptr;
  const ls::Tensor x = ones(session);
  session.world()->all_reduce(buffer_of(x)).synchronize();
  std::printf("rank %d went on to %g\n", session.rank(), x.mean().item());
  return 0;
}

// A collective that nobody waits for, in a group that is aborted meanwhile.
int drop_failed_work(ls::Session& session) {
  if (session.rank() == 1) {
    sleep(1);
    return 0;
  }
  const ls::Tensor x = ones(session, 1 << 16);
  {
    const auto work = ls::parallel::all_reduce_async(x, *session.world());
    sleep(0.1);
    session.world()->abort("enough");
  }
  ls::full({1 << 16}, 7.0, {.device = session.device()});  // perhaps where the result was
  sleep(0.3);
  std::printf("went on\n");
  std::fflush(stdout);
  return 0;
}

// The operand of a call within a batch is made on another stream than the batch is.
int batch_on_a_stream(ls::Session& session) {
  const ls::Stream other(session.device());
  ls::Tensor x;
  ls::comm::Communicator& world = *session.world();
  world
      .batch([&] {
        const ls::StreamGuard guard(other);
        x = ones(session, 1 << 16);
        world.all_reduce(buffer_of(x));
      })
      .wait();
  std::printf("sum %g\n", x.sum().item());
  ls::synchronize(ls::current_stream(session.device()));
  return 0;
}

std::unique_ptr<ls::comm::Registration> register_pages(ls::Communicator& group, int pages,
                                                       ls::Tensor& memory) {
  const std::size_t page = ls::comm::registration_granularity(group);
  memory = ls::zeros({static_cast<std::int64_t>((2 * pages + 1) * page)},
                     {.dtype = ls::DType::u8, .device = memory.device()});
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data_ptr());
  const std::uintptr_t begin = (address + page - 1) / page * page;
  std::vector<ls::comm::MemoryRange> ranges;
  for (int i = 0; i < pages; ++i)
    ranges.push_back({reinterpret_cast<void*>(begin + 2 * i * page), page});
  return ls::comm::register_memory(group, ranges);
}

// An abort does not come back while a registration of several pieces ends.
int end_registration_of_a_failed_group(ls::Session& session) {
  const auto part = session.world()->split(0, session.rank());
  ls::Tensor memory = ones(session);
  auto registration = register_pages(*part, 6, memory);
  std::printf("rank %d %s\n", session.rank(), registration ? "registered" : "went on without");
  if (!registration) return 0;
  nccl().abort_waits = true;
  part->abort("the test ends it");
  const auto start = Clock::now();
  registration.reset();
  const std::chrono::duration<double> took = Clock::now() - start;
  std::printf("rank %d waited %s\n", session.rank(), took.count() < 4 ? "once" : "for each");
  nccl().abort_waits = false;
  return 0;
}

// A wrapper with registered buckets ends while its captured step runs.
int end_registration_in_a_launch(ls::Session& session) {
  const ls::Device gpu = session.device();
  static std::atomic<int> seconds{0};
  auto net = ls::nn::make<ls::nn::Linear>(64, 64);
  net->to(gpu);
  std::optional<ls::DistributedDataParallel<ls::nn::Linear>> replica;
  replica.emplace(net, session.world(),
                  ls::DistributedDataParallelOptions{.register_buckets = true});
  ls::StepGraph step(
      [&](std::span<const ls::Tensor> in) {
        const ls::StreamRef stream = ls::current_stream(gpu);
        cudaLaunchHostFunc(
            static_cast<cudaStream_t>(stream.handle), [](void*) { sleep(seconds); }, nullptr);
        const ls::Tensor loss = (*replica)(in[0]).sum();
        loss.backward();
        return std::vector{loss.detach()};
      },
      {.num_warmup_iters = 2, .group = session.world()});
  const ls::Tensor x = ls::ones({4, 64}, {.dtype = ls::DType::f32, .device = gpu});
  for (int i = 0; i < 5; ++i) step({x});
  ls::synchronize(ls::current_stream(gpu));
  seconds = 3;
  step({x});
  const auto start = Clock::now();
  replica.reset();
  const std::chrono::duration<double> took = Clock::now() - start;
  std::printf("rank %d: the step %s, %s\n", session.rank(),
              step.replayed() ? "was replayed" : "ran eagerly",
              took.count() > 0.5 ? "waited for" : "not waited for");
  ls::synchronize(ls::current_stream(gpu));
  return 0;
}

void order(ls::StreamRef earlier, ls::StreamRef later) {
  ls::Event end(earlier.device);
  end.record(earlier);
  end.wait(later);
}

// A model whose gradients were made on another stream is wrapped.
int wrap_after_backward(ls::Session& session) {
  const ls::Device gpu = session.device();
  const ls::Stream other(gpu);
  auto model = ls::nn::make<ls::nn::Linear>(50, 50);
  model->to(gpu);
  order(ls::current_stream(gpu), other);
  {
    const ls::StreamGuard guard(other);
    ls::sum(model(ls::ones({4, 50}, {.device = gpu}))).backward();
  }
  order(other, ls::current_stream(gpu));
  const ls::DistributedDataParallel<ls::nn::Linear> replica(model, session.world());
  std::printf("gradient %g\n", model->weight.grad().mean().item());
  return 0;
}

const std::map<std::string, std::function<int(ls::Session&)>> modes{
    {"fill-queue", fill_queue},
    {"abort-that-waits", abort_that_waits},
    {"abort-world", [](ls::Session& s) { return abort_on_one_rank(s, false); }},
    {"abort-part", [](ls::Session& s) { return abort_on_one_rank(s, true); }},
    {"fail-before-first-message", ls::testing::fail_before_first_message},
    {"leave-before-first-batch", ls::testing::leave_before_first_batch},
    {"leave-after-first-message", ls::testing::leave_after_first_message},
    {"ignore-first-message", ls::testing::ignore_first_message},
    {"begin-on-threads", ls::testing::begin_on_threads},
    {"begin-in-captured-step", ls::testing::begin_in_captured_step},
    {"fail-in-backward", [](ls::Session& s) { return fail_in_backward(s, false); }},
    {"fail-before-gradients", [](ls::Session& s) { return fail_in_backward(s, true); }},
    {"go-on-after-failure", go_on_after_a_failed_backward},
    {"drop-early", drop_early},
    {"fail-in-split", fail_in_split},
    {"two-groups", use_two_groups},
    {"leave-while-the-driver-waits", leave_while_the_driver_waits},
    {"time-out-while-the-driver-waits", time_out_while_the_driver_waits},
    {"own-device", stay_on_own_device},
    {"send-and-leave", send_and_leave},
    {"end-behind-long-work", end_behind_long_work},
    {"drop-behind-long-work", drop_behind_long_work},
    {"drop-failed-work", drop_failed_work},
    {"batch-on-a-stream", batch_on_a_stream},
    {"end-registration-of-a-failed-group", end_registration_of_a_failed_group},
    {"end-registration-in-a-launch", end_registration_in_a_launch},
    {"wrap-after-backward", wrap_after_backward},
};

}  // namespace

int main(int argc, char** argv) {
  const auto found = modes.find(argc > 1 ? argv[1] : "");
  if (found == modes.end()) return 3;
  ls::SessionOptions options;
  if (const char* const limit = std::getenv("JOB_LEAVE_TIMEOUT"))
    options.communicator.leave_timeout = std::chrono::seconds(std::atoi(limit));
  return ls::Session::run(argc, argv, found->second, options);
}
