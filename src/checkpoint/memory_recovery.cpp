#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "checkpoint/contents.hpp"
#include "checkpoint/exchange.hpp"
#include "checkpoint/file_reader.hpp"
#include "checkpoint/memory_snapshots.hpp"
#include "checkpoint/save.hpp"
#include "lockstep/checkpoint/folder.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/mapped_file.hpp"
#include "lockstep/observe/log.hpp"

// How a run goes on from a snapshot in memory: its parts, wherever they are, become a checkpoint.

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

using Age = std::pair<std::uint64_t, std::int64_t>;  // generation and step

/// That of the checkpoint to be loaded first.
Age age_of_newest(const fs::path& run) {
  Age age{0, -1};
  error_of([&] {  // one that cannot be read is no reason not to look for others
    if (const auto found = newest(run)) {
      const Manifest manifest = read_manifest(found->path);
      age = {manifest.generation, manifest.step};
    }
  });
  return age;
}

std::string read_description(const fs::path& path) {
  const FileReader file(path);
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

using Place = MemorySnapshots::Place;
/// All parts that there are.
using Places = std::map<PartId, std::set<Place>>;

void add_parts(std::size_t host, const std::string& told, Places& places) {
  lockstep::detail::TextReader lines(told);
  PartId id;
  for (std::string name; lines >> id.generation >> id.step >> id.size >> id.rank >> name;)
    places[id].insert({host, name});
}

/// Where the parts of the newest snapshot are that has them all, by rank; none if there is none
/// that is newer than the checkpoints.
std::vector<Place> choose(const Places& places, const Age& saved, PartId& first) {
  for (auto last = places.rbegin(); last != places.rend(); ++last) {
    const PartId id = last->first;
    if (Age{id.generation, id.step} <= saved) return {};
    if (id.rank != id.size - 1) continue;
    std::vector<Place> chosen;
    for (first = id, first.rank = 0; first.rank < id.size; ++first.rank) {
      const auto part = places.find(first);
      if (part == places.end()) break;
      chosen.push_back(*part->second.begin());
    }
    first.rank = 0;
    if (std::ssize(chosen) == id.size) return chosen;
  }
  return {};
}

/// Takes out places that turned out to be damaged. @param told lines of a rank's number and what is
/// wrong with its part.
void forget_damaged(const std::string& told, const std::vector<Place>& chosen, PartId id,
                    Places& places, bool tells) {
  lockstep::detail::TextReader lines(told);
  for (std::string error; lines >> id.rank && std::getline(lines, error);) {
    places[id].erase(chosen.at(static_cast<std::size_t>(id.rank)));
    if (places[id].empty()) places.erase(id);
    if (tells) LOCKSTEP_LOG(warning, error.substr(1));
  }
}

}  // namespace

/// Who reads a rank's part: those of the host in turn.
int MemorySnapshots::holder_of(const Place& place, int rank) const {
  const std::vector<int>& ranks = hosts_[place.host];
  return ranks[static_cast<std::size_t>(rank) % ranks.size()];
}

/// A line for each part that this rank's host has.
std::string MemorySnapshots::parts_here() const {
  std::string lines;
  const auto add = [&](const fs::path& path) {
    const PartId id = id_of_part(read_description(path));
    lines += detail::concat(id.generation, " ", id.step, " ", id.size, " ", id.rank, " ",
                            path.stem().string(), "\n");
  };
  error_of([&] {
    for (const auto& entry : fs::directory_iterator(folder_))
      if (entry.path().extension() == description_suffix)
        error_of([&] { add(entry.path()); });  // one that is damaged is none
  });
  return lines;
}

/// What this rank has of a snapshot.
struct MemorySnapshots::Opened {
  std::vector<io::MappedFile> files;  // in which the segments lie
  std::map<int, Snapshot> parts;
  std::string description;  // of rank 0's part
  std::string damaged;      // a line for each part that is
};

