#include "lockstep/autograd/ops.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/memory/block_observer.hpp"
#include "lockstep/tensor/factories.hpp"
#include "planted/programs.hpp"
#include "planted/ranks.hpp"
#include "planted/switch.hpp"

/// @file
/// Parameters that are gathered through the memory of gradients.

namespace planted {
namespace {

using namespace lockstep;

constexpr std::int64_t parameters_per_rank = 64;

// --- Megatron-LM pull request 4609: the all-gather of the parameters borrows the gradients' memory
// as the buffer that it receives into. Backward adds gradients to what that memory holds, so it has
// to be zeroed once the parameters have been copied out; that was forgotten.

class Bucket {
 public:
  explicit Bucket(const CommunicatorPtr& group)
      : group_(group),
        options_{.dtype = DType::f32, .device = group->device()},
        parameters_(ones({2 * parameters_per_rank}, options_)),
        main_grad_(zeros({2 * parameters_per_rank}, options_)) {
    name_memory(main_grad_.data_ptr(), main_grad_.nbytes(), "main_grad");
  }

  void gather_parameters() {
    const Tensor own = parameters_.slice(0, 0, parameters_per_rank).clone();
    group_
        ->all_gather({own.data_ptr(), own.numel(), own.dtype()},
                     {main_grad_.data_ptr(), main_grad_.numel(), main_grad_.dtype()})
        .wait();
    parameters_.copy_(main_grad_);
    finish_borrowing();
  }

  void backward() { main_grad_.add_(ones({2 * parameters_per_rank}, options_)); }

 private:
  // The borrower is done: what it leaves behind is no gradient.
  void finish_borrowing() {
    discard_memory(main_grad_.data_ptr(), main_grad_.nbytes(), main_grad_.device());
    if (!is_planted("stale-gathered-data")) main_grad_.zero_();
  }

  CommunicatorPtr group_;
  TensorOptions options_;
  Tensor parameters_, main_grad_;
};

}  // namespace

void stale_gathered_data() {
  run_ranks(2, [](const CommunicatorPtr& group) {
    Bucket bucket(group);
    bucket.gather_parameters();
    bucket.backward();
    synchronize(current_stream(group->device()));
  });
}

}  // namespace planted
