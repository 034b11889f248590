#pragma once

#include <sstream>
#include <string>

#include "lockstep/autograd/ops/shape.hpp"
#include "lockstep/autograd/ops/spatial.hpp"
#include "lockstep/core/error.hpp"

/// @file
/// Helpers of the layers' `describe` and of their checks.

namespace lockstep::nn {

/// Streams all parts into one string.
template <class... Parts>
std::string text(const Parts&... parts) {
  lockstep::detail::TextStream out;
  (out << ... << parts);
  return out.str();
}

/// "3" or "3x5"; of paddings also "same".
inline std::string text_of(Size2d size) {
  const auto one = [](std::int64_t extent) {
    return extent == same_padding ? "same" : text(extent);
  };
  return size.height == size.width ? one(size.height) : one(size.height) + 'x' + one(size.width);
}

/// As PyTorch calls it.
inline const char* text_of(PaddingMode mode) {
  switch (mode) {
    case PaddingMode::reflect: return "reflect";
    case PaddingMode::replicate: return "replicate";
    case PaddingMode::circular: return "circular";
    default: return "constant";
  }
}

/// Options of a convolution layer in words.
template <class Options>
std::string describe_convolution(const Options& options) {
  std::string result = text(options.in, ", ", options.out, ", kernel=", text_of(options.kernel));
  if (text_of(options.stride) != "1") result += ", stride=" + text_of(options.stride);
  if (text_of(options.padding) != "0") result += ", padding=" + text_of(options.padding);
  if (text_of(options.dilation) != "1") result += ", dilation=" + text_of(options.dilation);
  if (options.groups != 1) result += text(", groups=", options.groups);
  if (!options.bias) result += ", no bias";
  if constexpr (requires { options.output_padding; })
    if (text_of(options.output_padding) != "0")
      result += ", output padding=" + text_of(options.output_padding);
  if constexpr (requires { options.padding_mode; })
    if (options.padding_mode != PaddingMode::constant)
      result += text(", ", text_of(options.padding_mode));
  return result;
}

/// @throws InvalidArgument unless channels, groups and kernel of a convolution layer fit.
inline void check_channels(const char* layer, std::int64_t in, std::int64_t out,
                           std::int64_t groups, Size2d kernel) {
  LOCKSTEP_CHECK(in > 0 && out > 0 && kernel.height > 0 && kernel.width > 0, InvalidArgument, layer,
                 "(", in, ", ", out, ", ", text_of(kernel),
                 "): channels and kernel must be at least 1");
  LOCKSTEP_CHECK(groups > 0 && in % groups == 0 && out % groups == 0, InvalidArgument, layer, ": ",
                 groups, " groups do not divide ", in, " and ", out, " channels");
}

/// @return p. @throws InvalidArgument for one outside [0, 1].
inline double checked_probability(const char* layer, double p) {
  LOCKSTEP_CHECK(p >= 0 && p <= 1, InvalidArgument, layer, ": probability ", p,
                 " is outside [0, 1]");
  return p;
}

}  // namespace lockstep::nn
