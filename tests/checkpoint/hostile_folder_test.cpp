#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "checkpoint/thread_job.hpp"
#include "lockstep/io/crc32c.hpp"
#include "lockstep/lockstep.hpp"
#include "support/temporary_folder.hpp"

// Folders in which others have put something.

namespace lockstep {
namespace {

using checkpoint::Manager;
using ::testing::ElementsAre, ::testing::HasSubstr;
using testing::read_file, testing::run_job, testing::TemporaryFolder;
namespace fs = std::filesystem;

class HostileFolder : public ::testing::Test {
 protected:
  HostileFolder() {
    set_log_sink([](std::string_view) {});
  }
  ~HostileFolder() override { set_log_sink(nullptr); }

  void save(std::int64_t step) {
    run_job(1, [&](const CommunicatorPtr& group) {
      Manager manager(folder / "run", group);
      manager.add("value", value);
      manager.save(step);
      ASSERT_TRUE(manager.wait()) << manager.error();
    });
  }
  /// What all ranks load.
  std::optional<std::int64_t> load(int ranks = 2) {
    std::optional<std::int64_t> found;
    run_job(ranks, [&](const CommunicatorPtr& group) {
      std::int64_t own = 0;
      Manager manager(folder / "run", group);
      manager.add("value", own);
      const auto step = manager.load_newest();
      if (group->rank() == 0) found = step;
    });
    return found;
  }

  TemporaryFolder folder;
  std::int64_t value = 4;
};

TEST_F(HostileFolder, ACheckpointThatCannotBeLookedAtIsDamaged) {
  save(1);
  fs::create_directory_symlink("step-9", folder / "run/step-9");  // to itself
  fs::remove(folder / "run/latest");
  EXPECT_EQ(load(), 1);
}

TEST_F(HostileFolder, LinksAreNotWrittenThrough) {
  const fs::path other = folder.write("other", "precious");
  fs::create_directory(folder / "run");
  fs::create_symlink(other, folder / "run/.lock");
  run_job(1, [&](const CommunicatorPtr& group) {
    EXPECT_THROW(Manager(folder / "run", group), InvalidArgument);
  });
  EXPECT_EQ(read_file(other), "precious");
}

TEST_F(HostileFolder, LinksInThePlaceOfNotesAreNotWrittenThrough) {
  save(1);
  const fs::path other = folder.write("other", "precious");
  fs::create_symlink(other, folder / "run/step-1/verification");
  EXPECT_EQ(load(), 1);
  EXPECT_EQ(read_file(other), "precious");
  fs::remove(folder / "run/latest");
  fs::create_symlink(other, folder / "run/latest");
  save(2);
  EXPECT_EQ(read_file(other), "precious");
  EXPECT_EQ(load(), 2);
}

TEST_F(HostileFolder, PipesDoNotKeepALoadWaiting) {
  save(1);
  fs::create_directory(folder / "run/step-9");
  ASSERT_EQ(::mkfifo((folder / "run/step-9/manifest.json").c_str(), 0666), 0);
  fs::remove(folder / "run/latest");
  ASSERT_EQ(::mkfifo((folder / "run/latest").c_str(), 0666), 0);
  EXPECT_EQ(load(), 1);
}

TEST_F(HostileFolder, DeepOrHugeManifestsAreRefused) {
  save(1);
  save(9);
  const std::string deep(1'000'000, '[');
  const std::string closed(deep.size(), ']');
  for (const std::string& inner : {deep + closed, deep}) {
    folder.write("run/step-9/manifest.json",
                 R"({"format": "lockstep checkpoint", "crc32c": "00000000", "x": )" + inner + "}");
    EXPECT_EQ(load(), 1);
  }
  fs::resize_file(folder / "run/step-9/manifest.json", std::uintmax_t{1} << 40);
  EXPECT_EQ(load(), 1);
}

// Of a later lockstep, which others of the folder have nothing to do with.
TEST_F(HostileFolder, ACheckpointOfAnotherVersionLeavesTheOthersToBeListedAndPruned) {
  for (const std::int64_t step : {2, 3}) save(step);
  const fs::path manifest = folder / "run/step-2/manifest.json";
  auto json = nlohmann::ordered_json::parse(read_file(manifest));
  json.erase("crc32c");
  json["format_version"] = 99;
  const std::string text = json.dump();
  char checksum[9] = {};
  std::snprintf(checksum, sizeof checksum, "%08x", io::crc32c(std::as_bytes(std::span(text))));
  json["crc32c"] = checksum;
  folder.write("run/step-2/manifest.json", json.dump(1) + "\n");
  EXPECT_THROW(checkpoint::verify(folder / "run/step-2"), Unsupported);
  EXPECT_FALSE(checkpoint::is_known_damaged(folder / "run/step-2"));
  EXPECT_FALSE(checkpoint::best(folder / "run").has_value());
  checkpoint::prune(folder / "run", 1);
  EXPECT_THAT(testing::steps_in(folder / "run"), ElementsAre(3));
}

TEST_F(HostileFolder, TheBestIsNotWhatASaveHasReplaced) {
  run_job(1, [&](const CommunicatorPtr& group) {
    Manager manager(folder / "run", group,
                    {.keep_last = 1, .keep_best = true, .asynchronous = false, .read_back = false});
    manager.add("value", value);
    manager.save(5, 1.0);
    manager.save(6, 3.0);
    manager.save(5, 9.0);  // the run went back
    manager.save(7, 8.0);
    manager.save(8, 8.5);
    std::vector<std::int64_t> steps;
    for (const auto& found : checkpoint::list(folder / "run")) steps.push_back(found.step);
    EXPECT_THAT(steps, ElementsAre(6, 8));
  });
}

}  // namespace
}  // namespace lockstep
