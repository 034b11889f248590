#include "checkpoint/exchange.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <system_error>

#include "lockstep/comm/host_values.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/crc32c.hpp"
#include "lockstep/io/file_error.hpp"

namespace lockstep::checkpoint {
namespace {

/// The kinds of errors, as they travel.
enum class Kind : char {
  unreadable = 'r',
  corrupt = 'c',
  invalid = 'i',
  unsupported = 'u',
  other = 'o'
};

std::string told(const std::function<void()>& body) {
  const auto text = [](Kind kind) {
    return std::string(1, static_cast<char>(kind)) + current_message();
  };
  try {
    body();
    return {};
  } catch (const Unreadable&) {
    return text(Kind::unreadable);
  } catch (const io::FileError&) {
    return text(Kind::unreadable);
  } catch (const CorruptData&) {
    return text(Kind::corrupt);
  } catch (const InvalidArgument&) {
    return text(Kind::invalid);
  } catch (const Unsupported&) {
    return text(Kind::unsupported);
  } catch (...) {
    return text(Kind::other);
  }
}

}  // namespace

void append_text(std::string& message, std::string_view part) {
  const std::uint64_t size = part.size();
  message.append(reinterpret_cast<const char*>(&size), sizeof size);
  message.append(part);
}

std::string_view take_text(std::string_view& message) {
  std::uint64_t size = 0;
  LOCKSTEP_CHECK(message.size() >= sizeof size, CorruptData, "a rank's message is cut short");
  std::memcpy(&size, message.data(), sizeof size);
  message.remove_prefix(sizeof size);
  LOCKSTEP_CHECK(message.size() >= size, CorruptData, "a rank's message is cut short");
  const std::string_view part = message.substr(0, size);
  message.remove_prefix(size);
  return part;
}

void append_number(std::string& message, std::uint64_t number) {
  append_text(message, std::to_string(number));
}

std::uint64_t take_number(std::string_view& message) {
  const std::string_view text = take_text(message);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  LOCKSTEP_CHECK(error == std::errc() && end == text.data() + text.size(), CorruptData,
                 "no number in a rank's message");
  return number;
}

std::vector<std::string> gather_on_first(comm::Communicator& group, const std::string& message,
                                         std::string_view label) {
  const comm::CollectiveOptions options{.label = label};
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(group.size()));
  const std::int64_t own = std::ssize(message);
  group.all_gather({&own, 1, DType::i64}, comm::Buffer(std::span(sizes)), {}, options).wait();
  const auto bytes_of = [](const std::string& text) {
    return comm::Buffer(const_cast<char*>(text.data()), std::ssize(text), DType::u8);
  };
  if (group.rank() != 0) {
    group.send(bytes_of(message), 0, options).wait();
    return {};
  }
  std::vector<std::string> messages{message};
  for (int rank = 1; rank < group.size(); ++rank) {
    messages.emplace_back(static_cast<std::size_t>(sizes[static_cast<std::size_t>(rank)]), '\0');
    group.receive(bytes_of(messages.back()), rank, options).wait();
  }
  return messages;
}

Compared compare(comm::Communicator& group, std::string_view text, bool flag, std::int64_t number,
                 std::string_view label) {
  const std::int64_t own = io::crc32c(std::as_bytes(std::span(text)));
  std::array<std::int64_t, 4> largest{own, -own, flag, number};
  group
      .all_reduce(comm::Buffer(std::span<std::int64_t>(largest)), comm::ReduceOp::max(),
                  {.label = label})
      .wait();
  return {.is_same = largest[0] == -largest[1], .any = largest[2] > 0, .largest = largest[3]};
}

std::string agree(comm::Communicator& group, const std::string& error, std::string_view label) {
  const std::vector<std::string> errors = comm::all_gather_bytes(group, error, label);
  for (std::size_t rank = 0; rank < errors.size(); ++rank)
    if (!errors[rank].empty())
      return errors.size() == 1 ? error : detail::concat("rank ", rank, ": ", errors[rank]);
  return {};
}

void run_on_all(comm::Communicator& group, std::string_view label,
                const std::function<void()>& body) {
  const std::vector<std::string> errors = comm::all_gather_bytes(group, told(body), label);
  const auto first =
      std::ranges::find_if(errors, [](const std::string& each) { return !each.empty(); });
  if (first == errors.end()) return;
  const auto rank = first - errors.begin();
  const std::string message =
      rank == 0 ? first->substr(1) : detail::concat("rank ", rank, ": ", first->substr(1));
  switch (static_cast<Kind>(first->front())) {
    case Kind::unreadable: throw Unreadable(message);
    case Kind::corrupt: throw CorruptData(message);
    case Kind::invalid: throw InvalidArgument(message);
    case Kind::unsupported: throw Unsupported(message);
    default: throw Error(message);
  }
}

}  // namespace lockstep::checkpoint
