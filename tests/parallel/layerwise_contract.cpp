// What LARS and LAMB must compute for parameters that the ranks of a group share out.

#include "lockstep/autograd/ops.hpp"
#include "lockstep/optim/lamb.hpp"
#include "lockstep/optim/lars.hpp"
#include "parallel/contracts.hpp"
#include "parallel/ranks.hpp"

namespace lockstep::parallel::testing {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LayerwiseContract);

// Steps of an optimizer on each rank's rows of a matrix and on a vector that all have, beside the
// same steps on the whole of both.
template <class O>
void expect_steps_of_the_whole(Communicator& group, typename O::Options options) {
  const std::int64_t first = 2 * group.rank(), rows = 2 * group.size();
  const Tensor whole = leaf({rows, 3}, 1), vector = leaf({5}, 2), vector_alone = leaf({5}, 2);
  const Tensor part = values({rows, 3}, 1).slice(0, first, first + 2).clone().set_requires_grad();
  auto alike = options;
  alike.replicated = true;
  O shared(typename O::Groups{{{part}, options}, {{vector}, alike}}, share(group));
  O alone({whole, vector_alone}, options);
  for (int step = 0; step < 3; ++step) {
    const Tensor gradient = values({rows, 3}, 10 + step);
    Tensor(whole).set_grad(gradient);
    Tensor(part).set_grad(gradient.slice(0, first, first + 2).clone());
    Tensor(vector).set_grad(values({5}, 20 + step));
    Tensor(vector_alone).set_grad(values({5}, 20 + step));
    shared.step();
    alone.step();
    expect_close(part.detach(), whole.detach().slice(0, first, first + 2).clone());
    expect_close(vector.detach(), vector_alone.detach());
  }
}

TEST_P(LayerwiseContract, TakesNormsOverAllPartsOfAParameter) {
  run([](Communicator& group) {
    expect_steps_of_the_whole<optim::LARS>(group, {.lr = 0.5, .trust_coefficient = 0.1});
    expect_steps_of_the_whole<optim::LAMB>(group, {.lr = 0.1, .weight_decay = 0.1});
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
