#include "checkpoint/run_folder.hpp"

#include <cerrno>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/contents.hpp"
#include "checkpoint/saved_number.hpp"
#include "checkpoint/thread_job.hpp"
#include "checkpoint/verification.hpp"
#include "io/file_calls.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/checkpoint/folder.hpp"
#include "lockstep/checkpoint/manager.hpp"
#include "lockstep/checkpoint/states.hpp"
#include "lockstep/io/sharded_safetensors.hpp"
#include "lockstep/nn/linear.hpp"
#include "lockstep/observe/log.hpp"
#include "runtime/background_failure.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

TEST(RunFolder, GivesEverySaveANameThatNoFolderHad) {
  const testing::TemporaryFolder folder;
  std::set<std::string> names;
  for (int job = 0; job < 2; ++job) {
    RunFolder run(folder / "run", 0);
    for (int save = 0; save < 2; ++save) EXPECT_TRUE(names.insert(run.begin(7)).second);
    run.discard();
    EXPECT_FALSE(fs::exists(run.saving()));
  }
}

TEST(RunFolder, WhatPruneTakesAwayIsNoCheckpointAnyMoreAndDeletedBehind) {
  const testing::TemporaryFolder folder;
  const auto deleting = folder / "run/.deleting-step-1";
  with_manager(folder, [&](Manager& manager, std::int64_t&) { manager.save(1); });
  with_manager(folder, [&](Manager& manager, std::int64_t&) { manager.save(2); });
  for (const bool is_told : {true, false}) {
    SCOPED_TRACE(is_told);
    std::filesystem::create_directory(folder / "run/step-1");
    folder.write("run/step-1/manifest.json", "{}");
    {
      RunFolder run(folder / "run", 0);
      run.prune({.keep_last = 1}, 2);
      EXPECT_THAT(testing::steps_in(folder / "run"), ::testing::ElementsAre(2));
      EXPECT_TRUE(std::filesystem::exists(deleting));
      if (is_told) {
        run.delete_left();
        EXPECT_FALSE(std::filesystem::exists(deleting));
      }
    }
    EXPECT_FALSE(std::filesystem::exists(deleting));
  }
}

TEST(RunFolder, HasNothingButCheckpointsBehindAManager) {
  const testing::TemporaryFolder folder;
  testing::run_job(1, [&](const CommunicatorPtr& group) {
    std::int64_t value = 4;
    Manager manager(folder / "run", group, {.keep_last = 1, .read_back = false});
    manager.add("value", value);
    for (const std::int64_t step : {1, 2, 2, 3}) {
      manager.save(step);
      ASSERT_TRUE(manager.wait()) << manager.error();
      EXPECT_THAT(testing::steps_in(folder / "run"), ::testing::ElementsAre(step));
    }
  });
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "run"))
    names.insert(entry.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{".lock", "latest", "step-3"}));
}

TEST(RunFolder, PruneLeavesTheBestUnlessItIsTold) {
  const testing::TemporaryFolder folder;
  testing::run_job(1, [&](const CommunicatorPtr& group) {
    std::int64_t value = 0;
    Manager manager(folder / "run", group, {.keep_last = 9});
    manager.add("value", value);
    for (const std::int64_t step : {1, 2, 3, 4}) manager.save(step, step == 2 ? 0.5 : 1);
    ASSERT_TRUE(manager.wait()) << manager.error();
  });
  prune(folder / "run", 1);
  EXPECT_THAT(testing::steps_in(folder / "run"), ::testing::UnorderedElementsAre(2, 4));
  prune(folder / "run", 1, /*keep_best=*/false);
  EXPECT_THAT(testing::steps_in(folder / "run"), ::testing::UnorderedElementsAre(4));
}

TEST(RunFolder, PruneDeletesWhatIsKnownToBeDamagedFirstAndVerifyForgetsItOfWhatIsWhole) {
  const testing::TemporaryFolder folder;
  testing::run_job(1, [&](const CommunicatorPtr& group) {
    std::int64_t value = 0;
    Manager manager(folder / "run", group, {.keep_last = 9});
    manager.add("value", value);
    for (const std::int64_t step : {1, 2, 3, 4}) manager.save(step, step == 3 ? 0.5 : 1);
    ASSERT_TRUE(manager.wait()) << manager.error();
  });
  const auto path = [&](int step) { return folder / ("run/step-" + std::to_string(step)); };
  for (const int step : {2, 3})
    note_verification(path(step), read_manifest(path(step)), Verification::damaged);
  EXPECT_EQ(best(folder / "run")->step, 1);
  EXPECT_THAT(verify(path(2)), ::testing::IsEmpty());
  EXPECT_FALSE(is_known_damaged(path(2)));
  prune(folder / "run", 3, /*keep_best=*/false);
  EXPECT_THAT(testing::steps_in(folder / "run"), ::testing::ElementsAre(1, 2, 4));
}

