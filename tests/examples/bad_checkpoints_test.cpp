#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "examples/jobs.hpp"

// What a user is told who goes on from what is no whole checkpoint of his model.

namespace examples::testing {
namespace {

using lockstep::testing::read_file;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

/// Something that is wrong with a run of steps 2 and 4, and what is said of it.
struct Fault {
  std::string name;
  std::function<void(const fs::path& run)> make;
  std::string arguments;  ///< with RUN for the run's folder
  std::string report;
};

void write(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::function<void(const fs::path&)> flip(const std::string& file, int from_end) {
  return [=](const fs::path& run) {
    std::string bytes = read_file(run / file);
    const std::size_t byte = bytes.size() - static_cast<std::size_t>(from_end);
    bytes[byte] = static_cast<char>(bytes[byte] ^ 2);
    write(run / file, bytes);
  };
}

std::function<void(const fs::path&)> cut(const std::string& file) {
  return [=](const fs::path& run) { fs::resize_file(run / file, fs::file_size(run / file) / 2); };
}

std::function<void(const fs::path&)> remove(const std::string& file) {
  return [=](const fs::path& run) { fs::remove(run / file); };
}

/// Gives the first file a name that leads out of the folder, and the manifest its checksum.
void lead_out(const fs::path& run) {
  const fs::path path = run / "step-4/manifest.json";
  auto manifest = lockstep::checkpoint::parse_manifest(read_file(path), path.string());
  fs::rename(run / "step-4" / manifest.files[0].name, run / "outside");
  manifest.files[0].name = "../outside";
  write(path, lockstep::checkpoint::write_manifest(manifest));
}

void do_nothing(const fs::path& /*run*/) {}

std::vector<Fault> faults() {
  const std::string model = "step-4/model-00001-of-00001.safetensors",
                    moments = "step-4/optimizer-00001-of-00001.safetensors",
                    step = "--resume RUN/step-4";
  return {
      {"a truncated file", cut(model), step, "model-00001-of-00001.safetensors is "},
      {"an empty file", [=](const fs::path& run) { write(run / moments, ""); }, step,
       "optimizer-00001-of-00001.safetensors is 0 bytes long instead of "},
      {"a missing file", remove(moments), step, "optimizer-00001-of-00001.safetensors"},
      {"a folder for a file",
       [=](const fs::path& run) {
         fs::remove(run / moments);
         fs::create_directory(run / moments);
       },
       step, "optimizer-00001-of-00001.safetensors is no file"},
      {"a flipped bit of a weight", flip(model, 9), step,
       "model-00001-of-00001.safetensors is damaged in bit 1 of byte "},
      {"a flipped bit of a moment", flip(moments, 9), step,
       "optimizer-00001-of-00001.safetensors is damaged in bit 1 of byte "},
      {"a flipped bit of an index", flip("step-4/model.safetensors.index.json", 9), step,
       "model.safetensors.index.json is damaged in bit 1 of byte "},
      {"a flipped bit of the values", flip("step-4/state.json", 9), step,
       "state.json is damaged in bit 1 of byte "},
      {"a flipped bit of the manifest", flip("step-4/manifest.json", 30), step, "manifest.json"},
      {"a truncated manifest", cut("step-4/manifest.json"), step,
       "manifest.json is no JSON from byte "},
      {"a path that leaves the folder", lead_out, step,
       "'../outside' is no name of a file in a folder"},
      {"no checkpoint", remove("step-4/manifest.json"), step,
       "step-4 is no checkpoint: it has no manifest.json"},
      {"a folder of checkpoints", do_nothing, "--resume RUN",
       "is a folder of checkpoints; give one of them"},
      {"nothing there", do_nothing, "--resume RUN/step-5",
       "step-5 is not there; give a checkpoint"},
      {"another model", do_nothing, step + " --dtype f64",
       ": load_state_dict: transformer.h.0.attn.c_attn.bias: dtype f32, expected f64 (convert with "
       "to(dtype)), and 15 others (LOCKSTEP_LOG_LEVEL=info lists them)"},
      {"all manifests truncated",
       [=](const fs::path& run) {
         cut("step-2/manifest.json")(run);
         cut("step-4/manifest.json")(run);
       },
       "--checkpoint-dir RUN", "manifest.json is no JSON from byte "},
  };
}

/// Lines that say what went wrong: "error: ..." of a session, "train_gpt: ..." of a command line
/// without ranks, and with ranks "error: train_gpt: ...".
std::size_t reports(const std::string& output) {
  std::istringstream lines(output);
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line);)
    count += occurrences(line, "error: ") + occurrences(line, "train_gpt: ") > 0;
  return count;
}

/// A run of two checkpoints, and copies of it.
class BadCheckpoints : public ::testing::Test {
 protected:
  BadCheckpoints() {
    const auto made = run_command(
        tiny_gpt("--steps 4 --save-every 2 --checkpoint-dir " + (folder_ / "whole").string()), 100);
    EXPECT_EQ(made.exit_code, 0) << made.output;
  }

