#include "lockstep/parallel/writable_buffer.hpp"

#include "lockstep/autograd/ops.hpp"
#include "lockstep/comm/thread_world.hpp"
#include "lockstep/optim/sgd.hpp"
#include "parallel/ranks.hpp"

namespace lockstep::parallel::testing {
namespace {

TEST(WritableBuffer, LetsMasterCopiesFollowWhatACollectiveWrites) {
  comm::run_ranks(2, [](Communicator& group) {
    const TensorOptions bf16{.dtype = DType::bf16};
    const Tensor w = full({4}, group.rank() == 0 ? 1.0 : 3.0, bf16).set_requires_grad();
    optim::SGD optimizer({w}, {.lr = 0.0});
    sum(w).backward();
    optimizer.step();
    {
      const NoGradGuard no_recording;
      group.all_reduce(writable_buffer(w), comm::ReduceOp::average()).wait();
    }
    optimizer.step();
    EXPECT_EQ(w.detach().to_vector<double>(), (std::vector<double>{2.0, 2.0, 2.0, 2.0}));
  });
}

TEST(WritableBuffer, MarksWhatBackwardSavedAsChanged) {
  comm::run_ranks(1, [](Communicator& group) {
    const Tensor x = values({3}, 1), w = leaf({3}, 2);
    const Tensor loss = sum(x * w);
    group.all_reduce(writable_buffer(x)).wait();
    EXPECT_NE(message_of<InvalidArgument>([&] { loss.backward(); }).find("changed in place"),
              std::string::npos);
  });
}

TEST(WritableBuffer, RefusesWhatACollectiveCannotWrite) {
  EXPECT_THROW(writable_buffer(values({3, 4}, 1).transpose(0, 1)), InvalidArgument);
  EXPECT_THROW(writable_buffer(leaf({3}, 1)), InvalidArgument);
  EXPECT_EQ(writable_buffer(leaf({3}, 1).detach()).count, 3);
}

}  // namespace
}  // namespace lockstep::parallel::testing
