#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/current_message.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"

/// @file
/// What ranks tell each other while they save or load.

namespace lockstep::checkpoint {

/// Adds a text to a message of several, and takes the first one away.
/// @throws CorruptData for a message that is cut short.
void append_text(std::string& message, std::string_view text);
std::string_view take_text(std::string_view& message);
/// The same for numbers.
void append_number(std::string& message, std::uint64_t number);
std::uint64_t take_number(std::string_view& message);

/// Every rank's message on rank 0; nothing on the others. Every rank must call it.
std::vector<std::string> gather_on_first(comm::Communicator& group, const std::string& message,
                                         std::string_view label);

/// What ranks have alike.
struct Compared {
  bool is_same = false;      ///< all give the same text
  bool any = false;          ///< one of them gives the flag
  std::int64_t largest = 0;  ///< of the numbers that they give
};

/// Compares the ranks' texts by their checksums, tells whether any gives a flag, and the largest of
/// their numbers: one exchange, of four numbers. Every rank must call it.
Compared compare(comm::Communicator& group, std::string_view text, bool flag, std::int64_t number,
                 std::string_view label);

/// Each rank's error, or nothing, becomes the first of all. Every rank must call it.
std::string agree(comm::Communicator& group, const std::string& error, std::string_view label);

/// What a rank could not open or read, for a reason of the system, which may be gone a moment
/// later: network file systems tell of new files late, and refuse handles that were right.
class Unreadable : public CorruptData {
 public:
  using CorruptData::CorruptData;
};

/// Runs `body` and throws the first error of all ranks on each of them: Unreadable for a FileError,
/// CorruptData, InvalidArgument, Unsupported, and for others Error. Every rank must call it.
void run_on_all(comm::Communicator& group, std::string_view label,
                const std::function<void()>& body);

/// What `body` throws, as text that is not empty, whatever it is.
template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
    return {};
  } catch (...) {
    const std::string message = current_message();
    return message.empty() ? "an error that says nothing" : message;
  }
}

}  // namespace lockstep::checkpoint
