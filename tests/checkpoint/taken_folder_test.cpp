#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "checkpoint/run_folder.hpp"
#include "checkpoint/saved_number.hpp"
#include "io/file_calls.hpp"
#include "support/temporary_folder.hpp"

// A folder that others take, put something in the place of, or of which the system refuses a part.

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

TEST(TakenFolder, ThatAnotherGenerationHasTakenIsLeftAlone) {
  const testing::TemporaryFolder folder;
  with_manager(folder, [&](Manager& manager, std::int64_t& /*value*/) {
    manager.save(1);
    const std::string own = testing::read_file(folder / "run/.lock");
    const std::string run = own.substr(own.find(" run "));  // and who has taken it
    folder.write("run/.lock", "generation 5 process 1 host b" + run);
    manager.save(2);
    EXPECT_THAT(manager.error(), ::testing::ContainsRegex("was taken by generation 5 of the run .*"
                                                          "process 1 host b.*, and this is 1"));
    // Without locks two jobs may take it at the same moment, as one generation.
    folder.write("run/.lock", own.substr(0, own.find(" taken ")) + " taken by another\n");
    manager.save(3);
    EXPECT_THAT(manager.error(), ::testing::HasSubstr("was taken by generation 1 of the run"));
    EXPECT_THAT(testing::steps_in(folder / "run"), ::testing::ElementsAre(1));
    folder.write("run/.lock", own);
    manager.save(4);
    EXPECT_EQ(manager.error(), "");
  });
}

// `cp -r a/* b/` leaves hidden files behind.
TEST(TakenFolder, WithoutItsLockGoesOnBehindTheGenerationsOfItsCheckpoints) {
  const testing::TemporaryFolder folder;
  for (const std::int64_t step : {1, 2, 3})
    with_manager(folder, [&](Manager& manager, std::int64_t&) { manager.save(step); });
  fs::remove(folder / "run/.lock");
  EXPECT_EQ(RunFolder(folder / "run", 0).generation(), 4u);
  EXPECT_EQ(RunFolder(folder / "run", 0).generation(), 5u);
}

// As a service may be started. What the program prints would go into the first file.
TEST(TakenFolderDeathTest, GetsNoOutputOfAProgramWithoutStandardStreams) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  static const testing::TemporaryFolder folder;
  EXPECT_EXIT(
      {
        for (const int stream : {0, 1, 2}) ::close(stream);
        const RunFolder run(folder / "run", 0);
        std::puts("a loss");
        std::fflush(stdout);
        const std::string lock = testing::read_file(folder / "run/.lock");
        fs::remove_all(folder.path());
        std::_Exit(lock.starts_with("generation 1 ") && lock.find("loss") == lock.npos ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

// The folder was deleted and made anew by a run of the same generation, or a link leads elsewhere.
TEST(TakenFolder, OfAnotherRunInItsPlaceIsLeftAlone) {
  const testing::TemporaryFolder folder;
  with_manager(folder, [&](Manager& manager, std::int64_t& /*value*/) {
    manager.save(1);
    fs::rename(folder / "run", folder / "moved");
    {
      RunFolder other(folder / "run", 0);
      manager.save(2);
      EXPECT_THAT(manager.error(), ::testing::HasSubstr("is another folder than this run has"));
      EXPECT_THAT(testing::steps_in(folder / "run"), ::testing::IsEmpty());
      EXPECT_THAT(testing::steps_in(folder / "moved"), ::testing::ElementsAre(1));
    }
    fs::remove_all(folder / "run");
    fs::rename(folder / "moved", folder / "run");
    manager.save(3);
    EXPECT_EQ(manager.error(), "");
  });
}

TEST(TakenFolder, OfWhichTheLockCannotBeReadSaysThatAndGoesOn) {
  const testing::TemporaryFolder folder;
  with_manager(folder, [&](Manager& manager, std::int64_t& /*value*/) {
    manager.save(1);
    const std::string own = testing::read_file(folder / "run/.lock");
    fs::remove(folder / "run/.lock");
    fs::create_symlink(".lock", folder / "run/.lock");  // ELOOP for whoever opens it
    manager.save(2);
    EXPECT_THAT(manager.error(), ::testing::Not(::testing::HasSubstr("was taken by")));
    EXPECT_THAT(manager.error(), ::testing::HasSubstr(".lock"));
    fs::remove(folder / "run/.lock");
    folder.write("run/.lock", own);
    manager.save(3);
    EXPECT_EQ(manager.error(), "");
  });
}

TEST(TakenFolder, PrunesTheOthersWhereACheckpointCannotBeTakenAway) {
  const testing::TemporaryFolder folder;
  with_manager(folder, [&](Manager& manager, std::int64_t& /*value*/) {
    io::file_calls.rename = [](const char* from, const char* to) {
      if (std::string_view(from).ends_with("/step-1")) return errno = EPERM, -1;
      return std::rename(from, to);
    };
    for (const std::int64_t step : {1, 2, 3, 4, 5}) manager.save(step);
    io::file_calls = {};
    EXPECT_EQ(manager.error(), "");
    EXPECT_THAT(testing::steps_in(folder / "run"), ::testing::ElementsAre(1, 4, 5));
  });
}

TEST(TakenFolder, StaysWhereItWasWhenTheProgramGoesElsewhere) {
  const testing::TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::create_directory(folder / "elsewhere");
  fs::current_path(folder.path());
  testing::run_job(1, [&](const CommunicatorPtr& group) {
    std::int64_t value = 4;
    Manager manager("run", group, {.asynchronous = false, .read_back = false});
    manager.add("value", value);
    fs::current_path(folder / "elsewhere");
    manager.save(1);
    EXPECT_EQ(manager.error(), "");
  });
  fs::current_path(before);
  EXPECT_THAT(testing::steps_in(folder / "run"), ::testing::ElementsAre(1));
}

// Of a network file system: what is there may be refused once, or not be seen yet.
TEST(TakenFolder, IsReadAgainBeforeAnOlderCheckpointIsTaken) {
  const testing::TemporaryFolder folder;
  with_manager(folder, [&](Manager& manager, std::int64_t& value) {
    for (value = 1; value <= 2; ++value) manager.save(value);
    static int failing = 0;
    io::file_calls.pread = [](int file, void* data, std::size_t size, off_t offset) {
      if (failing > 0 && failing-- > 0) return errno = ESTALE, ssize_t{-1};
      return ::pread(file, data, size, offset);
    };
    failing = 1;
    EXPECT_EQ(manager.load_newest(), 2);
    EXPECT_EQ(value, 2);
    failing = 1;
    EXPECT_EQ(manager.load(folder / "run/step-1"), 1);
    io::file_calls = {};
  });
}

}  // namespace
}  // namespace lockstep::checkpoint
