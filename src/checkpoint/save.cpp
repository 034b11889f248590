#include "checkpoint/save.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "checkpoint/exchange.hpp"
#include "checkpoint/file_writer.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/names.hpp"
#include "checkpoint/own_part.hpp"
#include "checkpoint/share.hpp"
#include "comm/run_progress.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/crc32c.hpp"
#include "lockstep/observe/log.hpp"
#include "lockstep/version.hpp"
#include "runtime/background_failure.hpp"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Whether a folder that another rank has made is seen here: by network file systems after a while.
bool comes_to_be_there(const fs::path& folder) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (!fs::is_directory(folder)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

FileRecord record_of(const std::string& name, const std::string& text) {
  FileRecord record{.name = name, .size = text.size(), .checksums = {}};
  for (std::string_view rest = text; !rest.empty();
       rest.remove_prefix(std::min<std::size_t>(rest.size(), block_bytes)))
    record.checksums.push_back(io::crc32c(std::as_bytes(std::span(rest.substr(0, block_bytes)))));
  return record;
}

void write_edges(const fs::path& saving, const Snapshot& snapshot, std::span<const Written> all) {
  std::map<std::uint64_t, FileWriter> writers;
  for (const Written& rank : all)
    for (const Edge& edge : rank.edges) {
      const auto [writer, is_new] =
          writers.try_emplace(edge.file, saving / snapshot.files.at(edge.file).first);
      writer->second.write(edge.offset, std::as_bytes(std::span(edge.bytes)));
    }
  for (auto& [file, writer] : writers) writer.sync();
}

/// Checks that each byte is of one rank: checksums of bytes that two have would be wrong, and where
/// none has them the files hold zeros.
void check_parts(const Snapshot& snapshot, std::span<const Written> all) {
  std::vector<Part> parts;
  for (const Written& rank : all) parts.insert(parts.end(), rank.parts.begin(), rank.parts.end());
  std::ranges::sort(parts);
  auto next = parts.begin();
  for (std::size_t file = 0; file < snapshot.files.size(); ++file) {
    const auto& [name, size] = snapshot.files[file];
    const auto check = [&, &name = name](std::uint64_t begin, std::uint64_t expected) {
      LOCKSTEP_CHECK(begin == expected, InvalidArgument, name, ": ",
                     begin < expected ? "several ranks have" : "no rank has", " the bytes from ",
                     std::min(begin, expected), " to ", std::max(begin, expected) - 1,
                     "; ranks have to give pieces that lie side by side");
    };
    std::uint64_t end = 0;
    for (; next != parts.end() && next->file == file; end = next++->end) check(next->begin, end);
    check(size, end);
  }
}

/// What rank 0 does when all parts are written.
void finish(RunFolder& folder, const Snapshot& snapshot, std::span<const std::string> messages) {
  const fs::path& saving = folder.saving();
  std::vector<Written> all;
  for (const std::string& message : messages) all.push_back(unpack(message));
  check_parts(snapshot, all);
  write_edges(saving, snapshot, all);

  Contributions sums(sizes_of(snapshot));
  std::map<int, std::string> by_rank;
  for (const Written& rank : all) {
    sums.add_packed(rank.sums);
    by_rank.insert(rank.values.begin(), rank.values.end());
  }
  std::vector<std::string> values;
  for (auto& [rank, own] : by_rank) values.push_back(std::move(own));
  Manifest manifest{.step = snapshot.step,
                    .world_size = static_cast<int>(values.size()),
                    .generation = folder.generation(),
                    .save = folder.saves(),
                    .version = version,
                    .metric = snapshot.metric,
                    .files = {}};
  for (std::size_t file = 0; file < snapshot.files.size(); ++file)
    manifest.files.push_back({.name = snapshot.files[file].first,
                              .size = snapshot.files[file].second,
                              .checksums = sums.checksums(file)});
  auto texts = snapshot.texts;
  texts.emplace_back(state_name, write_state_file(snapshot.step, snapshot.shared, values));
  for (const auto& [name, text] : texts) {
    write_file(saving / name, text);
    manifest.files.push_back(record_of(name, text));
  }
  raise_background_failure();  // of a device or a collective, since the state was copied
  write_file(saving / manifest_name, write_manifest(manifest));
  folder.commit(snapshot.step);
}

/// @param is_in_place true on rank 0 if `error` is empty, which says so where it cannot tell the
/// others.
std::string agree_on_place(comm::Communicator& group, const std::string& error, std::int64_t step,
                           bool is_in_place) try {
  return agree(group, error, "a checkpoint is in its place");
} catch (...) {
  if (is_in_place) {
    comm::note_saved(step);
    LOCKSTEP_LOG(warning, "the checkpoint of step ", step,
                 " is in its place, but not all ranks could be told");
  }
  throw;
}

}  // namespace

std::string agree_on_plan(comm::Communicator& group, const Snapshot& snapshot, std::string error,
                          std::string_view label) {
  const std::string plan = snapshot.plan_signature();
  const Compared compared = compare(group, plan, !error.empty(), 0, label);
  if (compared.is_same && !compared.any) return {};
  const std::string first = comm::broadcast_bytes(group, plan, 0, label);
  const std::string headers = comm::broadcast_bytes(group, snapshot.header_texts, 0, label);
  if (error.empty()) error = snapshot.compare_plan(first, headers);
  return agree(group, error, label);
}

std::string write_checkpoint(comm::Communicator& group, RunFolder* folder, const fs::path& path,
                             const Snapshot& snapshot, LaterCopies& later, Throttle& throttle,
                             std::string error) try {
  std::string name;
  if (error.empty() && folder)
    error = error_of([&] {
      name = folder->begin(snapshot.step);
      for (const auto& [file, size] : snapshot.files) create_file(path / name / file, size);
    });
  const fs::path saving =
      path / comm::broadcast_bytes(group, name, 0, "a checkpoint, which all ranks save");
  error = agree_on_plan(group, snapshot, std::move(error), "files of a checkpoint are made");

  Written written;
  if (error.empty()) {
    error = error_of([&] {
      LOCKSTEP_CHECK(comes_to_be_there(saving), InvalidArgument, saving.string(),
                     " is not there, though rank 0 has made it: give all ranks the same folder, in "
                     "a file system that all of them see, and leave it there while the run has it");
      written = write_own(saving, snapshot, folder != nullptr, later, throttle);
    });
    error = throttle.rest_with_others(
        [&] { return agree(group, error, "parts of a checkpoint are written"); });
  }
  if (error.empty()) {
    const std::vector<std::string> messages =
        gather_on_first(group, pack(written), "what ranks wrote of a checkpoint");
    error = error_of([&] {
      if (folder) finish(*folder, snapshot, messages);
    });
    error = agree_on_place(group, error, snapshot.step, folder != nullptr && error.empty());
  }
  if (folder && !error.empty()) folder->discard();
  return error;
} catch (...) {  // of the group
  if (folder) folder->discard();
  throw;
}

}  // namespace lockstep::checkpoint
