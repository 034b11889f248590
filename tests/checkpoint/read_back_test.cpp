#include "checkpoint/read_back.hpp"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/contents.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/thread_job.hpp"
#include "checkpoint/verification.hpp"
#include "io/file_calls.hpp"
#include "lockstep/checkpoint/folder.hpp"
#include "lockstep/checkpoint/manager.hpp"
#include "lockstep/io/crc32c.hpp"
#include "lockstep/nn/linear.hpp"
#include "lockstep/observe/log.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::checkpoint {
namespace {

using ::testing::ElementsAre, testing::steps_in;

/// What reading a file of tensors comes to.
enum class Reads { well, with_a_flipped_bit, not_at_all, damaged_and_then_not_at_all, once_not };

/// Disks of that kind, and what is logged meanwhile.
class ReadBackTest : public ::testing::Test {
 protected:
  ReadBackTest() {
    reads = Reads::well;
    hung = 0;
    log.clear();
    set_log_sink([](std::string_view line) {
      const std::lock_guard lock(mutex);
      log += line;
    });
    io::file_calls.pread = [](int file, void* data, std::size_t size, off_t offset) {
      const ssize_t count = ::pread(file, data, size, offset);
      const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file));
      if (path.extension() != ".safetensors") return count;
      const auto hangs = [&] {
        return reads == Reads::not_at_all ||
               (reads == Reads::damaged_and_then_not_at_all && offset > 0);
      };
      if (hangs()) {
        ++hung;
        while (hangs()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        --hung;
      }
      if (reads == Reads::once_not) {
        reads = Reads::well;
        errno = EIO;
        return ssize_t{-1};
      }
      const bool is_header = offset != 0 || count <= 8;
      if (reads != Reads::well && !is_header) static_cast<char*>(data)[count - 1] ^= 1;
      return count;
    };
  }
  ~ReadBackTest() override {
    io::file_calls = {};
    set_log_sink(nullptr);
  }

