#include "backend/cuda/cudnn_ops.hpp"
#include "backend/info.hpp"

// A build without cuDNN.

namespace lockstep::backend {

std::string cudnn_version() { return {}; }

namespace cudnn {

std::string_view missing() {
  return "this lockstep was built without cuDNN: install cuDNN 9, run "
         "scripts/get_cudnn_frontend.sh and configure again";
}

bool convolution(ConvDirection, const ConvArrays&, const ConvGeometry&, StreamRef) { return false; }
bool attention_forward(const AttentionArrays&, AttentionOptions, StreamRef) { return false; }
bool attention_backward(const AttentionArrays&, AttentionOptions, StreamRef) { return false; }

}  // namespace cudnn
}  // namespace lockstep::backend
