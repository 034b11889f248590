#pragma once

#include <filesystem>
#include <string>

#include "examples/jobs.hpp"

/// @file
/// Runs of lockstep_run, whose ranks are shell scripts.

namespace examples::testing {

/// A run of a shell script as each rank.
class Run : public ::testing::Test {
 protected:
  std::string run(const std::string& options, const std::string& script) const {
    const std::filesystem::path path = folder.write("rank.sh", script);
    return command("lockstep_run", options + " -- sh " + path.string());
  }
  CommandResult result_of(const std::string& options, const std::string& script,
                          const std::string& environment = "") const {
    return run_command(environment + run(options, script), 30);
  }
  /// Starts a run, does something once all ranks have made the file "ready-RANK", and waits.
  CommandResult result_with(const std::string& options, const std::string& script, int ranks,
                            const std::string& then, const std::string& launcher = "",
                            int limit = 30) const {
    std::string wait;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string file = path("ready-" + std::to_string(rank));
      std::filesystem::remove(file);
      wait += "until [ -e " + file + " ]; do sleep 0.02; done; ";
    }
    return run_command(
        launcher + run(options, script) + " & supervisor=$!; " + wait + then + "; wait $supervisor",
        limit);
  }
  std::string path(const std::string& name) const { return (folder / name).string(); }
  std::string ready() const { return "touch " + path("ready-$RANK") + "\n"; }

  TemporaryFolder folder;
};

/// Notes for the supervisor that step 34 is done, as checkpoint::Manager does.
inline constexpr const char* step_34 =
    "printf '\\042' | dd of=$LOCKSTEP_RUN_PROGRESS bs=1 seek=8 conv=notrunc 2>/dev/null\n"
    "printf '\\0\\0\\0\\0\\0\\0\\0' | dd of=$LOCKSTEP_RUN_PROGRESS bs=1 seek=9 conv=notrunc "
    "2>/dev/null\n";

}  // namespace examples::testing
