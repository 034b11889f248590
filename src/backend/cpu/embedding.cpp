#include "cpu/embedding.hpp"

#include "backend/cpu/families.hpp"
#include "backend/cpu/rows.hpp"

namespace lockstep::backend {
namespace {

void forward(const kernels::EmbeddingArguments& a, StreamRef) {
  require_rows("embedding", {&a.table, &a.out});
  host::embedding(a);
}

void backward(const kernels::EmbeddingBackwardArguments& a, StreamRef) {
  require_rows("embedding_backward", {&a.dtable, &a.dy});
  host::embedding_backward(a);
}

}  // namespace

kernels::EmbeddingKernels cpu_embedding() { return {.forward = forward, .backward = backward}; }

}  // namespace lockstep::backend
