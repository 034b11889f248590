#include "checkpoint/exchange.hpp"

#include <cstdint>
#include <iterator>
#include <span>

#include "lockstep/comm/host_values.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::checkpoint {

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

std::string agree(comm::Communicator& group, const std::string& error, std::string_view label) {
  const std::vector<std::string> errors = comm::all_gather_bytes(group, error, label);
  for (std::size_t rank = 0; rank < errors.size(); ++rank)
    if (!errors[rank].empty())
      return errors.size() == 1 ? error : detail::concat("rank ", rank, ": ", errors[rank]);
  return {};
}

}  // namespace lockstep::checkpoint
