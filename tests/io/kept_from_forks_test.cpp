#include "io/kept_from_forks.hpp"

#include <chrono>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/file_descriptor.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::io {
namespace {

/// Whether a lock of the file can be had beside those that there are.
bool is_free(const std::filesystem::path& path) {
  const FileDescriptor other(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  return ::flock(other.get(), LOCK_EX | LOCK_NB) == 0;
}

// A child that lives on would hold the lock that it has got with the descriptor.
TEST(KeptFromForks, ALockEndsWithItsProcessAndNotWithItsChildren) {
  const testing::TemporaryFolder folder;
  const auto path = folder.write("lock", "");
  FileDescriptor lock(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  std::optional<KeptFromForks> kept(std::in_place);
  kept->keep(lock.get());
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char end = 0;
    ::close(ends[1]);
    const bool has_ended = ::read(ends[0], &end, 1) == 0;
    ::_exit(has_ended && ::fcntl(lock.get(), F_GETFD) >= 0 ? 0
                                                           : 1);  // it is open, as something else
  }
  ASSERT_GT(child, 0);
  EXPECT_FALSE(is_free(path));
  kept.reset();
  lock = FileDescriptor();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!is_free(path) && std::chrono::steady_clock::now() < end)  // the child has only begun
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(is_free(path));
  ::close(ends[1]);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::close(ends[0]);
}

}  // namespace
}  // namespace lockstep::io
