#pragma once

#include <string>
#include <string_view>

namespace lockstep::comm {

/// A random token of 64 hexadecimal digits. @throws Error without a source of randomness
std::string make_token();

/// Compares in a time that depends on neither's content.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace lockstep::comm