TEST(RunFolder, WithAnyBitOfLatestFlippedSaysSoAndGoesOnFromWhatWasSavedLast) {
  const testing::TemporaryFolder folder;
  std::string log;
  set_log_sink([&](std::string_view line) { log += line; });
  testing::run_job(1, [&](const CommunicatorPtr& group) {
    std::int64_t value = 0;
    Manager manager(folder / "run", group,
                    {.keep_last = 2, .asynchronous = false, .read_back = false});
    manager.add("value", value);
    for (const std::int64_t step : {7, 9, 3}) manager.save(value = step);  // the run went back
    ASSERT_THAT(testing::steps_in(folder / "run"), ::testing::ElementsAre(3, 9));
    EXPECT_THAT(verify_latest(folder / "run"), ::testing::IsEmpty());
    const std::string whole = testing::read_file(folder / "run/latest");
    for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
      std::string text = whole;
      text[bit / 8] = static_cast<char>(text[bit / 8] ^ 1 << bit % 8);
      folder.write("run/latest", text);
      ASSERT_EQ(verify_latest(folder / "run").size(), 1u) << bit;
      ASSERT_EQ(newest(folder / "run")->step, 3) << bit;
    }
    EXPECT_EQ(manager.load_newest(), 3);
    EXPECT_EQ(value, 3);
    EXPECT_THAT(log, ::testing::HasSubstr("latest is not what a save wrote"));
  });
  {  // the number of a save is that of its generation
    testing::run_job(1, [&](const CommunicatorPtr& group) {
      std::int64_t value = 0;
      Manager manager(folder / "run", group, {.asynchronous = false});
      manager.add("value", value);
      manager.save(1);
    });
    fs::remove(folder / "run/latest");
    EXPECT_EQ(newest(folder / "run")->step, 1);
    EXPECT_THAT(verify_latest(folder / "run"), ::testing::IsEmpty());
  }
  set_log_sink(nullptr);
}

TEST(RunFolder, ADamagedIndexIsDamageOfTheCheckpointToALoadToo) {
  const testing::TemporaryFolder folder;
  set_log_sink([](std::string_view) {});
  testing::run_job(1, [&](const CommunicatorPtr& group) {
    auto model = nn::make<nn::Linear>(3, 2);
    Manager manager(folder / "run", group, {.asynchronous = false});
    manager.add("model", model);
    for (const std::int64_t step : {1, 2}) manager.save(step);
    const std::string name = "run/step-2/model.safetensors.index.json";
    std::string text = testing::read_file(folder / name);
    text[9] = static_cast<char>(text[9] ^ 1);
    folder.write(name, text);
    EXPECT_THAT([&] { manager.load(folder / "run/step-2"); },
                ::testing::ThrowsMessage<CorruptData>(
                    ::testing::HasSubstr("model.safetensors.index.json is damaged in bit 0")));
    EXPECT_EQ(manager.load_newest(), 1);
  });
  set_log_sink(nullptr);
}

TEST(RunFolder, IsMadeDurablyWithTheFoldersAboveIt) {
  const testing::TemporaryFolder folder;
  static std::set<fs::path> synced;
  synced.clear();
  io::file_calls.fsync = [](int file) {
    synced.insert(fs::read_symlink("/proc/self/fd/" + std::to_string(file)));
    return ::fsync(file);
  };
  { const RunFolder run(folder / "runs/deep/a", 0); }
  io::file_calls = {};
  const auto base = fs::canonical(folder.path());
  EXPECT_THAT(synced, ::testing::IsSupersetOf({base, base / "runs", base / "runs/deep"}));
}

