#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <lockstep/core/error.hpp>

namespace run {

/// Writes all to standard output (1) or standard error (2), as far as somebody reads it.
/// @param meanwhile called every half second while the reader is slow.
void write_all(int stream, std::string_view text, const std::function<void()>& meanwhile = {});

/// Puts "[rank 3] " before each line.
std::string tagged(int rank, std::string_view lines);

/// One line of the supervisor's own on standard error.
template <class... T>
void say(const T&... parts) {
  write_all(2, lockstep::detail::concat("lockstep_run: ", parts..., "\n"));
}

}  // namespace run
