#include "lockstep/io/atomic_file.hpp"

#include <cerrno>
#include <climits>

#include <gtest/gtest.h>

#include "io/file_calls.hpp"
#include "lockstep/io/file_error.hpp"
#include "lockstep/io/mapped_file.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::io {
namespace {

using lockstep::testing::read_file;
using lockstep::testing::TemporaryFolder;

void save_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

// Makes one call of the process fail, and undoes it.
int calls_left = 0;
int failure = 0;
bool fails_now() { return calls_left-- == 0 && (errno = failure, true); }

class FailingCall {
 public:
  FailingCall(int nth, int code) {
    calls_left = nth;
    failure = code;
    file_calls.create = [](const char* path, mode_t mode) {
      return fails_now() ? -1 : FileCalls().create(path, mode);
    };
    file_calls.write = [](int descriptor, const void* data, size_t size) {
      return fails_now() ? -1 : ::write(descriptor, data, size);
    };
    file_calls.fsync = [](int descriptor) { return fails_now() ? -1 : ::fsync(descriptor); };
    file_calls.close = [](int descriptor) {
      const bool fails = fails_now();  // as Linux does, closes all the same
      const int result = ::close(descriptor);
      return fails ? (errno = failure, -1) : result;
    };
    file_calls.rename = [](const char* from, const char* to) {
      return fails_now() ? -1 : ::rename(from, to);
    };
  }
  ~FailingCall() { file_calls = {}; }
};

TEST(AtomicFile, ReplacesTheTargetOnlyAtCommit) {
  const TemporaryFolder folder;
  const auto path = folder.write("model", "old");
  {
    AtomicFile file(path);
    file.write("new");
    EXPECT_EQ(read_file(path), "old");
    file.commit();
  }
  EXPECT_EQ(read_file(path), "new");
  EXPECT_EQ(folder.count(), 1);
}

TEST(AtomicFile, LeavesNothingBehindWithoutACommit) {
  const TemporaryFolder folder;
  const auto path = folder.write("model", "old");
  { AtomicFile(path).write("new"); }
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(folder.count(), 1);
}

TEST(AtomicFile, KeepsTheOldContentsWhicheverCallFails) {
  const TemporaryFolder folder;
  const auto path = folder.write("model", "old");
  const std::string big(3 << 20, 'x');
  for (const int code : {ENOSPC, EIO}) {
    int nth = 0;
    for (bool failed = true; failed; ++nth) {
      save_file(path, "old");
      const FailingCall guard(nth, code);
      try {
        save_file(path, big);
        failed = false;
      } catch (const FileError& error) {
        EXPECT_EQ(error.status(), code);
        const bool folder_sync = error.path() == folder.path();
        EXPECT_EQ(read_file(path), folder_sync ? big : "old") << error.what();
      }
      EXPECT_EQ(folder.count(), 1);
    }
    EXPECT_GE(nth, 6) << "create, write, fsync, close, rename and the folder's fsync can fail";
  }
}

TEST(AtomicFile, GoesOnAfterShortWritesAndInterruptions) {
  const TemporaryFolder folder;
  file_calls.write = [](int descriptor, const void* data, size_t size) -> ssize_t {
    static int count = 0;
    if (++count % 3 == 0) return errno = EINTR, -1;
    return ::write(descriptor, data, std::min<size_t>(size, 1000));
  };
  const std::string text(2'000'123, 'y');
  save_file(folder / "model", text);
  file_calls = {};
  EXPECT_EQ(read_file(folder / "model"), text);
}

TEST(AtomicFile, CommitsWhereFoldersCannotBeSynced) {
  const TemporaryFolder folder;
  file_calls.fsync = [](int descriptor) {
    struct stat status {};
    if (::fstat(descriptor, &status) != 0 || !S_ISDIR(status.st_mode)) return ::fsync(descriptor);
    errno = EINVAL;
    return -1;
  };
  EXPECT_NO_THROW(save_file(folder / "file", "text"));
  file_calls = {};
  EXPECT_EQ(read_file(folder / "file"), "text");
}

TEST(AtomicFile, CommitsNothingAfterAFailure) {
  const TemporaryFolder folder;
  const auto path = folder.write("model", "old");
  AtomicFile file(path);
  const std::string big(3 << 20, 'x');
  {
    const FailingCall guard(0, ENOSPC);
    EXPECT_THROW(file.write(big), FileError);
  }
  EXPECT_THROW(file.write("more"), InvalidArgument);
  EXPECT_THROW(file.commit(), InvalidArgument);
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(folder.count(), 1);
}

TEST(AtomicFile, TakesNothingMoreAfterACommit) {
  const TemporaryFolder folder;
  AtomicFile file(folder / "model");
  file.commit();
  EXPECT_THROW(file.write("more"), InvalidArgument);
  EXPECT_THROW(file.commit(), InvalidArgument);
}

TEST(AtomicFile, WritesThroughSymbolicLinks) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "store");
  const auto real = folder.write("store/real", "old");
  std::filesystem::create_symlink("real", folder / "store/link");
  std::filesystem::create_symlink("store/link", folder / "model");
  save_file(folder / "model", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "model"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "store/link"));
  EXPECT_EQ(read_file(real), "new");
  std::filesystem::create_symlink("absent", folder / "dangling");
  save_file(folder / "dangling", "new");
  EXPECT_EQ(read_file(folder / "absent"), "new");
}

