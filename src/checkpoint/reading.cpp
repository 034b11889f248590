#include "checkpoint/reading.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "checkpoint/exchange.hpp"
#include "checkpoint/part_reader.hpp"
#include "checkpoint/share.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/core/parallel.hpp"
#include "lockstep/parallel/writable_buffer.hpp"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t round_bytes = std::uint64_t{8} << 20;  // of each rank, before an exchange
constexpr std::size_t batch_size = 64;                         // exchanges that begin as one

/// Bytes of a tensor that one rank reads.
struct Item {
  std::size_t reading;
  Extent extent;
};

using Round = std::vector<Item>;

/// Of which tensors: those that all ranks want, or those of which each wants its own range.
enum class Wanted { by_all, in_ranges };

/// What a rank reads of tensors that training has, or of the others.
std::vector<Item> items_of(std::span<const Reading> readings, bool in_place, Wanted wanted,
                           int rank, int size) {
  std::vector<Item> items;
  for (std::size_t i = 0; i < readings.size(); ++i) {
    const Reading& reading = readings[i];
    const auto parts = equal_parts(sizes_of(reading.contents), rank, size);
    for (const Extent& extent : own_extents(reading.contents.tensors, reading.ranges, parts))
      if (reading.in_place[extent.tensor] == in_place &&
          reading.ranges[extent.tensor].has_value() == (wanted == Wanted::in_ranges))
        items.push_back({i, extent});
  }
  return items;
}

/// What a rank reads of what all want between one exchange and the next.
std::vector<Round> rounds_of(std::span<const Reading> readings, bool in_place, int rank, int size) {
  std::vector<Round> rounds;
  std::uint64_t used = round_bytes;
  for (Item item : items_of(readings, in_place, Wanted::by_all, rank, size)) {
    Extent& rest = item.extent;
    while (rest.bytes > 0) {
      if (used == round_bytes) {
        rounds.emplace_back();
        used = 0;
      }
      Item next = item;
      next.extent.bytes = std::min(rest.bytes, round_bytes - used);
      rounds.back().push_back(next);
      used += next.extent.bytes;
      rest.bytes -= next.extent.bytes;
      rest.offset += next.extent.bytes;
      rest.from += next.extent.bytes;
    }
  }
  return rounds;
}

/// The same of all ranks: what each exchange consists of.
std::vector<std::vector<std::pair<int, Item>>> exchanges_of(std::span<const Reading> readings,
                                                            bool in_place, int size) {
  std::vector<std::vector<std::pair<int, Item>>> exchanges;
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<Round> rounds = rounds_of(readings, in_place, rank, size);
    exchanges.resize(std::max(exchanges.size(), rounds.size()));
    for (std::size_t i = 0; i < rounds.size(); ++i)
      for (const Item& item : rounds[i]) exchanges[i].emplace_back(rank, item);
  }
  return exchanges;
}

std::span<std::byte> place_of(std::span<const Reading> readings, const Item& item) {
  const Tensor& tensor = readings[item.reading].tensors[item.extent.tensor];
  return {static_cast<std::byte*>(tensor.data_ptr()) + item.extent.from, item.extent.bytes};
}

/// All that a rank reads of tensors that training has, of each reading in the order of Staged.
std::vector<Item> staged_items(std::span<const Reading> readings, int rank, int size) {
  std::vector<Item> items;
  for (std::size_t i = 0; i < readings.size(); ++i) {
    const auto add = [&](Item item) {
      item.reading = i;
      items.push_back(item);
    };
    for (const Round& round : rounds_of(readings.subspan(i, 1), true, rank, size))
      std::ranges::for_each(round, add);
    std::ranges::for_each(items_of(readings.subspan(i, 1), true, Wanted::in_ranges, rank, size),
                          add);
  }
  return items;
}

std::vector<Staged> stage(const std::vector<Item>& items, std::size_t readings, Staging& staging) {
  std::uint64_t bytes = 0;
  for (const Item& item : items) bytes += item.extent.bytes;
  staging.reserve(bytes, items.empty() ? 0 : 1);
  std::span<std::byte> rest = staging.take(bytes, 0);
  std::vector<Staged> staged(readings);
  for (const Item& item : items) {
    staged[item.reading].push_back(rest.first(item.extent.bytes));
    rest = rest.subspan(item.extent.bytes);
  }
  return staged;
}

