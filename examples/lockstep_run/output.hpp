#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace run {

/// Writes all to standard output (1) or standard error (2), as far as somebody reads it.
/// @param goes_on asked every tenth of a second while the reader is slow; false: the rest is lost.
void write_all(int stream, std::string_view text, const std::function<bool()>& goes_on);

/// Whether somebody reads what is written there, or nobody ever will.
bool has_room(int stream);

/// Puts "[rank 3] " before each line.
std::string tagged(int rank, std::string_view lines);

}  // namespace run