TEST(RunFolder, HasTheFormerCheckpointWhereLatestCannotBeWritten) {
  const testing::TemporaryFolder folder;
  with_manager(folder, [&](Manager& manager, std::int64_t& value) {
    manager.save(1);
    for (const std::int64_t step : {1, 2}) {  // over the same name, and under a new one
      value = 5;
      io::file_calls.rename = [](const char* from, const char* to) {
        const bool is_latest = fs::path(to).filename() == "latest";
        if (is_latest) errno = EIO;
        return is_latest ? -1 : ::rename(from, to);
      };
      manager.save(step);
      io::file_calls = {};
      EXPECT_FALSE(manager.wait());
      EXPECT_THAT(testing::steps_in(folder / "run"), ::testing::ElementsAre(1));
      EXPECT_EQ(manager.load_newest(), 1);
      EXPECT_EQ(value, 4) << step;
    }
  });
}

TEST(RunFolder, WhatIsNoCheckpointIsToldInOneLine) {
  const testing::TemporaryFolder folder;
  with_manager(folder, [&](Manager& manager, std::int64_t& value) {
    for (const std::int64_t step : {1, 2, 3, 4}) manager.save(step);
    const auto expect = [&](const char* name, const char* what) {
      const auto says = ::testing::AllOf(::testing::HasSubstr(what),
                                         ::testing::Not(::testing::HasSubstr("json.exception")),
                                         ::testing::Not(::testing::HasSubstr("\n")));
      value = 7;
      EXPECT_THAT([&] { manager.load(folder / name); },
                  ::testing::ThrowsMessage<CorruptData>(says));
      EXPECT_EQ(value, 7);
    };
    fs::create_directory(folder / "empty");
    folder.write("file", "text");
    const std::string manifest = testing::read_file(folder / "run/step-3/manifest.json");
    expect("nowhere", "nowhere is not there; give a checkpoint");
    expect("empty", "empty is no checkpoint: it has no manifest.json");
    expect("file", "file is no checkpoint but a file");
    expect("run", "run is a folder of checkpoints; give one of them, such as the newest, ");
    folder.write("run/step-3/manifest.json", manifest.substr(0, manifest.size() / 2));
    expect("run/step-3", "manifest.json is no JSON from byte ");
    folder.write("run/step-3/manifest.json", "{}");
    expect("run/step-3", "manifest.json is not as it was written: key 'format' not found");
    folder.write("run/step-3/manifest.json", manifest);
    folder.write("run/step-3/state.json", "{");
    expect("run/step-3", "state.json is 1 bytes long instead of ");
    fs::remove(folder / "run/step-4/state.json");
    fs::create_directory(folder / "run/step-4/state.json");
    expect("run/step-4", "state.json is no file");
  });
}

TEST(RunFolder, ACheckpointIsNone) {
  const testing::TemporaryFolder folder;
  with_manager(folder, [&](Manager& manager, std::int64_t&) { manager.save(1); });
  const fs::path checkpoint = folder / "run/step-1";
  const auto says = ::testing::ThrowsMessage<InvalidArgument>(
      ::testing::HasSubstr("step-1 is a checkpoint, not a folder of them"));
  testing::run_job(1, [&](const CommunicatorPtr& group) {
    EXPECT_THAT([&] { Manager(checkpoint, group); }, says);
  });
  EXPECT_THAT([&] { prune(checkpoint, 1); }, says);
  EXPECT_FALSE(fs::exists(checkpoint / ".lock"));
  EXPECT_TRUE(verify(checkpoint).empty());
  fs::create_directory(folder / "empty");
  prune(folder / "empty", 1);
  EXPECT_TRUE(fs::is_empty(folder / "empty")) << "a lock was left";
}

TEST(RunFolder, SaysThatWhatWasSavedLastIsNotThereAnyMore) {
  const testing::TemporaryFolder folder;
  with_manager(folder, [&](Manager& manager, std::int64_t& value) {
    for (const std::int64_t step : {1, 2}) manager.save(value = step);
    std::string log;
    set_log_sink([&](std::string_view line) { log += line; });
    EXPECT_EQ(manager.load_newest(), 2);
    EXPECT_EQ(log, "");
    fs::remove_all(folder / "run/step-2");
    EXPECT_EQ(manager.load_newest(), 1);
    EXPECT_EQ(value, 1);
    EXPECT_THAT(log, ::testing::HasSubstr("what was saved last, step-2, is not there any more"));
  });
}