/// Gives all ranks what each has of some items.
void exchange(comm::Communicator& group, std::span<const Reading> readings,
              std::span<const std::pair<int, Item>> items) {
  for (std::size_t first = 0; first < items.size(); first += batch_size)
    group
        .batch([&] {
          for (const auto& [rank, item] :
               items.subspan(first, std::min(batch_size, items.size() - first))) {
            const std::span<std::byte> place = place_of(readings, item);
            group.broadcast({place.data(), std::ssize(place), DType::u8}, rank,
                            {.label = "a tensor of a checkpoint"});
          }
        })
        .wait();
}

void copy(std::span<const std::byte> from, std::span<std::byte> to) {
  parallel_for(std::ssize(to), 1 << 20, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(to.data() + begin, from.data() + begin, static_cast<std::size_t>(end - begin));
  });
}

PartOfFile part_of(const Item& item, std::span<std::byte> to, std::size_t round) {
  return {.reading = item.reading,
          .file = item.extent.file,
          .offset = item.extent.offset,
          .to = to,
          .round = round};
}

}  // namespace

std::vector<std::string> read_and_exchange(comm::Communicator& group, const fs::path& checkpoint,
                                           std::span<const Reading> readings, Staging& staging,
                                           std::vector<Staged>& staged) {
  const int rank = group.rank(), size = group.size();
  const std::vector<Round> rounds = rounds_of(readings, false, rank, size);
  const auto exchanges = exchanges_of(readings, false, size > 1 ? size : 0);
  const std::size_t last = std::max(rounds.size(), exchanges.size());  // for what no exchange needs
  std::vector<PartOfFile> parts;
  for (std::size_t i = 0; i < rounds.size(); ++i)
    for (const Item& item : rounds[i]) parts.push_back(part_of(item, place_of(readings, item), i));
  for (const Item& item : items_of(readings, false, Wanted::in_ranges, rank, size))
    parts.push_back(part_of(item, place_of(readings, item), last));
  const std::vector<Item> items = staged_items(readings, rank, size);
  run_on_all(group, "memory to read a checkpoint",
             [&] { staged = stage(items, readings.size(), staging); });
  std::vector<std::size_t> next(readings.size());
  for (const Item& item : items)
    parts.push_back(part_of(item, staged[item.reading][next[item.reading]++], last));
  PartReader own(checkpoint, readings, std::move(parts), rank == 0);
  // A rank whose reads fail goes on: the others are told at the end.
  for (std::size_t i = 0; i < exchanges.size(); ++i) {
    own.wait_for(i);
    exchange(group, readings, exchanges[i]);
  }
  std::vector<std::string> sums;
  run_on_all(group, "parts of a checkpoint are read", [&] {
    for (const Contributions& each : own.sums()) sums.push_back(each.pack());
  });
  return sums;
}

void fill_in_place(comm::Communicator& group, const Reading& reading, const Staged& staged) {
  const NoGradGuard no_recording;
  const std::span<const Reading> readings(&reading, 1);
  // Waits for collectives that write there, and throws what they failed with.
  run_on_all(group, "tensors that training has can be filled", [&] {
    for (std::size_t i = 0; i < reading.tensors.size(); ++i)
      if (reading.in_place[i]) parallel::writable_buffer(reading.tensors[i]);
  });
  std::size_t next = 0;
  const auto take_staged = [&](const Item& item) {
    copy(staged[next++], place_of(readings, item));
  };
  for (const auto& items : exchanges_of(readings, true, group.size())) {
    for (const auto& [rank, item] : items)
      if (rank == group.rank()) take_staged(item);
    if (group.size() > 1) exchange(group, readings, items);
  }
  for (const Item& item : items_of(readings, true, Wanted::in_ranges, group.rank(), group.size()))
    take_staged(item);
}

}  // namespace lockstep::checkpoint
