#include "checkpoint/save.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "checkpoint/exchange.hpp"
#include "checkpoint/file_writer.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/names.hpp"
#include "checkpoint/share.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/io/crc32c.hpp"
#include "lockstep/version.hpp"
#include "runtime/background_failure.hpp"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t chunk_bytes = std::size_t{8} << 20;  // one write

/// The beginning or end of a segment that does not fill a page. Rank 0 writes them all: on network
/// file systems two hosts that write one page undo each other's bytes.
struct Edge {
  std::uint64_t file, offset;
  std::string bytes;
};

/// Bytes of a file that a rank has.
struct Part {
  std::uint64_t file, begin, end;
  friend auto operator<=>(const Part&, const Part&) = default;
};

/// What a rank tells rank 0 of the part that it wrote.
struct Written {
  std::string sums;  ///< as Contributions packs them
  std::vector<Edge> edges;
  std::string values;  ///< of its own
  std::vector<Part> parts;
};

void append(std::string& message, std::string_view part) {
  const std::uint64_t size = part.size();
  message.append(reinterpret_cast<const char*>(&size), sizeof size);
  message.append(part);
}

std::string_view take(std::string_view& message) {
  std::uint64_t size = 0;
  LOCKSTEP_CHECK(message.size() >= sizeof size, CorruptData, "a rank's message is cut short");
  std::memcpy(&size, message.data(), sizeof size);
  message.remove_prefix(sizeof size);
  LOCKSTEP_CHECK(message.size() >= size, CorruptData, "a rank's message is cut short");
  const std::string_view part = message.substr(0, size);
  message.remove_prefix(size);
  return part;
}

std::string pack(const Written& written) {
  std::string message;
  append(message, written.sums);
  append(message, written.values);
  append(message, {reinterpret_cast<const char*>(written.parts.data()),
                   written.parts.size() * sizeof(Part)});
  for (const Edge& edge : written.edges) {
    append(message, std::to_string(edge.file));
    append(message, std::to_string(edge.offset));
    append(message, edge.bytes);
  }
  return message;
}

Written unpack(std::string_view message) {
  Written written;
  written.sums = take(message);
  written.values = take(message);
  const std::string_view parts = take(message);
  written.parts.resize(parts.size() / sizeof(Part));
  std::memcpy(written.parts.data(), parts.data(), written.parts.size() * sizeof(Part));
  while (!message.empty()) {
    const std::uint64_t file = std::stoull(std::string(take(message)));
    const std::uint64_t offset = std::stoull(std::string(take(message)));
    written.edges.push_back({file, offset, std::string(take(message))});
  }
  return written;
}

std::vector<std::uint64_t> sizes_of(const Snapshot& snapshot) {
  std::vector<std::uint64_t> sizes;
  for (const auto& [name, size] : snapshot.files) sizes.push_back(size);
  return sizes;
}

/// Writes the pages that a segment fills, and keeps what is left at its ends.
void write_segment(FileWriter& writer, const Segment& segment, Contributions& sums,
                   std::vector<Edge>& edges) {
  const std::uint64_t begin = segment.offset, end = begin + segment.bytes.size();
  const std::uint64_t first = std::min((begin + page_bytes - 1) / page_bytes * page_bytes, end);
  const std::uint64_t last = std::max(end / page_bytes * page_bytes, first);
  const auto bytes = [&](std::uint64_t from, std::uint64_t to) {
    return segment.bytes.subspan(from - begin, to - from);
  };
  for (std::uint64_t at = begin; at < end;) {
    // Checksums of what is written next, while it is in cache.
    const std::uint64_t next = at < first  ? first
                               : at < last ? std::min<std::uint64_t>(last, at + chunk_bytes)
                                           : end;
    sums.add(segment.file, at, bytes(at, next));
    if (at >= first && at < last)
      writer.write(at, bytes(at, next));
    else
      edges.push_back(
          {segment.file, at,
           std::string(reinterpret_cast<const char*>(bytes(at, next).data()), next - at)});
    at = next;
  }
}

Written write_own(const fs::path& saving, const Snapshot& snapshot) {
  Contributions sums(sizes_of(snapshot));
  Written written;
  std::map<std::size_t, FileWriter> writers;
  for (const Segment& segment : snapshot.segments) {
    const auto [writer, is_new] =
        writers.try_emplace(segment.file, saving / snapshot.files[segment.file].first);
    write_segment(writer->second, segment, sums, written.edges);
    written.parts.push_back({segment.file, segment.offset, segment.offset + segment.bytes.size()});
  }
  for (auto& [file, writer] : writers) writer.sync();
  written.sums = sums.pack();
  written.values = snapshot.own_values;
  return written;
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
void finish(const RunFolder& folder, const Snapshot& snapshot,
            std::span<const std::string> messages) {
  const fs::path& saving = folder.saving();
  std::vector<Written> all;
  for (const std::string& message : messages) all.push_back(unpack(message));
  check_parts(snapshot, all);
  write_edges(saving, snapshot, all);

  Contributions sums(sizes_of(snapshot));
  std::vector<std::string> values;
  for (const Written& rank : all) {
    sums.add_packed(rank.sums);
    values.push_back(rank.values);
  }
  Manifest manifest{.step = snapshot.step,
                    .world_size = static_cast<int>(all.size()),
                    .generation = folder.generation(),
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

}  // namespace

std::string write_checkpoint(comm::Communicator& group, RunFolder* folder, const fs::path& path,
                             const Snapshot& snapshot, std::string error) try {
  const std::string plan = snapshot.plan_signature();
  std::string name;
  if (error.empty() && folder)
    error = error_of([&] {
      name = folder->begin(snapshot.step);
      for (const auto& [file, size] : snapshot.files) create_file(path / name / file, size);
    });
  // Names of folders hold no line's end.
  const std::string told =
      comm::broadcast_bytes(group, name + "\n" + plan, 0, "plan of a checkpoint");
  const std::string plan_of_first = told.substr(told.find('\n') + 1);
  const fs::path saving = path / told.substr(0, told.find('\n'));
  if (error.empty() && plan_of_first != plan)
    error = detail::concat("it would save ", plan.substr(0, 1000), " and rank 0 ",
                           plan_of_first.substr(0, 1000));
  error = agree(group, error, "files of a checkpoint are made");

  Written written;
  if (error.empty())
    error = agree(group, error_of([&] { written = write_own(saving, snapshot); }),
                  "parts of a checkpoint are written");
  if (error.empty()) {
    const std::vector<std::string> messages =
        gather_on_first(group, pack(written), "what ranks wrote of a checkpoint");
    error = agree(group, error_of([&] {
                    if (folder) finish(*folder, snapshot, messages);
                  }),
                  "a checkpoint is in its place");
  }
  if (folder && !error.empty()) folder->discard();
  return error;
} catch (...) {  // of the group
  if (folder) folder->discard();
  throw;
}

}  // namespace lockstep::checkpoint
