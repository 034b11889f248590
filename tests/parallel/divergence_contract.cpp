// Replicas that have become different are found, and told apart.

#include "lockstep/autograd/ops.hpp"
#include "lockstep/comm/errors.hpp"
#include "lockstep/parallel/divergence_check.hpp"
#include "parallel/contracts.hpp"
#include "parallel/ranks.hpp"

namespace lockstep::parallel::testing {
namespace {

// Tensors of several dtypes and layouts, the same on every rank.
NamedTensors replica(Device device) {
  const auto made = [&](Shape shape, DType dtype) {
    return arange(0, static_cast<double>(numel(shape)), 1, {.dtype = DType::f32})
        .reshape(shape)
        .to(dtype)
        .to(device);
  };
  return {{"a", made({3, 5}, DType::f32)},
          {"transposed", made({4, 6}, DType::bf16).transpose(0, 1)},
          {"empty", made({0, 2}, DType::f32)},
          {"wide", made({70'000}, DType::f32)},
          {"count", made({7}, DType::i64)}};
}

// Changes an element of the last rank's, of the first of all but the last dimension.
void change(Communicator& group, const Tensor& tensor, std::int64_t place) {
  if (group.rank() != group.size() - 1) return;
  Tensor element = tensor;
  while (element.dim() > 1) element = element.select(0, 0);
  element = element.slice(0, place, place + 1);
  element.copy_(element + (is_floating(tensor.dtype()) ? 0x1p-7 : 1.0));
}

std::string odd_rank(Communicator& group) {
  return "rank " + std::to_string(group.size() - 1) + " of " + group.name();
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DivergenceContract);

TEST_P(DivergenceContract, NamesTheOddRankAndItsFirstTensor) {
  run([](Communicator& group) {
    const NamedTensors tensors = replica(group.device());
    DivergenceCheck check(tensors, share(group), {.every = 3});
    for (int step = 1; step <= 4; ++step) check.step();
    if (group.size() == 1) return;
    change(group, tensors[4].second, 6);
    change(group, tensors[3].second, 1);
    check.step();
    if (!group.device().is_cpu()) check.step();  // which the next one hears of
    const std::string message = message_of<comm::Mismatch>([&] { check.step(); });
    for (const std::string& part :
         {std::string("differ after step 6"), odd_rank(group),
          std::string("2 of 5 tensors, first in 'wide'"), std::string("equal after step 3")})
      EXPECT_NE(message.find(part), std::string::npos) << message;
  });
}

TEST_P(DivergenceContract, ChecksAtOnceWhenAskedTo) {
  run([](Communicator& group) {
    const NamedTensors tensors = replica(group.device());
    DivergenceCheck check(tensors, share(group));
    check.run();
    if (group.size() == 1) return;
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}, std::size_t{4}}) {
      const Tensor before = tensors[i].second.clone();
      change(group, tensors[i].second, 0);
      const std::string message = message_of<comm::Mismatch>([&] { check.run(); });
      EXPECT_NE(message.find("first in '" + tensors[i].first + "'"), std::string::npos) << message;
      Tensor restored = tensors[i].second;
      restored.copy_(before);
      check.run();
    }
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
