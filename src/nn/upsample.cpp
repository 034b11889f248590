#include "lockstep/nn/upsample.hpp"

#include "nn/describe.hpp"

namespace lockstep::nn {

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

}  // namespace lockstep::nn
