#include <atomic>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/thread_job.hpp"
#include "checkpoint/training_run.hpp"
#include "io/file_calls.hpp"
#include "support/temporary_folder.hpp"

// Saves in which a call of the file system fails.

namespace lockstep {
namespace {

using ::testing::HasSubstr, ::testing::UnorderedElementsAre;
using testing::run_job, testing::steps_in;
using testing::TrainingRun, testing::with_all, testing::TemporaryFolder;

/// Lets the n-th call that changes files fail, or the n-th that writes write but half, of all
/// threads together.
class FailingCall {
 public:
  static constexpr int writes_half = 0;

  /// @param error such as ENOSPC, or `writes_half`.
  explicit FailingCall(int number, int error) {
    left = number;
    code = error;
    auto& calls = io::file_calls;
    calls.create = [](const char* path, mode_t mode) {
      return fails() ? -1 : io::FileCalls().create(path, mode);
    };
    calls.write = [](int file, const void* data, size_t size) {
      return fails() ? -1 : ::write(file, data, half_of(size));
    };
    calls.fsync = [](int file) { return fails() ? -1 : ::fsync(file); };
    calls.close = [](int file) {
      return fails() ? (::close(file), errno = code, -1) : ::close(file);
    };
    calls.rename = [](const char* from, const char* to) {
      return fails() ? -1 : ::rename(from, to);
    };
    calls.exchange = [](const char* one, const char* other) {
      return fails() ? -1 : io::FileCalls().exchange(one, other);
    };
    calls.make_folder = [](const char* path, mode_t mode) {
      return fails() ? -1 : ::mkdir(path, mode);
    };
    calls.allocate = [](int file, off_t size) {
      return fails() ? -1 : io::FileCalls().allocate(file, size);
    };
    calls.pwrite = [](int file, const void* data, size_t size, off_t offset) {
      return fails() ? -1 : ::pwrite(file, data, half_of(size), offset);
    };
  }
  ~FailingCall() { io::file_calls = {}; }
  bool has_failed() const { return left <= 0; }

 private:
  static bool fails() {
    if (code == writes_half || left-- != 1) return false;
    errno = code;
    return true;
  }
  static size_t half_of(size_t size) {
    return code == writes_half && left-- == 1 && size > 1 ? size / 2 : size;
  }
  static inline std::atomic<int> left;
  static inline int code;
};

/// The error of a call, on so many ranks, with training beside the save or not.
struct FaultCase {
  int error, ranks;
  bool beside;
};

std::string name_of_fault(const ::testing::TestParamInfo<FaultCase>& info) {
  const auto& [error, ranks, beside] = info.param;
  return detail::concat(error == ENOSPC ? "NoSpace"
                        : error == EIO  ? "InputOutput"
                                        : "Half",
                        "On", ranks, beside ? "BesideTraining" : "");
}

/// A run whose saves are made to fail, and what must be there behind each.
class FaultyRun {
 public:
  FaultyRun(const CommunicatorPtr& group, const TemporaryFolder& folder, const FaultCase& how)
      : group_(group),
        folder_(folder),
        how_(how),
        run_(group, folder / "run", with_all(0, {.asynchronous = how.beside, .read_back = false})) {
    run_.train(2);
    save(2);
  }
  /// Saves with a call that fails on one of the ranks.
  /// @return whether there was so late a call.
  bool save_with_failing_call(int number) {
    std::optional<FailingCall> call;
    if (group_->rank() == 0) call.emplace(number, how_.error);
    group_->barrier().synchronize();
    save(number % 2 ? 2 : 4);  // over the same name every other time
    group_->barrier().synchronize();
    if (call) has_failed_ = call->has_failed();
    call.reset();
    group_->barrier().synchronize();
    const std::string& error = run_.checkpoints().error();
    failures_ += error.empty() ? 0 : 1;
    EXPECT_EQ(run_.checkpoints().failed_saves(), failures_);
    expect_newest(error);
    group_->barrier().synchronize();
    return has_failed_;
  }
  int failures() const { return failures_; }

 private:
  void save(std::int64_t step) {
    if (!how_.beside) run_.train(run_.steps() + 1);
    former_ = newest_;
    newest_ = run_.bytes();
    run_.checkpoints().save(step);
    if (how_.beside) run_.train(run_.steps() + 1);
    run_.checkpoints().wait();
  }
  void expect_newest(const std::string& error) {
    TrainingRun other(group_, folder_ / "elsewhere", with_all());
    const auto found = checkpoint::newest(folder_ / "run");
    ASSERT_TRUE(found);
    ASSERT_THAT(checkpoint::verify(found->path), ::testing::IsEmpty());
    other.checkpoints().load(found->path);
    if (group_->rank() != 0) return;  // whose buffers are not those that were saved
    const std::string loaded = other.bytes();
    ASSERT_TRUE(loaded == newest_ || loaded == former_) << error;
    if (error.empty()) {
      ASSERT_EQ(loaded == newest_, true);
    }
    newest_ = loaded;
  }

