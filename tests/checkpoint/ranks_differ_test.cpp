#include "checkpoint/ranks_differ.hpp"

#include <atomic>
#include <bit>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include "checkpoint/thread_job.hpp"

// Ranks that save otherwise than the others, and what all of them see of it.

namespace lockstep {
namespace {

using checkpoint::Manager, checkpoint::ManagerOptions, checkpoint::Piece, checkpoint::TensorState,
    checkpoint::Values, checkpoint::ValueState;
using ::testing::AllOf, ::testing::HasSubstr, ::testing::IsEmpty, ::testing::Not,
    ::testing::StartsWith;
namespace fs = std::filesystem;
using testing::run_job, testing::TemporaryFolder;

TEST_F(RanksDiffer, AStateThatThrowsOnOneRankFailsTheSaveOnAllAndNotTheNext) {
  run_job(2, [&](const CommunicatorPtr& group) {
    bool fails = group->rank() == 1;
    Manager manager(folder / "run", group);
    manager.add("state", ValueState{.values = [&]() -> Values {
                                      if (fails) throw Error("it is not ready");
                                      return {{"value", 1}};
                                    },
                                    .load = [](const Values&) {}});
    if (group->rank() == 1)
      EXPECT_THAT(error_of([&] { manager.save(1); }), HasSubstr("it is not ready"));
    else
      manager.save(1);
    EXPECT_FALSE(manager.wait());
    EXPECT_THAT(manager.error(), HasSubstr("rank 1: it is not ready"));
    fails = false;
    manager.save(2);
    EXPECT_TRUE(manager.wait()) << manager.error();
    EXPECT_EQ(manager.failed_saves(), 1);
  });
}

TEST_F(RanksDiffer, AStateMayThrowWhatIsNoException) {
  run_job(2, [&](const CommunicatorPtr& group) {
    Manager manager(folder / "run", group);
    bool fails = group->rank() == 1;
    auto net = nn::make<OneWeight>(Shape{1 << 16});
    manager.add("model", net);
    manager.add("state", ValueState{.values = [&]() -> Values {
                                      if (fails) throw 7;
                                      return {{"value", 1}};
                                    },
                                    .load =
                                        [&](const Values&) {
                                          if (fails) throw 7;
                                        }});
    if (fails)
      EXPECT_THROW(manager.save(1), int);
    else
      manager.save(1);
    const NoGradGuard no_recording;
    Tensor(net->weight).fill_(2.0);  // waits for no copy that never began
    EXPECT_FALSE(manager.wait());
    EXPECT_THAT(manager.error(), HasSubstr("rank 1: an unknown exception"));
    fails = false;
    manager.save(2);
    ASSERT_TRUE(manager.wait()) << manager.error();
    fails = group->rank() == 1;
    EXPECT_THAT(error_of([&] { manager.load_newest(); }),
                HasSubstr("rank 1: an unknown exception"));
  });
}

/// As long as it lives, no thread starts in this process: none has the room for its stack.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_getattr_default_np(&huge);
    pthread_attr_setstacksize(&huge, std::size_t{1} << 46);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

TEST_F(RanksDiffer, AThreadThatDoesNotStartOnOneRankFailsTheSaveOnAllAndNotTheNext) {
  run_job(2, [&](const CommunicatorPtr& group) {
    auto net = nn::make<OneWeight>(Shape{1 << 16});
    for (const bool has_copies : {false, true}) {  // the writer's thread; and the one that copies
      std::int64_t value = 1;
      Manager manager(folder / detail::concat("run-", has_copies), group);
      manager.add("value", value);
      if (has_copies) manager.add("model", net);
      if (group->rank() == 0) manager.save(1);
      group->barrier().synchronize();
      if (group->rank() == 1) {
        const NoThreads none;
        manager.save(1);
      }
      EXPECT_FALSE(manager.wait());
      EXPECT_THAT(manager.error(), HasSubstr("rank 1: "));
      EXPECT_THAT(manager.error(), HasSubstr("Resource temporarily unavailable"));
      EXPECT_EQ(manager.failed_saves(), 1);
      const NoGradGuard no_recording;
      Tensor(net->weight).fill_(2.0);  // waits for no copy that never began
      manager.save(2);
      ASSERT_TRUE(manager.wait()) << manager.error();
    }
  });
}

TEST_F(RanksDiffer, ThreadsThatDoNotStartKeepNobodyFromLoading) {
  run_job(2, [&](const CommunicatorPtr& group) {
    auto net = nn::make<OneWeight>(Shape{3 << 20});
    Manager manager(folder / "run", group);
    manager.add("model", net);
    manager.save(1);
    ASSERT_TRUE(manager.wait()) << manager.error();
    std::optional<NoThreads> none;
    if (group->rank() == 0) none.emplace();
    group->barrier().synchronize();
    EXPECT_EQ(manager.load_newest(), 1);
    group->barrier().synchronize();
  });
}

TEST_F(RanksDiffer, AStateThatThrowsBeforeASaveIsDueIsToldByTheSave) {
  run_job(2, [&](const CommunicatorPtr& group) {
    Manager manager(folder / "run", group, {.interval = checkpoint::SaveInterval::every_steps(2)});
    const auto pieces = [&]() -> std::vector<Piece> {
      if (group->rank() == 1) throw 7;
      return {};
    };
    manager.add("state", TensorState{.pieces = pieces, .load = [](const NamedTensors&) {}});
    EXPECT_FALSE(manager.save_if_due(1));
    if (group->rank() == 1)
      EXPECT_THROW(manager.save_if_due(2), int);
    else
      manager.save_if_due(2);
    EXPECT_FALSE(manager.wait());
    EXPECT_THAT(manager.error(), HasSubstr("rank 1: an unknown exception"));
  });
}

TEST_F(RanksDiffer, AStepThatIsNoneOnOneRankFailsTheSaveOnAll) {
  run_job(2, [&](const CommunicatorPtr& group) {
    Manager manager(folder / "run", group);
    if (group->rank() == 1)
      EXPECT_THAT(error_of([&] { manager.save(-1); }), HasSubstr("a checkpoint of step -1"));
    else
      manager.save(1);
    EXPECT_FALSE(manager.wait());
    EXPECT_THAT(manager.error(), HasSubstr("rank 1: a checkpoint of step -1"));
  });
}

TEST_F(RanksDiffer, ASaveThatOneRankLeavesOutFailsOnceThatHasLeft) {
  run_job(2, [&](const CommunicatorPtr& group) {
    std::int64_t value = 1;
    Manager manager(folder / "run", group);
    manager.add("value", value);
    if (group->rank() != 0) return;
    manager.save(1);
    EXPECT_FALSE(manager.wait());
    EXPECT_THAT(manager.error(), HasSubstr("all ranks must make the same calls"));
    EXPECT_THAT(manager.error(), HasSubstr("'a checkpoint, which all ranks save'"));
  });
}

TEST_F(RanksDiffer, OtherStepsOrStatesFailTheSaveOnAll) {
  run_job(2, [&](const CommunicatorPtr& group) {
    std::int64_t one = 1, other = 2;
    Manager manager(folder / "run", group);
    manager.add("one", one);
    manager.save(group->rank() + 1);
    EXPECT_FALSE(manager.wait());
    EXPECT_THAT(manager.error(), HasSubstr("rank 1: it would save step 2"));
    if (group->rank() == 1) manager.add("other", other);
    manager.save(3);
    EXPECT_FALSE(manager.wait());
    EXPECT_EQ(manager.error(), other_states("'other' was added on rank 1 but not on rank 0"));
    if (group->rank() == 0) manager.add("other", other);
    manager.save(3);
    EXPECT_TRUE(manager.wait()) << manager.error();
  });
}

// Ranks that have a replica ask each other when they save, the others' writers answer.
TEST_F(RanksDiffer, OtherStatesFailTheSaveOnAllWhoeverHasAReplica) {
  for (const unsigned with_replica : {1U, 2U, 3U, 7U}) {  // a bit for each rank
    std::atomic<int> thrown = 0;
    run_job(3, [&](const CommunicatorPtr& group) {
      const bool has_replica = ((with_replica >> group->rank()) & 1) == 1;
      auto net = nn::make<OneWeight>(Shape{4});
      DistributedDataParallel ddp(net, group);
      std::int64_t one = 1, two = 2;
      Manager manager(folder / detail::concat("run-", with_replica), group);
      has_replica ? manager.add("model", ddp) : manager.add("net", net);
      if (group->rank() != 2) manager.add("one", one);
      if (group->rank() == 2) manager.add("two", two);
      const std::string error = error_of([&] { manager.save(1); });
      EXPECT_FALSE(manager.wait());
      EXPECT_THAT(manager.error(), HasSubstr("'one' was added on ranks 0 and 1 but not on rank 2"));
      EXPECT_THAT(manager.error(), HasSubstr("'two' was added on rank 2 but not on ranks 0 and 1"));
      EXPECT_EQ(error, has_replica ? manager.error() : "nothing");
      if (error != "nothing") ++thrown;
    });
    EXPECT_EQ(thrown, std::popcount(with_replica));
  }
}

// As those of a mesh: the ranks of each have weights of their own under the same names.
TEST_F(RanksDiffer, ReplicasOfSeveralGroupsAreRefusedByAManagerOverAllAndSavedByOneOverEach) {
  run_job(4, [&](const CommunicatorPtr& group) {
    const auto part = group->split(group->rank() % 2, 0);
    auto net = nn::make<OneWeight>(Shape{4});
    {
      const NoGradGuard no_recording;
      net->weight.fill_(group->rank() % 2);
    }
    DistributedDataParallel ddp(net, part);
    Manager all(folder / "all", group);
    all.add("model", ddp);
    EXPECT_THAT(error_of([&] { all.save(1); }),
                AllOf(HasSubstr("'model of the replica over world/0.0' was added on ranks 0 and 2 "
                                "but not on ranks 1 and 3"),
                      HasSubstr("save each replica by a Manager over its ranks")));
    EXPECT_FALSE(all.wait());

    Manager own(folder / detail::concat("of-", group->rank() % 2), part);
    own.add("model", ddp);
    own.save(1);
    EXPECT_TRUE(own.wait()) << own.error();
    {
      const NoGradGuard no_recording;
      net->weight.fill_(7);
    }
    EXPECT_TRUE(own.load_newest().has_value());
    EXPECT_EQ(net->weight.to_vector<double>(), std::vector<double>(4, group->rank() % 2));
  });
}

// The module alone is compared, as nobody vouches for its values; a replica is not.
TEST_F(RanksDiffer, AReplicaOnOneRankAndItsModuleOnTheOthersAreRefusedOnAll) {
  run_job(2, [&](const CommunicatorPtr& group) {
    auto net = nn::make<OneWeight>(Shape{4});
    DistributedDataParallel ddp(net, group);
    Manager manager(folder / "run", group);
    group->rank() == 1 ? manager.add("model", ddp) : manager.add("model", net);
    const std::string refusal = error_of([&] {
      manager.save(1);
      EXPECT_FALSE(manager.wait());
    });
    EXPECT_THAT(refusal + manager.error(), HasSubstr("add what is wrapped with its wrapper"));
  });
}

TEST_F(RanksDiffer, ATensorThatIsNotAlikeIsNamed) {
  run_job(2, [&](const CommunicatorPtr& group) {
    const Shape second = group->rank() == 0 ? Shape{3, 4} : Shape{2, 6};
    auto one = nn::make<OneWeight>(Shape{5}), two = nn::make<OneWeight>(second);
    Manager manager(folder / "run", group);
    manager.add("one", one);
    manager.add("two", two);
    manager.save(1);
    EXPECT_FALSE(manager.wait());
    EXPECT_THAT(manager.error(),
                ::testing::MatchesRegex("rank 1: it would save .*\"weight\":.*2,6.* and rank 0 "
                                        ".*\"weight\":.*3,4.*"));
  });
}

TEST_F(RanksDiffer, AStateThatCannotSayWhetherItHasMoreFailsTheSaveOnAll) {
  run_job(2, [&](const CommunicatorPtr& group) {
    bool fails = group->rank() == 1;
    const auto none = [] { return std::vector<Piece>(); };
    Manager manager(folder / "run", group);
    manager.add("state", TensorState{.pieces = none,
                                     .load = [](const NamedTensors&) {},
                                     .more = none,
                                     .has_more = [&]() -> bool {
                                       if (fails) throw Error("it is not ready");
                                       return false;
                                     }});
    EXPECT_EQ(error_of([&] { manager.save(1); }), fails ? "it is not ready" : "nothing");
    EXPECT_FALSE(manager.wait());
    EXPECT_THAT(manager.error(), HasSubstr("rank 1: it is not ready"));
    fails = false;
    manager.save(2);
    EXPECT_TRUE(manager.wait()) << manager.error();
  });
}

TEST_F(RanksDiffer, AReplicasSaveThatOneRankLeavesOutFailsOnceThatHasLeft) {
  run_job(2, [&](const CommunicatorPtr& group) {
    auto net = nn::make<OneWeight>(Shape{4});
    DistributedDataParallel ddp(net, group);
    Manager manager(folder / "run", group);
    manager.add("model", ddp);
    if (group->rank() != 0) return;
    EXPECT_THAT(error_of([&] { manager.save(1); }),
                HasSubstr("'a checkpoint, which all ranks save'"));
    EXPECT_FALSE(manager.wait());
  });
}

TEST_F(RanksDiffer, PiecesThatTwoRanksHaveOrNoneFailTheSave) {
  run_job(2, [&](const CommunicatorPtr& group) {
    for (const std::int64_t begin : {2, 4}) {  // of rank 1: the third element twice, or no fourth
      Tensor part = ones({3});
      Manager manager(folder / detail::concat("run", begin), group);
      manager.add("parts",
                  TensorState{.pieces =
                                  [&] {
                                    const std::int64_t from = group->rank() * begin;
                                    return std::vector<Piece>{
                                        {.name = "w",
                                         .tensor = part,
                                         .range = parallel::ShardRange{{begin + 3}, from, 3}}};
                                  },
                              .load = [](const NamedTensors&) {}});
      manager.save(1);
      EXPECT_FALSE(manager.wait()) << begin;
      EXPECT_THAT(manager.error(), HasSubstr(begin == 2 ? "several ranks have" : "no rank has"));
    }
  });
}

TEST_F(RanksDiffer, AFolderThatOneRankDoesNotSeeIsRefusedOnAll) {
  run_job(2, [&](const CommunicatorPtr& group) {
    const auto refusal = [&](const std::string& of_second) {
      const fs::path own = folder / (group->rank() == 0 ? "run" : of_second);
      return error_of([&] { Manager(own, group, {.lock_seconds = 0}); });
    };
    EXPECT_THAT(refusal("elsewhere"),
                StartsWith("rank 1: " + (folder / "elsewhere").string() +
                           " is not there, though rank 0 has it: give all ranks the same folder"));
    if (group->rank() == 0) Manager(folder / "other", comm::make_thread_group(1)[0]);
    EXPECT_THAT(refusal("other"), StartsWith("rank 1: " + (folder / "other").string() +
                                             " is not the folder that rank 0 has"));
    EXPECT_EQ(refusal("other/../run"), "nothing");
  });
}

TEST_F(RanksDiffer, AFolderThatOneRankSeesNoMoreFailsTheSaveOnAll) {
  fs::create_directory(folder / "run");
  fs::create_directory_symlink(folder / "run", folder / "mount");
  run_job(2, [&](const CommunicatorPtr& group) {
    std::int64_t value = 1;
    Manager manager(folder / (group->rank() == 0 ? "run" : "mount"), group);
    manager.add("value", value);
    manager.save(1);
    EXPECT_TRUE(manager.wait()) << manager.error();
    if (group->rank() == 1) fs::remove(folder / "mount");
    manager.save(2);
    EXPECT_FALSE(manager.wait());
    EXPECT_THAT(manager.error(), HasSubstr("rank 1: " + (folder / "mount").string()));
    EXPECT_THAT(manager.error(), HasSubstr("give all ranks the same folder"));
  });
}

TEST_F(RanksDiffer, OtherOptionsAreRefusedOnAll) {
  run_job(2, [&](const CommunicatorPtr& group) {
    ManagerOptions options{.interval = checkpoint::SaveInterval::every_steps(group->rank() + 1)};
    EXPECT_THAT(error_of([&] { Manager(folder / "run", group, options); }), HasSubstr("rank 1"));
    options = {.keep_last = group->rank()};
    EXPECT_THAT(error_of([&] { Manager(folder / "run", group, options); }),
                HasSubstr("keep_last is 0"));
    options = {.keep_best = group->rank() == 0};
    EXPECT_THAT(error_of([&] { Manager(folder / "run", group, options); }),
                HasSubstr("keep_best is true on rank 0 but false on rank 1"));
    options = {};
    EXPECT_EQ(error_of([&] { Manager(folder / "run", group, options); }), "nothing");
  });
}

TEST_F(RanksDiffer, ShapesOfATensorAreToldWithItsName) {
  run_job(2, [&](const CommunicatorPtr& group) {
    Manager manager(folder / "run", group);
    Tensor own = ones({group->rank() == 0 ? 8 : 9}), other = ones({3});
    manager.add("alike", other);
    manager.add(
        "pieces",
        TensorState{.pieces = [&] { return std::vector<Piece>{{.name = "value", .tensor = own}}; },
                    .load = [](const NamedTensors&) {}});
    manager.save(1);
    EXPECT_FALSE(manager.wait());
    EXPECT_THAT(manager.error(), HasSubstr("in pieces"));
  });
}

}  // namespace
}  // namespace lockstep
