#include "checkpoint/run_folder.hpp"

#include <set>
#include <string>

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace lockstep::checkpoint {
namespace {

TEST(RunFolder, GivesEverySaveANameThatNoFolderHad) {
  const testing::TemporaryFolder folder;
  std::set<std::string> names;
  for (int job = 0; job < 2; ++job) {
    RunFolder run(folder / "run", 0);
    for (int save = 0; save < 2; ++save) EXPECT_TRUE(names.insert(run.begin(7)).second);
    run.discard();
    EXPECT_FALSE(std::filesystem::exists(run.saving()));
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