TEST(AtomicFile, RefusesLinksThatLeadInACircle) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("b", folder / "a");
  std::filesystem::create_symlink("a", folder / "b");
  EXPECT_THROW(AtomicFile(folder / "a"), FileError);
  EXPECT_EQ(folder.count(), 2);
}

TEST(AtomicFile, KeepsTheModeOfTheFileItReplaces) {
  using std::filesystem::perms;
  const TemporaryFolder folder;
  const auto path = folder.write("model", "old");
  const auto mode = [](const auto& file) { return std::filesystem::status(file).permissions(); };
  for (const perms wanted : {perms::owner_read | perms::owner_write, perms(0664), perms(0444)}) {
    std::filesystem::permissions(path, wanted);
    AtomicFile file(path);
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      EXPECT_EQ(mode(entry.path()), wanted) << entry.path();  // the temporary file's as well
    file.commit();
    EXPECT_EQ(mode(path), wanted);
  }
}

TEST(AtomicFile, TakesNamesAsLongAsTheSystemDoes) {
  const TemporaryFolder folder;
  const std::string name(NAME_MAX, 'n');
  save_file(folder / name, "new");
  EXPECT_EQ(read_file(folder / name), "new");
  EXPECT_EQ(folder.count(), 1);
}

TEST(AtomicFile, RefusesTargetsThatAreNotFiles) {
  const TemporaryFolder folder;
  EXPECT_THROW(AtomicFile("/dev/null"), InvalidArgument);
  EXPECT_THROW(AtomicFile(folder.path()), InvalidArgument);
  try {
    AtomicFile(folder / "missing/model");
    FAIL();
  } catch (const FileError& error) {  // by the name that was given, not by the temporary one
    EXPECT_EQ(error.path(), folder / "missing/model");
  }
}

TEST(AtomicFile, SavesOverAFileThatIsMapped) {
  const TemporaryFolder folder;
  const auto path = folder.write("model", "old contents");
  const MappedFile mapped(path);
  save_file(path, "n");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(mapped.bytes().data()), 12), "old contents");
}

TEST(MappedFile, RefusesWhatIsNoFile) {
  const TemporaryFolder folder;
  EXPECT_THROW(MappedFile(folder / "missing"), FileError);
  EXPECT_THROW(MappedFile(folder.path()), InvalidArgument);
  EXPECT_THROW(MappedFile("/dev/zero"), InvalidArgument);
  EXPECT_TRUE(MappedFile(folder.write("empty", "")).bytes().empty());
}

}  // namespace
}  // namespace lockstep::io