  static std::string logged() {
    const std::lock_guard lock(mutex);
    return log;
  }
  /// A checkpoint of one file of two blocks, by a save of that number.
  std::filesystem::path write_checkpoint(std::uint64_t save = 1) const {
    const std::string bytes(2 * block_bytes, 'x');
    const std::uint32_t sum =
        io::crc32c(std::as_bytes(std::span(bytes).first(std::size_t{block_bytes})));
    const Manifest manifest{
        .step = 1,
        .generation = 1,
        .save = save,
        .version = "1",
        .metric = {},
        .files = {{.name = "a.safetensors", .size = bytes.size(), .checksums = {sum, sum}}}};
    std::filesystem::create_directories(folder_ / "step-1");
    folder_.write("step-1/a.safetensors", bytes);
    folder_.write("step-1/manifest.json", write_manifest(manifest));
    return folder_ / "step-1";
  }
  template <class Condition>
  static void wait_until(const Condition& condition) {
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::seconds(10 * testing::timeout_multiplier);
    while (!condition() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(condition());
  }

  const testing::TemporaryFolder folder_;
  static inline std::atomic<Reads> reads;
  static inline std::atomic<int> hung;

 private:
  static inline std::mutex mutex;
  static inline std::string log;
};

TEST_F(ReadBackTest, TheNewestWholeCheckpointStaysUntilANewerOneIsKnownToBe) {
  testing::run_job(2, [&](const CommunicatorPtr& group) {
    auto model = nn::make<nn::Linear>(3, 2);
    Manager manager(folder_ / "run", group, {.keep_last = 2, .asynchronous = false});
    manager.add("model", model);
    const auto on_first = [&](const auto& body) {
      group->barrier().wait();
      if (group->rank() == 0) body();
      group->barrier().wait();
    };
    const auto save = [&](std::int64_t step, const auto& steps) {
      manager.save(step);
      EXPECT_EQ(manager.error(), "");
      on_first([&] { EXPECT_THAT(steps_in(folder_ / "run"), steps); });
    };
    const auto save_and_read_back = [&](std::int64_t step, const auto& steps) {
      save(step, steps);
      wait_until([&] { return manager.is_read_back(); });
    };
    save_and_read_back(2, ElementsAre(2));
    on_first([] { reads = Reads::with_a_flipped_bit; });
    save(4, ElementsAre(2, 4));
    on_first([] {
      wait_until([] { return logged().find("step-4 is damaged: ") != std::string::npos; });
      EXPECT_THAT(logged(), ::testing::HasSubstr("model-00001-of-00001.safetensors is damaged in "
                                                 "bit 0 of byte 4127: tensor 'weight'"));
      reads = Reads::well;
    });
    save_and_read_back(6, ElementsAre(2, 6));
    EXPECT_EQ(manager.failed_saves(), 1);
    on_first([] { reads = Reads::not_at_all; });
    save(8, ElementsAre(6, 8));
    on_first([] { wait_until([] { return hung == 1; }); });
    save(10, ElementsAre(6, 8, 10));  // none waits for it
    save(12, ElementsAre(6, 10, 12));
    on_first([] { reads = Reads::well; });
  });
}

TEST_F(ReadBackTest, ALoadedCheckpointIsWholeAndOnesOfOtherRunsAreOthers) {
  testing::run_job(1, [&](const CommunicatorPtr& group) {
    auto model = nn::make<nn::Linear>(3, 2);
    const auto begin = [&](const char* name) {
      auto manager = std::make_unique<Manager>(
          folder_ / name, group,
          ManagerOptions{.keep_last = 1, .asynchronous = false, .read_back = name[0] == 'r'});
      manager->add("model", model);
      return manager;
    };
    const auto other = begin("other");
    other->save(1);
    begin("run")->save(1);
    reads = Reads::well;
    {
      const auto manager = begin("run");
      manager->load(folder_ / "other/step-1");
      reads = Reads::not_at_all;
      manager->save(2);
      EXPECT_THAT(steps_in(folder_ / "run"), ElementsAre(2));
      reads = Reads::well;
    }
    const auto manager = begin("run");
    EXPECT_EQ(manager->load_newest(), 2);
    reads = Reads::not_at_all;
    for (const std::int64_t step : {3, 4, 5}) manager->save(step);
    EXPECT_THAT(steps_in(folder_ / "run"), ElementsAre(2, 5));
    reads = Reads::well;
    manager->load(folder_ / "run/step-2");
    manager->save(3);  // the run went back
    EXPECT_THAT(steps_in(folder_ / "run"), ElementsAre(2, 3));
  });
}

TEST_F(ReadBackTest, TheFirstDamageEndsReading) {
  ReadBack read_back;
  reads = Reads::damaged_and_then_not_at_all;
  read_back.start(write_checkpoint(), 1, 0, 1, 0);
  wait_until([&] { return read_back.finding().damaged() == 1; });
  EXPECT_EQ(hung, 0);
  reads = Reads::well;
}

TEST_F(ReadBackTest, DamageThatWasFoundIsToldThoughReadingWasCancelled) {
  ReadBack read_back;
  reads = Reads::not_at_all;
  read_back.start(write_checkpoint(), 1, 0, 1, 0);
  wait_until([] { return hung == 1; });
  read_back.cancel();
  read_back.start(folder_ / "step-2", 2, 0, 1, 0);
  reads = Reads::with_a_flipped_bit;
  wait_until([&] { return read_back.finding().damaged() == 1; });
  read_back.forget_last();
  EXPECT_EQ(read_back.finding().damaged(), 1);
  wait_until([] { return logged().find("step-1 is damaged") != std::string::npos; });
  read_back.forget_damage(1);
  EXPECT_EQ(read_back.finding().damaged(), std::nullopt);
}

TEST_F(ReadBackTest, TheNextIsReadThoughAWarningIsStillBeingWritten) {
  static std::atomic<bool> is_written, is_slow;
  is_written = false;
  is_slow = true;
  set_log_sink([](std::string_view) {
    is_written = true;
    while (is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  ReadBack read_back;
  reads = Reads::with_a_flipped_bit;
  const auto checkpoint = write_checkpoint();
  read_back.start(checkpoint, 1, 0, 1, 0);
  wait_until([] { return is_written.load(); });
  reads = Reads::well;
  std::thread writes([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    is_slow = false;
  });
  read_back.start(checkpoint, 1, 0, 1, 0);
  wait_until([&] { return read_back.is_whole(); });
  writes.join();
}

TEST_F(ReadBackTest, OneThatWasReplacedMeanwhileIsNotDamaged) {
  {
    ReadBack read_back(std::chrono::minutes(1));
    reads = Reads::not_at_all;
    read_back.start(write_checkpoint(), 1, 0, 1, 0);
    wait_until([] { return hung == 1; });
    write_checkpoint(2);
    reads = Reads::with_a_flipped_bit;
  }
  EXPECT_EQ(logged(), "");
}

TEST_F(ReadBackTest, AnErrorThatPassesIsNone) {
  ReadBack read_back;
  reads = Reads::once_not;
  read_back.start(write_checkpoint(), 1, 0, 1, 0);
  wait_until([&] { return read_back.is_whole(); });
  EXPECT_EQ(logged(), "");
}

TEST_F(ReadBackTest, TheTimeOfOneThatWasCancelledCountsTwice) {
  ReadBack read_back;
  reads = Reads::not_at_all;
  read_back.start(write_checkpoint(), 1, 0, 1, 0);
  wait_until([] { return hung == 1; });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  read_back.cancel();
  EXPECT_GE(read_back.seconds(), 0.1);
  reads = Reads::well;
}

TEST_F(ReadBackTest, NobodyWaitsForOneThatHangs) {
  {
    ReadBack read_back(std::chrono::milliseconds(10));
    reads = Reads::not_at_all;
    read_back.start(write_checkpoint(), 1, 0, 1, 0);
    wait_until([] { return hung == 1; });
  }
  EXPECT_THAT(logged(), ::testing::HasSubstr("hangs"));
  reads = Reads::well;
  wait_until([] { return hung == 0; });
}

TEST_F(ReadBackTest, DamageIsNotedAtOnceForThoseWhoStartAgain) {
  const auto checkpoint = write_checkpoint();
  ReadBack read_back;
  reads = Reads::with_a_flipped_bit;
  read_back.start(checkpoint, 1, 0, 1, 0);
  wait_until([] { return logged().find("step-1 is damaged") != std::string::npos; });
  EXPECT_TRUE(is_known_damaged(checkpoint));
  write_checkpoint(2);
  EXPECT_FALSE(is_known_damaged(checkpoint));
}

TEST_F(ReadBackTest, AFullDiskForANoteIsToldAndTheDamageCounts) {
  const auto checkpoint = write_checkpoint();
  ReadBack read_back;
  io::file_calls.write = [](int, const void*, size_t) {
    errno = ENOSPC;
    return ssize_t{-1};
  };
  reads = Reads::with_a_flipped_bit;
  read_back.start(checkpoint, 1, 0, 1, 0);
  wait_until([] {
    return logged().find("who starts the run again will not know it: ") != std::string::npos;
  });
  EXPECT_EQ(read_back.finding().damaged(), 1);
  EXPECT_FALSE(is_known_damaged(checkpoint));
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint))
    EXPECT_EQ(entry.path().string().find("verification"), std::string::npos) << entry.path();
}

// The damaged one is that of the smallest metric; the ranks know of it, but end before a save.
TEST_F(ReadBackTest, ARunThatIsStartedAgainKnowsWhichCheckpointsAreDamaged) {
  const auto with_manager = [&](const auto& body) {
    testing::run_job(2, [&](const CommunicatorPtr& group) {
      auto model = nn::make<nn::Linear>(3, 2);
      Manager manager(folder_ / "run", group,
                      {.keep_last = 1, .keep_best = true, .asynchronous = false});
      manager.add("model", model);
      body(manager, *group);
      group->barrier().wait();
    });
  };
  with_manager([&](Manager& manager, comm::Communicator& group) {
    manager.save(1, 0.5);
    wait_until([&] { return manager.is_read_back(); });
    group.barrier().wait();
    reads = Reads::with_a_flipped_bit;
    manager.save(2, 0.1);
    wait_until([] { return logged().find("step-2 is damaged") != std::string::npos; });
  });
  EXPECT_EQ(best(folder_ / "run")->step, 1);
  reads = Reads::not_at_all;  // a start that never has the time
  with_manager([&](Manager& manager, comm::Communicator& group) {
    for (const std::int64_t step : {3, 4}) manager.save(step, 0.9);
    if (group.rank() == 0) {
      EXPECT_THAT(steps_in(folder_ / "run"), ElementsAre(1, 4));
    }
    group.barrier().wait();
    reads = Reads::well;
  });
}

TEST_F(ReadBackTest, OneThatLoadsIsNotDamagedWhateverWasRead) {
  testing::run_job(1, [&](const CommunicatorPtr& group) {
    auto model = nn::make<nn::Linear>(3, 2);
    const auto with_manager = [&](const auto& body) {
      Manager manager(folder_ / "run", group, {.asynchronous = false});
      manager.add("model", model);
      body(manager);
    };
    with_manager([&](Manager& manager) {
      manager.save(1);
      wait_until([&] { return manager.is_read_back(); });
      reads = Reads::with_a_flipped_bit;  // on the way from the disk, not on it
      manager.save(2);
      wait_until([] { return logged().find("step-2 is damaged") != std::string::npos; });
    });
    EXPECT_TRUE(is_known_damaged(folder_ / "run/step-2"));
    reads = Reads::well;
    with_manager([&](Manager& manager) { EXPECT_EQ(manager.load_newest(), 2); });
    EXPECT_FALSE(is_known_damaged(folder_ / "run/step-2"));
  });
}

TEST_F(ReadBackTest, ALoadLearnsOfDamageAsASaveDoes) {
  testing::run_job(2, [&](const CommunicatorPtr& group) {
    auto model = nn::make<nn::Linear>(3, 2);
    Manager manager(folder_ / "run", group,
                    {.keep_last = 1, .keep_best = true, .asynchronous = false});
    manager.add("model", model);
    manager.save(1, 0.5);
    wait_until([&] { return manager.is_read_back(); });
    group->barrier().wait();
    reads = Reads::with_a_flipped_bit;
    manager.save(2, 0.1);
    wait_until([] { return logged().find("step-2 is damaged: ") != std::string::npos; });
    group->barrier().wait();
    reads = Reads::well;
    EXPECT_EQ(manager.load(folder_ / "run/step-1"), 1);
    EXPECT_EQ(manager.failed_saves(), 1);
    manager.save(3, 0.9);
    if (group->rank() == 0) {
      EXPECT_THAT(steps_in(folder_ / "run"), ElementsAre(1, 3));
    }
  });
}

// As a program that goes on with the weights alone: the other state's file is damaged.
TEST_F(ReadBackTest, ALoadOfSomeStatesLeavesWhatIsKnownOfTheCheckpoint) {
  testing::run_job(1, [&](const CommunicatorPtr& group) {
    auto model = nn::make<nn::Linear>(3, 2), average = nn::make<nn::Linear>(3, 2);
    const auto with_manager = [&](bool has_average, const auto& body) {
      Manager manager(folder_ / "run", group,
                      {.keep_last = 1, .keep_best = true, .asynchronous = false});
      manager.add("model", model);
      if (has_average) manager.add("average", average);
      body(manager);
    };
    with_manager(true, [&](Manager& manager) {
      for (const std::int64_t step : {1, 2}) {
        manager.save(step, step == 1 ? 0.5 : 0.1);
        wait_until([&] { return manager.is_read_back(); });
      }
    });
    const auto path = folder_ / "run/step-2";
    const std::string name = "run/step-2/average-00001-of-00001.safetensors";
    std::string bytes = testing::read_file(folder_ / name);
    bytes.back() ^= 1;
    folder_.write(name, bytes);
    note_verification(path, read_manifest(path), Verification::damaged);
    with_manager(false, [&](Manager& manager) { EXPECT_EQ(manager.load_newest(), 2); });
    EXPECT_TRUE(is_known_damaged(path));
    EXPECT_EQ(best(folder_ / "run")->step, 1);
    with_manager(true, [&](Manager& manager) {
      EXPECT_EQ(manager.load_newest(), 1);
      for (const std::int64_t step : {3, 4}) manager.save(step, 0.9);
      EXPECT_THAT(steps_in(folder_ / "run"), ::testing::IsSupersetOf({1, 4}));
      EXPECT_FALSE(std::filesystem::exists(path));
    });
  });
}

}  // namespace
}  // namespace lockstep::checkpoint
