#include "checkpoint/memory_part.hpp"

#include <utility>

#include "checkpoint/exchange.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/crc32c.hpp"

namespace lockstep::checkpoint {
namespace {

constexpr std::string_view snapshot_format = "lockstep snapshot 1";

/// What follows the checksum and the format.
std::string_view checked(std::string_view description) {
  const std::uint64_t checksum = take_number(description);
  LOCKSTEP_CHECK(checksum == io::crc32c(std::as_bytes(std::span(description))) &&
                     take_text(description) == snapshot_format,
                 CorruptData, "the description of a snapshot is damaged");
  return description;
}

PartId take_id(std::string_view& text) {
  PartId id;
  id.generation = take_number(text);
  id.step = static_cast<std::int64_t>(take_number(text));
  id.size = static_cast<int>(take_number(text));
  id.rank = static_cast<int>(take_number(text));
  return id;
}

void append_id(std::string& text, const PartId& id) {
  append_number(text, id.generation);
  for (const std::int64_t number : {id.step, std::int64_t{id.size}, std::int64_t{id.rank}})
    append_number(text, static_cast<std::uint64_t>(number));
}

template <class Append>
void append_all(std::string& text, const auto& all, const Append& append) {
  append_number(text, all.size());
  for (const auto& each : all) append(each);
}

}  // namespace

std::string describe_part(const PartId& id, const Snapshot& snapshot,
                          std::span<const std::byte> bytes) {
  std::string text;
  append_text(text, snapshot_format);
  append_id(text, id);
  append_number(text, bytes.size());
  append_number(text, io::crc32c(bytes));
  append_number(text, snapshot.headers);
  append_all(text, snapshot.files, [&](const auto& file) {
    append_text(text, file.first);
    append_number(text, file.second);
  });
  append_all(text, snapshot.segments, [&](const Segment& segment) {
    for (const std::uint64_t number :
         {std::uint64_t{segment.file}, segment.offset,
          static_cast<std::uint64_t>(segment.bytes.data() - bytes.data()),
          std::uint64_t{segment.bytes.size()}})
      append_number(text, number);
  });
  append_text(text, snapshot.own_values.at(0).second);
  append_text(text, snapshot.value_names);
  const bool counts = id.rank == 0;  // what all have alike
  append_all(text, counts ? snapshot.texts : decltype(snapshot.texts)(), [&](const auto& file) {
    append_text(text, file.first);
    append_text(text, file.second);
  });
  append_text(text, write_values(counts ? snapshot.shared : NamedValues()));
  std::string description;
  append_number(description, io::crc32c(std::as_bytes(std::span(text))));
  return description + text;
}

PartId id_of_part(std::string_view description) {
  std::string_view text = checked(description);
  return take_id(text);
}

void check_part(std::string_view description, std::span<const std::byte> bytes) {
  std::string_view text = checked(description);
  const PartId id = take_id(text);
  const std::uint64_t size = take_number(text), checksum = take_number(text);
  LOCKSTEP_CHECK(bytes.size() >= size && io::crc32c(bytes.first(size)) == checksum, CorruptData,
                 "rank ", id.rank, "'s part of the snapshot of step ", id.step,
                 " in memory is damaged");
}

Snapshot snapshot_of_part(std::string_view description, const std::byte* bytes) {
  std::string_view text = checked(description);
  const PartId id = take_id(text);
  take_number(text);  // the size of the bytes
  take_number(text);  // and their checksum
  Snapshot snapshot;
  snapshot.step = id.step;
  snapshot.headers = static_cast<std::uint32_t>(take_number(text));
  for (std::uint64_t count = take_number(text); count > 0; --count) {
    std::string name(take_text(text));
    snapshot.files.emplace_back(std::move(name), take_number(text));
  }
  for (std::uint64_t count = take_number(text); count > 0; --count) {
    const std::uint64_t file = take_number(text), offset = take_number(text);
    const std::uint64_t at = take_number(text), length = take_number(text);
    if (bytes) snapshot.segments.push_back({file, offset, {bytes + at, length}});
  }
  snapshot.own_values = {{id.rank, std::string(take_text(text))}};
  snapshot.value_names = take_text(text);
  for (std::uint64_t count = take_number(text); count > 0; --count) {
    std::string name(take_text(text));
    snapshot.texts.emplace_back(std::move(name), take_text(text));
  }
  snapshot.shared = parse_values(take_text(text), "a snapshot in memory");
  return snapshot;
}

}  // namespace lockstep::checkpoint