MemorySnapshots::Opened MemorySnapshots::open_parts(const std::vector<Place>& places) const {
  Opened found;
  for (int rank = 0; rank < std::ssize(places); ++rank) {
    const Place& place = places[static_cast<std::size_t>(rank)];
    if (holder_of(place, rank) != group_->rank()) continue;
    const std::string error = error_of([&] {
      std::string description = read_description((folder_ / place.name).concat(description_suffix));
      found.files.emplace_back(folder_ / place.name);
      const std::span<const std::byte> bytes = found.files.back().bytes();
      check_part(description, bytes);
      found.parts[rank] = snapshot_of_part(description, bytes.data());
      if (rank == 0) found.description = std::move(description);
    });
    if (!error.empty()) found.damaged += detail::concat(rank, " ", error, "\n");
  }
  return found;
}

void MemorySnapshots::recover(RunFolder* run, const fs::path& path) {
  wait();
  if (!is_on_) return;
  const Age own = run ? age_of_newest(path) : Age();
  const std::string age = comm::broadcast_bytes(*group_, detail::concat(own.first, " ", own.second),
                                                0, "how new the newest checkpoint is");
  Age saved;
  lockstep::detail::TextReader(age) >> saved.first >> saved.second;
  const auto parts = comm::all_gather_bytes(*group_, parts_here(), "snapshots in memory");
  Places places;
  for (std::size_t host = 0; host < hosts_.size(); ++host)
    add_parts(host, parts[static_cast<std::size_t>(hosts_[host][0])], places);
  PartId id;
  for (std::vector<Place> chosen; !(chosen = choose(places, saved, id)).empty();) {
    const Opened found = open_parts(chosen);
    const auto told = comm::all_gather_bytes(*group_, found.damaged, "damaged parts of a snapshot");
    for (const std::string& lines : told)
      forget_damaged(lines, chosen, id, places, group_->rank() == 0);
    if (!std::ranges::all_of(told, &std::string::empty)) continue;
    Snapshot snapshot;
    const std::string error = join(found, holder_of(chosen[0], 0), snapshot);
    if (error.empty()) return write(run, path, snapshot);
    if (group_->rank() == 0)
      LOCKSTEP_LOG(warning, "the snapshot of step ", id.step, " in memory is not used: ", error);
    for (PartId part = id; part.rank < id.size; ++part.rank) places.erase(part);
  }
}

/// What this rank writes of a snapshot. @return why ranks' parts are none, the same on all.
std::string MemorySnapshots::join(const Opened& found, int holder, Snapshot& snapshot) const {
  const std::string description =
      comm::broadcast_bytes(*group_, found.description, holder, "a snapshot in memory");
  const std::string error = error_of([&] {
    snapshot = snapshot_of_part(description, nullptr);
    snapshot.own_values.clear();
    for (const auto& [rank, part] : found.parts) {
      LOCKSTEP_CHECK(part.files == snapshot.files && part.headers == snapshot.headers &&
                         part.value_names == snapshot.value_names,
                     CorruptData, "of rank ", rank, " it has other states than of rank 0");
      snapshot.segments.insert(snapshot.segments.end(), part.segments.begin(), part.segments.end());
      snapshot.own_values.push_back(part.own_values.at(0));
    }
  });
  return agree(*group_, error, "parts of a snapshot in memory");
}

void MemorySnapshots::write(RunFolder* run, const fs::path& path, const Snapshot& snapshot) {
  const std::string error = write_checkpoint(*group_, run, path, snapshot, later_, throttle_);
  if (group_->rank() != 0) return;
  if (error.empty())
    LOCKSTEP_LOG(info, "the snapshot of step ", snapshot.step, " in memory is a checkpoint now");
  else
    LOCKSTEP_LOG(warning, "the snapshot of step ", snapshot.step,
                 " in memory could not be saved as a checkpoint: ", error);
}

}  // namespace lockstep::checkpoint