  const CommunicatorPtr group_;
  const TemporaryFolder& folder_;
  const FaultCase how_;
  TrainingRun run_;
  std::string former_, newest_;
  int failures_ = 0;
  static inline std::atomic<bool> has_failed_;  // what all ranks are told by that of the call
};

class CheckpointFaults : public ::testing::TestWithParam<FaultCase> {};

TEST_P(CheckpointFaults, LeaveWhatWasSavedAndTheNextSaveSucceeds) {
  const TemporaryFolder folder;
  set_log_sink([](std::string_view) {});
  run_job(GetParam().ranks, [&](const CommunicatorPtr& group) {
    FaultyRun run(group, folder, GetParam());
    int number = 1;
    while (run.save_with_failing_call(number)) ++number;
    if (GetParam().error == FailingCall::writes_half)
      EXPECT_EQ(run.failures(), 0);
    else
      EXPECT_GT(run.failures(), 20);
  });
  set_log_sink(nullptr);
}

TEST(CheckpointManager, ASaveWhosePlaceCannotBeMadeDurableLeavesTheFolderAsItWas) {
  const TemporaryFolder folder;
  set_log_sink([](std::string_view) {});
  run_job(1, [&](const CommunicatorPtr& group) {
    std::int64_t value = 4;
    checkpoint::Manager checkpoints(folder / "run", group,
                                    {.asynchronous = false, .read_back = false});
    checkpoints.add("value", value);
    checkpoints.save(1);
    for (const std::int64_t step : {1, 2}) {  // over the same name, and under a new one
      value = 5;
      static bool has_place;
      has_place = false;
      io::file_calls.exchange = [](const char* one, const char* other) {
        has_place = true;
        return io::FileCalls().exchange(one, other);
      };
      io::file_calls.rename = [](const char* from, const char* to) {
        has_place = true;
        return ::rename(from, to);
      };
      io::file_calls.fsync = [](int file) {
        if (has_place) errno = EIO;
        return has_place ? -1 : ::fsync(file);
      };
      checkpoints.save(step);
      io::file_calls = {};
      EXPECT_THAT(checkpoints.error(), HasSubstr("fsync"));
      EXPECT_THAT(steps_in(folder / "run"), UnorderedElementsAre(1));
      EXPECT_EQ(checkpoints.load_newest(), 1);
      EXPECT_EQ(value, 4) << step;
    }
  });
  set_log_sink(nullptr);
}

TEST(CheckpointManager, ASaveWhoseRanksPartBehindItsPlaceSaysThatItIsThere) {
  const TemporaryFolder folder;
  static std::string log;
  static std::atomic<bool> has_parted;
  log.clear();
  has_parted = false;
  set_log_sink([](std::string_view line) { log += line; });
  io::file_calls.rename = [](const char* from, const char* to) {
    const auto limit =
        std::chrono::steady_clock::now() + std::chrono::seconds(20 * testing::timeout_multiplier);
    while (std::string_view(to).ends_with("latest") && !has_parted &&
           std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return ::rename(from, to);
  };
  const auto save = [&](comm::Communicator& group) {
    std::int64_t value = 4;
    checkpoint::Manager checkpoints(folder / "run", CommunicatorPtr(&group),
                                    {.asynchronous = false, .read_back = false});
    checkpoints.add("value", value);
    checkpoints.save(1);
    has_parted = true;
    EXPECT_THAT(checkpoints.error(), HasSubstr("timed out"));
  };
  comm::run_ranks(2, save, {.timeout = std::chrono::seconds(2 * testing::timeout_multiplier)});
  io::file_calls = {};
  set_log_sink(nullptr);
  EXPECT_THAT(log, HasSubstr("the checkpoint of step 1 is in its place, but not all ranks could be "
                             "told"));
  EXPECT_THAT(steps_in(folder / "run"), UnorderedElementsAre(1));
}

INSTANTIATE_TEST_SUITE_P(Kinds, CheckpointFaults,
                         ::testing::Values(FaultCase{FailingCall::writes_half, 1, false},
                                           FaultCase{ENOSPC, 1, false}, FaultCase{EIO, 1, false},
                                           FaultCase{FailingCall::writes_half, 2, true},
                                           FaultCase{ENOSPC, 2, true}, FaultCase{EIO, 2, true}),
                         name_of_fault);

}  // namespace
}  // namespace lockstep
