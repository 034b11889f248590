#include "lockstep/core/device.hpp"

#include <charconv>

#include "lockstep/core/error.hpp"

namespace lockstep {

Device::Device(std::string_view text) {
  if (text == "cpu") return;
  type = DeviceType::cuda;
  if (text == "cuda") return;
  constexpr std::string_view prefix = "cuda:";
  const bool numbered = text.starts_with(prefix);
  const std::string_view digits = text.substr(numbered ? prefix.size() : text.size());
  const char* const last = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), last, index);
  LOCKSTEP_CHECK(error != std::errc::result_out_of_range, InvalidArgument, "\"", text,
                 "\": device numbers are below 32768");
  LOCKSTEP_CHECK(error == std::errc() && end == last && index >= 0, InvalidArgument, "\"", text,
                 "\" names no device; use \"cpu\", \"cuda\" or \"cuda:1\"");
}

}  // namespace lockstep
