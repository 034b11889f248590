#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// @file
/// What ranks that meet over TCP say to each other while they join: a length, then so many bytes.

namespace lockstep::comm {

/// What ranks tell each other before there is a communicator is short: addresses, names, settings.
inline constexpr std::uint64_t max_exchange = std::uint64_t{256} << 20;  // of all ranks together
/// In a length: what follows says why the sender gives up.
inline constexpr std::uint64_t failure_flag = std::uint64_t{1} << 63;
inline constexpr std::uint64_t max_failure_text = 2000;
/// Room grows with what comes by so much, and not with what a peer announces.
inline constexpr std::size_t receive_step = 256 << 10;

/// What several ranks gave, as one message: to send each rank each part by itself would be as many
/// packets as there are pairs of ranks.
std::string joined(const std::vector<std::string>& parts);
/// Bytes that a part takes in such a message.
std::uint64_t length_of(std::string_view part);
/// @param from the rank that sent it. @throws CorruptData unless it is a message of so many parts.
std::vector<std::string> parts_of(std::string_view message, int count, int from);

/// The last message of a rank that gives up.
std::string failure_message(std::string_view text);

/// @throws InvalidArgument for more bytes than ranks may exchange
void require_room_for(std::uint64_t bytes);

}  // namespace lockstep::comm