  fs::path spoil(const Fault& fault) const {
    fs::remove_all(folder_ / "run");
    fs::copy(folder_ / "whole", folder_ / "run", fs::copy_options::recursive);
    fault.make(folder_ / "run");
    return folder_ / "run";
  }
  CommandResult go_on(const std::string& launcher, const Fault& fault) const {
    std::string arguments = fault.arguments;
    arguments.replace(arguments.find("RUN"), 3, spoil(fault).string());
    if (arguments.find("--checkpoint-dir") == std::string::npos)
      arguments += " --checkpoint-dir " + (folder_ / "next").string();
    return run_command(launcher + tiny_gpt("--steps 6 " + arguments), 100);
  }
  void expect_code_2_and_one_line(const std::string& launcher) const {
    for (const Fault& fault : faults()) {
      SCOPED_TRACE(fault.name);
      const auto result = go_on(launcher, fault);
      EXPECT_EQ(result.exit_code, 2) << result.output;
      EXPECT_THAT(result.output, HasSubstr(fault.report));
      EXPECT_EQ(reports(result.output), 1u) << result.output;
      EXPECT_EQ(occurrences(result.output, "\n  transformer"), 0u) << result.output;
      EXPECT_THAT(result.output, ::testing::Not(HasSubstr("goes on after")));
    }
  }

  const TemporaryFolder folder_;
};

TEST_F(BadCheckpoints, AreCode2AndOneLine) { expect_code_2_and_one_line(""); }

#ifdef LOCKSTEP_MPIEXEC
TEST_F(BadCheckpoints, SlowOnTwoRanksAreCode2AndOneLine) { expect_code_2_and_one_line(mpirun(2)); }
#endif

TEST_F(BadCheckpoints, OfAnotherModelAreListedInTheLog) {
  const auto result = go_on("LOCKSTEP_LOG_LEVEL=info ",
                            {"another model", do_nothing, "--resume RUN/step-4 --dtype f64", ""});
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_THAT(result.output, HasSubstr("\n  transformer.wte.weight: dtype f32, expected f64"));
}

TEST_F(BadCheckpoints, GiveWayToTheOneBeforeWithAWarning) {
  const std::string run = "--checkpoint-dir RUN";
  const auto warned = [&](const Fault& fault, const std::string& from) {
    const auto result = go_on("", fault);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(occurrences(result.output, fault.report), 1u) << result.output;
    EXPECT_THAT(result.output, HasSubstr("goes on after step " + from));
  };
  warned({"a flipped bit", flip("step-4/model-00001-of-00001.safetensors", 9), run,
          "model-00001-of-00001.safetensors is damaged in bit 1 of byte "},
         "2");
  warned({"a truncated manifest", cut("step-4/manifest.json"), run, "is no JSON from byte "}, "2");
  warned({"a damaged name", flip("latest", 9), run, "latest is not what a save wrote"}, "4");
}

TEST_F(BadCheckpoints, AreFoundByTheTool) {
  const auto verify = [&](const Fault& fault) {
    const auto result =
        run_command(command("lockstep_checkpoint", "verify " + spoil(fault).string()));
    EXPECT_EQ(result.exit_code, 1) << result.output;
    EXPECT_THAT(result.output, HasSubstr(fault.report));
    EXPECT_EQ(occurrences(result.output, ": whole\n"), fault.name == "latest" ? 2u : 1u)
        << result.output;
  };
  for (const Fault& fault : faults())
    if (fault.arguments == "--resume RUN/step-4" && fault.name != "no checkpoint") {
      SCOPED_TRACE(fault.name);
      verify(fault);
    }
  verify({"latest", flip("latest", 9), "", "latest is not what a save wrote"});
  verify({"latest", cut("latest"), "", "latest is not what a save wrote"});
}

}  // namespace
}  // namespace examples::testing
