#include "comm/token.hpp"

#include <array>

#include <sys/random.h>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {

std::string make_token() {
  std::array<unsigned char, 32> bytes;
  LOCKSTEP_CHECK(getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
                 Error, "the system gives no random bytes for a job token");
  std::string token;
  for (const unsigned char byte : bytes) {
    token += "0123456789abcdef"[byte >> 4];
    token += "0123456789abcdef"[byte & 15];
  }
  return token;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return difference == 0;
}

}  // namespace lockstep::comm
