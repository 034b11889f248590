#pragma once

#include <string>
#include <string_view>

#include "arguments/attention.hpp"
#include "arguments/convolution.hpp"

/// @file
/// What lockstep takes from cuDNN. Every function returns false where cuDNN has no plan for the
/// problem, or where the build has no cuDNN (`no_cudnn.cpp`); nothing is queued then.

namespace lockstep::backend::cudnn {

using kernels::AttentionOptions;
using kernels::ConvGeometry;

/// Why nothing here works in this build; empty where it does.
std::string_view missing();

/// One of the three products of a convolution: the first array is written.
enum class ConvDirection : unsigned char { forward, backward_data, backward_weight };
struct ConvArrays {
  ArrayView image, weight, result;  ///< x or dx, w or dw, y or dy
};
bool convolution(ConvDirection direction, const ConvArrays& arrays, const ConvGeometry& geometry,
                 StreamRef stream);

struct AttentionArrays {
  ArrayView q{}, k{}, v{}, out{}, lse{}, mask{};
  ArrayView dout{}, dq{}, dk{}, dv{};  ///< absent in forward
};
bool attention_forward(const AttentionArrays& arrays, AttentionOptions options, StreamRef stream);
bool attention_backward(const AttentionArrays& arrays, AttentionOptions options, StreamRef stream);

/// A GPU in cuDNN's own words, for which plans can be made on machines that lack it (cuDNN 9.8 and
/// later). This and the next three: in builds with cuDNN only.
struct GpuDescription {
  std::string name;
  int sm_version = 0;      ///< 90 for Hopper
  std::string properties;  ///< text that only cuDNN reads
};
/// A GPU of this machine. @throws CudaError, CudnnError.
GpuDescription describe_gpu(int device);
/// True if the GPU described has a plan for the problem. Of the arrays' addresses only the
/// alignment counts. @throws CudnnError if cuDNN does not understand the description.
bool has_plan(const GpuDescription& gpu, ConvDirection direction, const ConvArrays& arrays,
              const ConvGeometry& geometry);
/// The same for attention; backward where `dq` is there.
bool has_plan(const GpuDescription& gpu, const AttentionArrays& arrays, AttentionOptions options);

}  // namespace lockstep::backend::cudnn