TEST(RunFolder, SaysHowManyCheckpointsCannotBeLoaded) {
  const testing::TemporaryFolder folder;
  with_manager(folder, [&](Manager& manager, std::int64_t&) {
    for (const std::int64_t step : {1, 2}) manager.save(step);
    for (const char* step : {"step-1", "step-2"})
      folder.write("run/" + std::string(step) + "/state.json", "{");
    std::vector<std::string> log;
    set_log_sink([&](std::string_view line) { log.emplace_back(line); });
    EXPECT_THAT([&] { manager.load_newest(); },
                ::testing::ThrowsMessage<CorruptData>(::testing::AllOf(
                    ::testing::HasSubstr("none of the 2 checkpoints of "),
                    ::testing::HasSubstr("step-1/state.json is 1 bytes long instead of "))));
    EXPECT_THAT(log,
                ::testing::ElementsAre(::testing::HasSubstr("the checkpoint before is tried: ")));
  });
}

TEST(RunFolder, GetsNoCheckpointOnceAFailureIsKnownThatNobodyWasTold) {
  const testing::TemporaryFolder folder;
  with_manager(folder, [&](Manager& manager, std::int64_t& /*value*/) {
    manager.save(1);
    static std::uint64_t number;
    io::file_calls.make_folder = [](const char* path, mode_t mode) {  // behind the copy
      number = keep_background_failure([] { throw Error("the device was lost"); });
      return ::mkdir(path, mode);
    };
    manager.save(2);
    io::file_calls = {};
    EXPECT_EQ(manager.error(), "the device was lost");
    EXPECT_THAT(testing::steps_in(folder / "run"), ::testing::ElementsAre(1));
    forget_background_failure(number);
    manager.save(3);
    EXPECT_EQ(manager.error(), "");
    EXPECT_EQ(manager.load_newest(), 3);
  });
}

// Inference, or an evaluation, may read a checkpoint that is being saved anew.
TEST(RunFolder, SavingAStepAgainLeavesTheFilesThatOthersHaveOpenAsTheyWere) {
  using Opened = io::ShardedSafetensors;
  for (const bool exchanges : {true, false}) {
    SCOPED_TRACE(exchanges);
    const testing::TemporaryFolder folder;
    const auto layer = nn::make<nn::Linear>(64, 64);
    testing::run_job(1, [&](const CommunicatorPtr& group) {
      const NoGradGuard no_recording;
      Manager manager(folder / "run", group, {.asynchronous = false, .read_back = false});
      manager.add("model", *layer);
      const auto save = [&](float weight) {
        Tensor(layer->weight).fill_(weight);
        manager.save(1);
        ASSERT_EQ(manager.error(), "");
      };
      const auto weight_in = [](const Opened& opened) {
        return opened.tensor("weight").to_vector<float>();
      };
      save(1);
      const Opened first = Opened::open(folder / "run/step-1");
      if (!exchanges)
        io::file_calls.exchange = [](const char*, const char*) { return errno = EINVAL, -1; };
      save(2);
      io::file_calls = {};
      EXPECT_EQ(weight_in(first), std::vector<float>(64 * 64, 1));
      EXPECT_EQ(weight_in(Opened::open(folder / "run/step-1")), std::vector<float>(64 * 64, 2));
    });
  }
}

TEST(RunFolder, ThatHasVanishedIsTold) {
  const testing::TemporaryFolder folder;
  set_log_sink([](std::string_view) {});
  testing::run_job(2, [&](const CommunicatorPtr& group) {
    std::int64_t value = 0;
    Manager manager(folder / "run", group);
    manager.add("value", value);
    manager.save(1);
    ASSERT_TRUE(manager.wait()) << manager.error();
    const auto move = [&](const char* from, const char* to) {
      group->barrier().wait();
      if (group->rank() == 0) fs::rename(folder / from, folder / to);
      group->barrier().wait();
    };
    const auto is_gone = ::testing::AllOf(::testing::HasSubstr("run is gone: it was deleted"),
                                          ::testing::HasSubstr("put it back"));
    move("run", "elsewhere");
    manager.save(2);
    EXPECT_FALSE(manager.wait());
    EXPECT_THAT(manager.error(), is_gone);
    EXPECT_THAT([&] { manager.load_newest(); }, ::testing::ThrowsMessage<InvalidArgument>(is_gone));
    move("elsewhere", "run");
    manager.save(3);
    EXPECT_TRUE(manager.wait()) << manager.error();
    EXPECT_EQ(manager.load_newest(), 3);
  });
  set_log_sink(nullptr);
}

}  // namespace
}  // namespace lockstep::checkpoint
