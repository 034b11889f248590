// One rank's updates differ, which the others hear of at the end of the job at the latest.

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>

#include "lockstep/optim/clip.hpp"
#include "lockstep/optim/sgd.hpp"
#include "parallel/one_rank_updates.hpp"

namespace lockstep::parallel::testing {
namespace {

/// Trains to the end, where the ranks must be found to differ. Returns the message.
std::string message_of_the_end(const Update& update) {
  return message_of([&] {
    comm::run_ranks(2, [&](Communicator& group) { train(group, update); }, {.timeout = 10s});
  });
}

TEST(OneRankAlone, ThatUpdatesByGradientsOfItsOwnIsToldHowAndEndsTheOthers) {
  const auto messages = messages_of_ranks([](Communicator& group) {
    Replica replica(make_net(1), share(group));
    optim::SGD optimizer(replica.named_parameters(), {.lr = 0.25});
    for (int step = 0; step < 2; ++step) {
      std::optional<Replica::NoSync> local;
      if (group.rank() == 1 && step == 1) local.emplace(replica.no_sync());
      const Batch batch = Batch::of_step(step);
      loss_of(replica(batch.x), batch).backward();
      optimizer.step();
      optimizer.zero_grad();
    }
  });
  for (const std::string& message : messages) EXPECT_THAT(message, Not(IsEmpty()));
  EXPECT_THAT(messages[1], HasSubstr("under no_sync()"));
}

/// The message of the end of a job in which one rank clips otherwise than the others.
std::string message_of_clipping(
    const std::function<void(std::span<const Tensor>, int rank)>& clip) {
  return message_of([&] {
    comm::run_ranks(2, [&](Communicator& group) {
      Replica replica(make_net(1), share(group));
      optim::SGD optimizer(replica.named_parameters(), {.lr = 0.25});
      const Batch batch = Batch::of_step(1).part(group.rank(), group.size());
      loss_of(replica(batch.x), batch).backward();
      const std::vector<Tensor> parameters = replica.parameters();
      clip(parameters, group.rank());
      optimizer.step();
    });
  });
}

TEST(OneRankAlone, ThatClipsToAnotherLimitIsRefused) {
  EXPECT_THAT(message_of_clipping([](std::span<const Tensor> parameters, int rank) {
                optim::clip_grad_norm_(parameters, rank == 0 ? 0.5 : 0.25);
              }),
              AllOf(HasSubstr("8 parameters after clip_grad_norm_ to 0.5, 8 parameters after"),
                    HasSubstr("8 parameters after clip_grad_norm_ to 0.25, 8 parameters after")));
  EXPECT_THAT(message_of_clipping([](std::span<const Tensor> parameters, int rank) {
                optim::clip_grad_value_(parameters, rank == 0 ? 0.5 : 0.25);
              }),
              AllOf(HasSubstr("clip_grad_value_ to 0.5"), HasSubstr("clip_grad_value_ to 0.25")));
}

TEST(OneRankAlone, ThatClipsIsRefused) {
  EXPECT_THAT(message_of_clipping([](std::span<const Tensor> parameters, int rank) {
                if (rank == 1) optim::clip_grad_norm_(parameters, 0.5, {.norm_type = 1});
              }),
              HasSubstr("clip_grad_norm_ to 0.5, norm_type 1"));
}

// Which changes nothing, nor does what each rank does to its own before they are averaged.
TEST(OneRankAlone, MayTakeANormAndClipGradientsOfItsOwn) {
  comm::run_ranks(2, [](Communicator& group) {
    Replica replica(make_net(1), share(group));
    optim::SGD optimizer(replica.named_parameters(), {.lr = 0.25});
    for (int step = 0; step < 3; ++step) {
      const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
      {
        const auto local = replica.no_sync();
        loss_of(replica(batch.x), batch).backward();
      }
      if (group.rank() == 1) optim::clip_grad_norm_(replica.parameters(), 0.01);
      loss_of(replica(batch.x), batch).backward();
      if (group.rank() == 0)
        optim::clip_grad_norm_(replica.parameters(), std::numeric_limits<double>::infinity());
      optimizer.step();
      optimizer.zero_grad();
    }
    expect_equal_replicas(group, replica.module());
  });
}

TEST(OneRankAlone, WithAnotherLearningRateInTheLastUpdateIsRefused) {
  const std::string message = message_of_the_end([](optim::AdamW& optimizer, int rank, int step) {
    if (rank == 1 && step == 4) optimizer.set_lr(0.5);
    optimizer.step();
  });
  EXPECT_THAT(message, AllOf(HasSubstr("rank 0 with '8 parameters after update 4 with lr 0.25"),
                             HasSubstr("rank 1 with '8 parameters after update 4 with lr 0.5")));
}

TEST(OneRankAlone, ThatLeavesOutTheLastUpdateIsRefused) {
  const std::string message = message_of_the_end([](optim::AdamW& optimizer, int rank, int step) {
    if (rank == 1 || step < 4) optimizer.step();
  });
  EXPECT_THAT(message, AllOf(HasSubstr("after update 3"), HasSubstr("after update 4")));
}

TEST(OneRankAlone, ThatNeverUpdatesIsRefused) {
  const std::string message = message_of([] {
    comm::run_ranks(2, [](Communicator& group) {
      Replica replica(make_net(1), share(group));
      optim::AdamW optimizer(replica.parameters(), {.lr = 0.25});
      const Batch batch = Batch::of_step(1);
      loss_of(replica(batch.x), batch).backward();
      if (group.rank() == 0) optimizer.step();
    });
  });
  EXPECT_THAT(message, AllOf(HasSubstr("after update 1"), HasSubstr("no parameter updated")));
}

// As one of static storage duration.
TEST(OneRankAlone, WhoseWrapperOutlivesTheJobDeclaresItsLastUpdateToo) {
  std::array<std::unique_ptr<Replica>, 2> replicas;
  const std::string message = message_of([&] {
    comm::run_ranks(2, [&](Communicator& group) {
      auto& replica = replicas[static_cast<std::size_t>(group.rank())];
      replica = std::make_unique<Replica>(make_net(1), share(group));
      optim::AdamW optimizer(replica->parameters(), {.lr = group.rank() == 0 ? 0.25 : 0.5});
      const Batch batch = Batch::of_step(1);
      loss_of((*replica)(batch.x), batch).backward();
      optimizer.step();
    });
  });
  EXPECT_THAT(message,
              AllOf(HasSubstr("update 1 with lr 0.25"), HasSubstr("update 1 with lr 0.5")));
}

TEST(OneRankAlone, ThatGivesUpAWrapperInAnExceptionDoesNotCountAsDifferent) {
  comm::run_ranks(2, [](Communicator& group) {
    try {
      train(group, [&](optim::AdamW& optimizer, int rank, int step) {
        if (rank == 1 && step == 4) throw std::runtime_error("enough");
        optimizer.step();
      });
    } catch (const std::runtime_error&) {
    }
    group.barrier().wait();
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
