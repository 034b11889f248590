#include "lockstep/nn/upsample.hpp"

#include "nn/describe.hpp"

namespace lockstep::nn {
namespace {

std::int64_t checked(const char* layer, std::int64_t factor) {
  LOCKSTEP_CHECK(factor > 0, InvalidArgument, layer, ": the factor must be above 0, got ", factor);
  return factor;
}

}  // namespace

std::string Upsample::describe() const {
  const Scale2d& factor = options_.scale_factor;
  std::string result = options_.size.height ? "size=" + text_of(options_.size)
                       : factor.height == factor.width
                           ? text("scale=", factor.height)
                           : text("scale=", factor.height, 'x', factor.width);
  if (options_.mode == InterpolationMode::bilinear) result += ", bilinear";
  if (options_.align_corners) result += ", aligned corners";
  return result;
}

PixelShuffle::PixelShuffle(std::int64_t factor) : factor_(checked("PixelShuffle", factor)) {}

std::string PixelShuffle::describe() const { return text("factor=", factor_); }

PixelUnshuffle::PixelUnshuffle(std::int64_t factor) : factor_(checked("PixelUnshuffle", factor)) {}

std::string PixelUnshuffle::describe() const { return text("factor=", factor_); }

}  // namespace lockstep::nn
