#include "checkpoint/load.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <span>

#include "checkpoint/contents.hpp"
#include "checkpoint/exchange.hpp"
#include "checkpoint/file_reader.hpp"
#include "checkpoint/names.hpp"
#include "checkpoint/share.hpp"
#include "io/in_quotes.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/crc32c.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t chunk_bytes = std::size_t{1} << 20;  // stays in cache for its checksum
constexpr std::size_t batch_size = 64;                     // exchanges that begin as one

/// One state's files, and what this rank reads of them.
struct Reading {
  StemContents contents;
  std::vector<std::optional<parallel::ShardRange>> ranges;  ///< of each tensor what it wants
  std::vector<Tensor> tensors;
};

std::byte* bytes_of(const Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

std::vector<std::uint64_t> sizes_of(const StemContents& contents) {
  std::vector<std::uint64_t> sizes;
  for (const FileRecord& file : contents.files) sizes.push_back(file.size);
  return sizes;
}

/// Where the parts end in which ranks read what all of them want.
std::vector<std::vector<std::pair<std::uint64_t, std::uint64_t>>> parts_of_all(
    const StemContents& contents, int size) {
  const std::vector<std::uint64_t> sizes = sizes_of(contents);
  std::vector<std::vector<std::pair<std::uint64_t, std::uint64_t>>> parts;
  for (int rank = 0; rank < size; ++rank) parts.push_back(equal_parts(sizes, rank, size));
  return parts;
}

Reading plan(const fs::path& checkpoint, const Manifest& manifest, const std::string& name,
             const TensorState& state) {
  Reading reading{.contents = read_stem(checkpoint, manifest, name), .ranges = {}, .tensors = {}};
  for (const PlannedTensor& tensor : reading.contents.tensors) {
    const auto range = state.wanted ? state.wanted(tensor.spec.name, tensor.spec.shape)
                                    : std::optional<parallel::ShardRange>();
    const Shape shape = range ? Shape{range->count} : tensor.spec.shape;
    reading.ranges.push_back(range);
    reading.tensors.push_back(empty(shape, {.dtype = tensor.spec.dtype}));
  }
  return reading;
}

void read_bytes(const FileReader& file, std::size_t number, std::uint64_t offset,
                std::span<std::byte> bytes, Contributions& sums) {
  while (!bytes.empty()) {
    const auto chunk = bytes.first(std::min(bytes.size(), chunk_bytes));
    file.read(offset, chunk);
    sums.add(number, offset, chunk);
    bytes = bytes.subspan(chunk.size());
    offset += chunk.size();
  }
}

/// Reads this rank's part, headers on rank 0. @return what it adds to the checksums.
std::string read_own(const fs::path& checkpoint, const Reading& reading, int rank, int size) {
  const StemContents& contents = reading.contents;
  Contributions sums(sizes_of(contents));
  const auto extents =
      own_extents(contents.tensors, reading.ranges, equal_parts(sizes_of(contents), rank, size));
  auto next = extents.begin();
  for (std::size_t i = 0; i < contents.files.size(); ++i) {
    const FileReader file(checkpoint / contents.files[i].name);
    if (rank == 0) {
      std::vector<std::byte> header(contents.data_begin[i]);
      read_bytes(file, i, 0, header, sums);
    }
    for (; next != extents.end() && next->file == i; ++next)
      read_bytes(file, i, next->offset,
                 {bytes_of(reading.tensors[next->tensor]) + next->from, next->bytes}, sums);
  }
  return sums.pack();
}

/// What is wrong, on rank 0; nothing if all is right.
void check(const fs::path& checkpoint, const StemContents& contents,
           std::span<const std::string> messages) {
  Contributions sums(sizes_of(contents));
  for (const std::string& message : messages) sums.add_packed(message);
  for (std::size_t i = 0; i < contents.files.size(); ++i) {
    const std::vector<std::uint32_t> found = sums.checksums(i);
    const auto& expected = contents.files[i].checksums;
    const auto wrong = std::ranges::mismatch(found, expected).in1;
    LOCKSTEP_CHECK(
        wrong == found.end(), CorruptData, checkpoint.string(), ": ",
        describe(damage_of(contents.files[i], static_cast<std::size_t>(wrong - found.begin()),
                           *wrong, &contents)));
  }
}

/// Gives every rank what the others read of the tensors that all want.
void exchange(comm::Communicator& group, const Reading& reading) {
  if (group.size() == 1) return;
  const auto parts = parts_of_all(reading.contents, group.size());
  const auto& tensors = reading.contents.tensors;
  const auto begins = [&](std::size_t i, int rank) {
    const auto [low, high] = parts[static_cast<std::size_t>(rank)][tensors[i].file];
    const std::uint64_t end = tensors[i].offset + tensors[i].bytes;
    return std::pair{std::clamp(low, tensors[i].offset, end) - tensors[i].offset,
                     std::clamp(high, tensors[i].offset, end) - tensors[i].offset};
  };
  for (std::size_t first = 0; first < tensors.size(); first += batch_size)
    group
        .batch([&] {
          for (std::size_t i = first; i < std::min(first + batch_size, tensors.size()); ++i) {
            if (reading.ranges[i] || tensors[i].bytes == 0) continue;
            std::vector<std::int64_t> counts;
            for (int rank = 0; rank < group.size(); ++rank) {
              const auto [begin, end] = begins(i, rank);
              counts.push_back(static_cast<std::int64_t>(end - begin));
            }
            std::byte* bytes = bytes_of(reading.tensors[i]);
            const auto own = static_cast<std::size_t>(group.rank());
            group.all_gather({bytes + begins(i, group.rank()).first, counts[own], DType::u8},
                             {bytes, static_cast<std::int64_t>(tensors[i].bytes), DType::u8},
                             counts, {.label = "a tensor of a checkpoint"});
          }
        })
        .wait();
}

std::vector<std::string> names_of(const Registry& registry) {
  std::vector<std::string> names;
  for (const auto& [name, state] : registry.tensors) names.push_back(name);
  for (const auto& [name, state] : registry.values) names.push_back(name);
  return names;
}

/// What ranks have to have alike, or they would take over states of different checkpoints.
struct Plan {
  std::string checkpoint, states;
};

Plan plan_of(const std::string& manifest, const Registry& registry,
             std::span<const Reading> readings) {
  Plan plan{.checkpoint = std::to_string(io::crc32c(std::as_bytes(std::span(manifest)))),
            .states = {}};
  for (const std::string& name : names_of(registry)) plan.states += io::in_quotes(name) + " ";
  std::string shared;  // which tensors go to all ranks
  for (const Reading& reading : readings)
    for (const auto& range : reading.ranges) shared += range ? '0' : '1';
  plan.states += detail::concat("(", io::crc32c(std::as_bytes(std::span(shared))), ")");
  return plan;
}

void check_alike(comm::Communicator& group, const Plan& own) {
  const std::string checkpoint =
      comm::broadcast_bytes(group, own.checkpoint, 0, "which checkpoint is loaded");
  const std::string states = comm::broadcast_bytes(group, own.states, 0, "which states are loaded");
  run_on_all(group, "all ranks load alike", [&] {
    LOCKSTEP_CHECK(own.checkpoint == checkpoint, CorruptData,
                   "its checkpoint is another than that of rank 0");
    LOCKSTEP_CHECK(own.states == states, InvalidArgument, "it would load ", own.states,
                   ", and rank 0 ", states);
  });
}

void check_values(const fs::path& checkpoint, const Registry& registry, const StateFile& file) {
  const auto has = [](const std::string& name) {
    return [&name](const NamedValues& values) { return values.contains(name); };
  };
  for (const auto& [name, value] : registry.values)
    LOCKSTEP_CHECK(value.load_on_new_rank
                       ? !file.ranks.empty() && std::ranges::all_of(file.ranks, has(name))
                       : file.shared.contains(name),
                   InvalidArgument, checkpoint.string(), " has no ", io::in_quotes(name),
                   ": it was saved without");
}

}  // namespace

