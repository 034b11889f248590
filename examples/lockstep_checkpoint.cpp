// Looks after checkpoints:
//
//     lockstep_checkpoint list runs/a              what there is
//     lockstep_checkpoint show runs/a/step-1000    what one holds
//     lockstep_checkpoint verify runs/a            all bytes against their checksums
//     lockstep_checkpoint diff runs/a/step-1000 runs/b/step-1000
//     lockstep_checkpoint prune runs/a --keep 2    deletes older ones, but for the best
//
// Where a command takes a checkpoint, a folder of checkpoints stands for its newest, but for
// verify, which reads them all. Exit code 0: all is well; 1: damage, or a difference; 2: it cannot
// be told.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <lockstep/lockstep.hpp>

#include "support/command_line.hpp"

namespace fs = std::filesystem;
namespace ls = lockstep;
using ls::checkpoint::Found;

namespace {

/// A checkpoint, or the newest of a folder.
fs::path one_of(const fs::path& path) {
  if (fs::exists(path / "manifest.json")) return path;
  const auto found = ls::checkpoint::newest(path);
  LOCKSTEP_CHECK(found, ls::InvalidArgument, path.string(),
                 " is no checkpoint and has none; give one, such as runs/a/step-1000");
  return found->path;
}

std::vector<fs::path> all_of(const fs::path& path) {
  if (fs::exists(path / "manifest.json")) return {fs::canonical(path)};
  std::vector<fs::path> paths;
  for (const Found& each : ls::checkpoint::list(path)) paths.push_back(each.path);
  LOCKSTEP_CHECK(!paths.empty(), ls::InvalidArgument, path.string(), " has no checkpoint");
  return paths;
}

std::uintmax_t bytes_of(const fs::path& checkpoint) {
  std::uintmax_t bytes = 0;
  std::error_code gone;  // what a run beside this one puts in its place
  for (const auto& file : fs::directory_iterator(checkpoint))
    if (const auto size = file.file_size(gone); !gone) bytes += size;
  return bytes;
}

/// "  metric 1.25  damaged", or either, or nothing.
std::string what_is_known(const fs::path& checkpoint) try {
  const auto metric = ls::checkpoint::metric_of(checkpoint);
  return (metric ? ls::detail::concat("  metric ", *metric) : "") +
         (ls::checkpoint::is_known_damaged(checkpoint) ? "  damaged" : "");
} catch (const ls::CorruptData&) {
  return "  damaged";
} catch (const ls::Unsupported&) {
  return "  of another version";
}

int list(const fs::path& path) {
  const std::vector<fs::path> checkpoints = all_of(path);
  const fs::path folder = checkpoints.front().parent_path();
  const auto newest = ls::checkpoint::newest(folder), best = ls::checkpoint::best(folder);
  for (const fs::path& each : checkpoints)
    std::cout << each.filename().string() << "  " << bytes_of(each) << " bytes"
              << what_is_known(each) << (best && best->path == each ? "  best" : "")
              << (newest && newest->path == each ? "  latest" : "") << "\n";
  return 0;
}

/// Tensors of all files of a checkpoint, by state and name.
std::map<std::string, ls::io::SafetensorsFile> open_files(const fs::path& checkpoint) {
  std::map<std::string, ls::io::SafetensorsFile> files;
  for (const auto& entry : fs::directory_iterator(checkpoint))
    if (entry.path().extension() == ".safetensors")
      files.emplace(entry.path().filename().string(), ls::io::SafetensorsFile::open(entry.path()));
  return files;
}

int show(const fs::path& checkpoint) {
  for (const auto& [name, file] : open_files(checkpoint)) {
    std::cout << name << "\n";
    for (const std::string& tensor : file.names())
      std::cout << "  " << tensor << "  " << file.entry(tensor).format << " "
                << file.entry(tensor).shape << "\n";
  }
  const fs::path values = checkpoint / "state.json";
  if (!fs::is_regular_file(values))
    throw ls::CorruptData(values.string() + (fs::exists(values) ? " is no file" : " is missing"));
  std::ifstream state(values);
  std::cout << "state.json\n" << state.rdbuf();
  return 0;
}

int verify(const fs::path& path) {
  int code = 0;
  for (const auto& each : ls::checkpoint::verify_latest(path)) {
    std::cout << path.string() << ": " << describe(each) << "\n";
    code = 1;
  }
  for (const fs::path& checkpoint : all_of(path)) try {
      const bool was_damaged = ls::checkpoint::is_known_damaged(checkpoint);
      const auto damage = ls::checkpoint::verify(checkpoint);
      for (const auto& each : damage)
        std::cout << checkpoint.string() << ": " << describe(each) << "\n";
      if (damage.empty())
        std::cout << checkpoint.string() << ": whole"
                  << (was_damaged ? ", though the run had found damage" : "") << "\n";
      if (!damage.empty()) code = 1;
    } catch (const ls::CorruptData& error) {
      std::cout << error.what() << "\n";
      code = 1;
    } catch (const ls::Unsupported& error) {
      std::cout << error.what() << "\n";
      code = std::max(code, 2);
    }
  return code;
}

/// A file's tensors, by name, whichever of a state's files they are in.
using Places = std::map<std::string, const ls::io::SafetensorsFile*>;

Places places_of(const std::map<std::string, ls::io::SafetensorsFile>& files) {
  Places places;
  for (const auto& [name, file] : files)
    for (const std::string& tensor : file.names())
      places[name.substr(0, name.find('-')) + ": " + tensor] = &file;
  return places;
}

int diff(const fs::path& one, const fs::path& other) {
  const auto one_files = open_files(one), other_files = open_files(other);
  const Places mine = places_of(one_files), theirs = places_of(other_files);
  std::size_t differences = 0;
  const auto tell = [&](const std::string& name, const std::string& how) {
    std::cout << name << ": " << how << "\n";
    ++differences;
  };
  for (const auto& [key, file] : mine) {
    const std::string name = key.substr(key.find(": ") + 2);
    const auto there = theirs.find(key);
    if (there == theirs.end()) {
      tell(key, "only in " + one.string());
      continue;
    }
    const ls::Tensor a = file->tensor(name), b = there->second->tensor(name);
    if (a.shape() != b.shape() || a.dtype() != b.dtype())
      tell(key, ls::detail::concat(a.dtype(), " ", a.shape(), " and ", b.dtype(), " ", b.shape()));
    else if (!std::equal(static_cast<const std::byte*>(a.data_ptr()),
                         static_cast<const std::byte*>(a.data_ptr()) + a.nbytes(),
                         static_cast<const std::byte*>(b.data_ptr())))
      tell(key, a.numel() > 0 && ls::is_floating(a.dtype())
                    ? ls::detail::concat(
                          "differs by at most ",
                          (a.to(ls::DType::f64) - b.to(ls::DType::f64)).abs().max().item())
                    : "differs");
  }
  for (const auto& [key, file] : theirs)
    if (!mine.contains(key)) tell(key, "only in " + other.string());
  if (differences == 0) std::cout << mine.size() << " tensors, all the same bits\n";
  return differences == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Lists, shows, verifies, compares and deletes checkpoints", "lockstep_checkpoint");
  app.require_subcommand(1);
  fs::path path, other;
  int keep = 2;
  bool drop_best = false;
  const auto add = [&](const char* name, const char* what,
                       const char* of = "A checkpoint, or a folder of them") {
    CLI::App* command = app.add_subcommand(name, what);
    command->add_option("path", path, of)->required()->check(CLI::ExistingDirectory);
    return command;
  };
  const auto* listing =
      add("list", "Name, size and metric of each; damage that is known, the best and the latest");
  const auto* showing = add("show", "Tensors and values of one");
  const auto* verifying = add("verify", "Compare all bytes with their checksums");
  auto* comparing = add("diff", "Compare the tensors of two");
  comparing->add_option("other", other, "The second")->required()->check(CLI::ExistingDirectory);
  auto* pruning = add("prune", "Delete all but the newest and the best", "A folder of checkpoints");
  pruning->add_option("--keep", keep, "How many of the newest stay")
      ->check(examples::whole_number(1))
      ->capture_default_str();
  pruning->add_flag("--drop-best", drop_best, "Delete the one with the smallest metric, too");
  examples::parse(app, argc, argv);
  if (*listing) return list(path);
  if (*showing) return show(one_of(path));
  if (*verifying) return verify(path);
  if (*comparing) return diff(one_of(path), one_of(other));
  if (*pruning) {
    all_of(path);  // refuses a folder without any
    ls::checkpoint::prune(path, keep, !drop_best);
  }
  return 0;
} catch (const examples::Exit& exit) {
  return exit.code;
} catch (const std::exception& error) {
  std::cerr << "lockstep_checkpoint: " << error.what() << std::endl;
  return 2;
}
