#include "checkpoint/reading.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "checkpoint/exchange.hpp"
#include "checkpoint/part_reader.hpp"
#include "checkpoint/share.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/parallel/writable_buffer.hpp"
#include "tensor/background_reads.hpp"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t round_bytes = std::uint64_t{8} << 20;  // of each rank, before an exchange
constexpr std::size_t rounds_between_words = 4;
constexpr std::size_t batch_size = 64;  // exchanges that begin as one

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

/// What a rank reads of some items between one exchange, or word to the others, and the next.
std::vector<Round> rounds_of(const std::vector<Item>& items) {
  std::vector<Round> rounds;
  std::uint64_t used = round_bytes;
  for (Item item : items) {
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

/// Of what all want.
std::vector<Round> rounds_of(std::span<const Reading> readings, bool in_place, int rank, int size) {
  return rounds_of(items_of(readings, in_place, Wanted::by_all, rank, size));
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

/// What a rank reads of tensors that training has, and of those of which it wants its own range:
/// nobody waits for that.
std::vector<Round> own_rounds(std::span<const Reading> readings, int rank, int size) {
  std::vector<Item> items;
  for (const auto& [in_place, wanted] :
       {std::pair(false, Wanted::in_ranges), std::pair(true, Wanted::in_ranges),
        std::pair(true, Wanted::by_all)})
    std::ranges::copy(items_of(readings, in_place, wanted, rank, size), std::back_inserter(items));
  return rounds_of(items);
}

bool is_in_place(std::span<const Reading> readings, const Item& item) {
  return readings[item.reading].in_place[item.extent.tensor];
}

/// Memory for what the places of tensors that training has have now, once nobody reads those in the
/// background.
std::byte* reserve_former(std::span<const Reading> readings, std::span<const Round> rounds,
                          Staging& staging) {
  std::uint64_t bytes = 0;
  for (const Round& round : rounds)
    for (const Item& item : round)
      if (is_in_place(readings, item)) bytes += item.extent.bytes;
  staging.reserve(bytes, bytes > 0 ? 1 : 0);
  for (const Reading& reading : readings)
    for (std::size_t i = 0; i < reading.tensors.size(); ++i)
      if (reading.in_place[i]) wait_for_reads(reading.tensors[i]);
  return staging.take(bytes, 0).data();
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

PartOfFile part_of(std::span<const Reading> readings, const Item& item, std::size_t round,
                   std::byte* former = nullptr) {
  return {.reading = item.reading,
          .file = item.extent.file,
          .offset = item.extent.offset,
          .to = place_of(readings, item),
          .former = former,
          .round = round};
}

/// Where rounds are that no exchange waits for, all ranks wait for each other now and then: they
/// would take one whose disk is slow for one that does not answer.
void wait_for_own_rounds(comm::Communicator& group, PartReader& reader, std::size_t first,
                         std::size_t count) {
  if (group.size() == 1) return;
  const std::int64_t most = comm::all_reduce_scalar(group, static_cast<std::int64_t>(count),
                                                    comm::ReduceOp::max(), "how long ranks read");
  for (std::size_t i = 0; i < static_cast<std::size_t>(most); i += rounds_between_words) {
    reader.wait_for(first + i);
    group.barrier().wait();
  }
}

}  // namespace

std::vector<std::string> read_and_exchange(comm::Communicator& group, const fs::path& checkpoint,
                                           std::span<const Reading> readings, Staging& staging,
                                           std::vector<FormerValues>& former) {
  const int rank = group.rank(), size = group.size();
  const std::vector<Round> rounds = rounds_of(readings, false, rank, size);
  const std::vector<Round> own = own_rounds(readings, rank, size);
  const auto exchanges = exchanges_of(readings, false, size > 1 ? size : 0);
  const std::size_t first_own = std::max(rounds.size(), exchanges.size());
  std::vector<PartOfFile> parts;
  for (std::size_t i = 0; i < rounds.size(); ++i)
    for (const Item& item : rounds[i]) parts.push_back(part_of(readings, item, i));
  run_on_all(group, "memory to read a checkpoint", [&] {
    std::byte* next = reserve_former(readings, own, staging);
    for (std::size_t i = 0; i < own.size(); ++i)
      for (const Item& item : own[i]) {
        const bool changes = is_in_place(readings, item);
        parts.push_back(part_of(readings, item, first_own + i, changes ? next : nullptr));
        if (changes) next += item.extent.bytes;
      }
    former = std::vector<FormerValues>(readings.size());
  });
  PartReader reader(checkpoint, readings, std::move(parts), rank == 0, former);
  // A rank whose reads fail goes on: the others are told at the end.
  for (std::size_t i = 0; i < exchanges.size(); ++i) {
    reader.wait_for(i);
    exchange(group, readings, exchanges[i]);
  }
  wait_for_own_rounds(group, reader, first_own, own.size());
  std::vector<std::string> sums;
  run_on_all(group, "parts of a checkpoint are read", [&] {
    for (const Contributions& each : reader.sums()) sums.push_back(each.pack());
  });
  return sums;
}

void fill_in_place(comm::Communicator& group, const Reading& reading, FormerValues& former) {
  const NoGradGuard no_recording;
  run_on_all(group, "tensors that training has can be filled", [&] {
    for (std::size_t i = 0; i < reading.tensors.size(); ++i)
      if (reading.in_place[i]) parallel::writable_buffer(reading.tensors[i]);
  });
  former.forget();
  if (group.size() == 1) return;
  const std::span<const Reading> readings(&reading, 1);
  for (const auto& items : exchanges_of(readings, true, group.size()))
    exchange(group, readings, items);
}

}  // namespace lockstep::checkpoint