Loaded read_checkpoint(comm::Communicator& group, const fs::path& checkpoint,
                       const Registry& registry) {
  Loaded loaded;
  std::string manifest_text;
  std::vector<Reading> readings;
  run_on_all(group, "what a checkpoint has", [&] {
    const Manifest manifest = read_manifest(checkpoint);
    manifest_text = write_manifest(manifest);
    const auto state = std::ranges::find(manifest.files, state_name, &FileRecord::name);
    LOCKSTEP_CHECK(state != manifest.files.end(), CorruptData, checkpoint.string(), " has no ",
                   state_name);
    loaded.values =
        parse_state_file(read_checked(checkpoint, *state), (checkpoint / state_name).string());
    check_values(checkpoint, registry, loaded.values);
    for (const auto& [name, tensors] : registry.tensors)
      readings.push_back(plan(checkpoint, manifest, name, tensors));
  });
  check_alike(group, plan_of(manifest_text, registry, readings));
  std::vector<std::string> sums(readings.size());
  run_on_all(group, "parts of a checkpoint are read", [&] {
    for (std::size_t i = 0; i < readings.size(); ++i)
      sums[i] = read_own(checkpoint, readings[i], group.rank(), group.size());
  });
  for (std::size_t i = 0; i < readings.size(); ++i) {
    const auto messages = gather_on_first(group, sums[i], "checksums of a checkpoint");
    run_on_all(group, "a checkpoint is whole", [&] {
      if (group.rank() == 0) check(checkpoint, readings[i].contents, messages);
    });
    exchange(group, readings[i]);
    NamedTensors& tensors = loaded.tensors.emplace_back();
    for (std::size_t t = 0; t < readings[i].tensors.size(); ++t)
      tensors.emplace_back(readings[i].contents.tensors[t].spec.name, readings[i].tensors[t]);
  }
  return loaded;
}

}  // namespace lockstep::checkpoint
