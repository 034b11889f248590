#include "comm/jobs/disagreements.hpp"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>

#include <unistd.h>

#include "comm/jobs/values.hpp"

namespace lockstep::testing {
namespace {

using comm::ReduceOp;
using Call = std::function<comm::Work(Communicator&, const Values&)>;
using Mode = std::function<int(Session&)>;

constexpr std::int64_t count = 1000;

// What all ranks but one call.
comm::Work call_as_the_others(Communicator& group, const Values& values) {
  return group.all_reduce(values.first(count), {}, {.label = "bucket 3"});
}

// Rank 1 calls something else first of all.
Mode disagreeing(const Call& alone) {
  return [alone](Session& session) {
    const Values values(session, count + 1);
    const bool is_other = session.rank() == 1;
    if (is_other) happen(session, [](auto&) {});
    (is_other ? alone : call_as_the_others)(*session.world(), values).synchronize();
    return 0;
  };
}

comm::Work call_with_dtype(Communicator& group, const Values& values, DType dtype) {
  return group.all_reduce({values.buffer().data, count, dtype});
}

// Two arrays of other sizes, which rank 1 reduces the other way round.
int reduce_in_another_order(Session& session) {
  const Values values(session, count);
  const bool is_other = session.rank() == 1;
  if (is_other) happen(session, [](auto&) {});
  for (const std::int64_t size : {is_other ? 700 : 300, is_other ? 300 : 700})
    session.world()->all_reduce(values.first(size)).synchronize();
  return 0;
}

// Rank 1 leaves a collective out, and joins those that follow.
int leave_out_a_collective(Session& session) {
  const Values values(session, count);
  for (int step = 0; step < 5; ++step) {
    const bool leaves_out = session.rank() == 1 && step == 2;
    if (leaves_out) happen(session, [](auto&) {});
    if (!leaves_out) session.world()->all_reduce(values.buffer()).synchronize();
    session.world()->broadcast(values.first(10), 0).synchronize();
  }
  return 0;
}

// Stops this process, all its threads with it, for a second.
void be_suspended(Session&) {
  const std::string wake_up = "(sleep 1; kill -CONT " + std::to_string(getpid()) + ") &";
  if (std::system(wake_up.c_str()) == 0) std::raise(SIGSTOP);
}

// The last collective of all; rank 1, which means another by it, is suspended before it can leave.
int disagree_at_the_end(Session& session) {
  const Values values(session, count);
  const bool is_other = session.rank() == 1;
  session.world()
      ->all_reduce(values.buffer(), {}, {.label = is_other ? "bucket 4" : "bucket 3"})
      .synchronize();
  if (is_other) happen(session, be_suspended);
  return 0;
}

int receive_another_message(Session& session) {
  const Values values(session, count + 1);
  if (session.rank() == 0) session.world()->send(values.first(count), 1);
  happen(session, [](auto&) {});
  if (session.rank() == 1) session.world()->receive(values.buffer(), 0).synchronize();
  session.world()->barrier().synchronize();
  return 0;
}

// Of rank 2, which is in a collective.
comm::Work receive_instead(Communicator& group, const Values& values) {
  return group.receive(values.first(count), 2);
}

}  // namespace

std::map<std::string, Mode> disagreement_modes() {
  return {
      {"other-count", disagreeing([](Communicator& group, const Values& values) {
         return group.all_reduce(values.buffer());
       })},
      {"other-dtype", disagreeing([](Communicator& group, const Values& values) {
         return call_with_dtype(group, values, DType::i32);
       })},
      {"other-op", disagreeing([](Communicator& group, const Values& values) {
         return group.all_reduce(values.first(count), ReduceOp::max());
       })},
      {"other-collective",
       disagreeing([](Communicator& group, const Values&) { return group.barrier(); })},
      {"other-label", disagreeing([](Communicator& group, const Values& values) {
         return group.all_reduce(values.first(count), {}, {.label = "bucket 4"});
       })},
      {"message-for-collective", disagreeing(receive_instead)},
      {"other-order", reduce_in_another_order},
      {"missing-call", leave_out_a_collective},
      {"other-label-at-the-end", disagree_at_the_end},
      {"other-message", receive_another_message},
  };
}

}  // namespace lockstep::testing
