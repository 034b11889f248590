#include <cerrno>
#include <filesystem>
#include <string>
#include <string_view>

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

/// Lets the n-th call that changes files fail, or the n-th that writes write but half.
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
  static inline int left, code;
};

class CheckpointFaults : public ::testing::TestWithParam<int> {};

TEST_P(CheckpointFaults, LeaveWhatWasSavedAndTheNextSaveSucceeds) {
  const TemporaryFolder folder;
  set_log_sink([](std::string_view) {});
  run_job(1, [&](const CommunicatorPtr& group) {
    TrainingRun run(group, folder / "run",
                    with_all(0, {.asynchronous = false, .read_back = false}));
    run.train(2);
    run.checkpoints().save(2);
    const std::string before = run.bytes();
    run.train(4);
    const std::string after = run.bytes();
    bool has_failed = true;
    int failures = 0;
    for (int number = 1; has_failed; ++number) {
      // Over the same name every other time.
      const std::int64_t step = number % 2 ? 2 : 4;
      {
        const FailingCall call(number, GetParam());
        run.checkpoints().save(step);
        has_failed = call.has_failed();
      }
      failures += run.checkpoints().error().empty() ? 0 : 1;
      TrainingRun other(group, folder / "elsewhere", with_all());
      const auto found = checkpoint::newest(folder / "run");
      ASSERT_TRUE(found);
      ASSERT_THAT(checkpoint::verify(found->path), ::testing::IsEmpty()) << number;
      other.checkpoints().load(found->path);
      const std::string loaded = other.bytes();
      ASSERT_TRUE(loaded == before || loaded == after) << number;
      if (!has_failed) {
        EXPECT_EQ(loaded, after);
      }
    }
    if (GetParam() == FailingCall::writes_half)
      EXPECT_EQ(failures, 0);
    else
      EXPECT_GT(failures, 20);
    EXPECT_EQ(run.checkpoints().failed_saves(), failures);
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

INSTANTIATE_TEST_SUITE_P(Kinds, CheckpointFaults,
                         ::testing::Values(FailingCall::writes_half, ENOSPC, EIO));

}  // namespace
}  // namespace lockstep
