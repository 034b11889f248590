#include "lockstep/nn/checkpoint.hpp"

#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/amp/autocast.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/comm/thread_world.hpp"
#include "lockstep/memory/memory_stats.hpp"
#include "lockstep/nn/distributed_data_parallel.hpp"
#include "lockstep/nn/nn.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/runtime/info.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "lockstep/train/step_graph.hpp"
#include "support/refusal.hpp"

namespace lockstep::test {
namespace {

/// Who is run again: nobody, each block, or also two halves of each block within it.
enum class Again { never, blocks, nested };

/// Two linear layers, a norm and dropout around which a residual goes.
struct ResidualBlock : nn::Module {
  ResidualBlock(std::int64_t width, TensorOptions tensor)
      : first(this, "first", width, 4 * width, tensor),
        second(this, "second", 4 * width, width, tensor),
        norm(this, "norm", nn::BatchNormLayerOptions{.channels = width, .tensor = tensor}) {}
  Tensor forward(const Tensor& x, bool halves) {
    const auto wide = [this](const Tensor& in) { return gelu(first(in)); };
    const auto narrow = [this](const Tensor& in, const Tensor& residual) {
      const Tensor y = dropout(second(in), 0.3);
      return norm(y, residual.to(y.dtype()));
    };
    if (!halves) return narrow(wide(x), x);
    return nn::checkpoint(narrow, nn::checkpoint(wide, x), x);
  }
  nn::Child<nn::Linear> first, second;
  nn::Child<nn::BatchNorm1d> norm;
};

/// Blocks, the first of which is used twice.
struct ResidualBlocks : nn::Module {
  ResidualBlocks(std::int64_t width, TensorOptions tensor, Again mode) : again(mode) {
    for (int i = 0; i < 3; ++i) blocks->append(nn::make<ResidualBlock>(width, tensor));
  }
  Tensor forward(const Tensor& x) {
    Tensor y = x;
    for (const std::size_t i : {0, 1, 2, 0})
      y = again == Again::never ? blocks[i]->forward(y, false)
                                : nn::checkpoint(
                                      [this, i](const Tensor& in) {
                                        ++runs;
                                        return blocks[i]->forward(in, again == Again::nested);
                                      },
                                      y);
    return y;
  }
  nn::Child<nn::ModuleList<ResidualBlock>> blocks{this, "blocks"};
  Again again;
  int runs = 0;
};

/// What three steps leave: losses, gradients, parameters and buffers.
std::vector<double> train(Again again, Device device, DType autocast = DType::f32,
                          bool twice = false) {
  manual_seed(3);
  const auto net = nn::make<ResidualBlocks>(8, TensorOptions{.device = device}, again);
  optim::AdamW optimizer(net->named_parameters(), {.lr = 0.01});
  std::vector<double> all;
  const auto note = [&](const Tensor& tensor) {
    for (const double value : tensor.to_vector<double>()) all.push_back(value);
  };
  Tensor x = randn({6, 8}, {.device = device});
  x.set_requires_grad();
  for (int step = 0; step < 3; ++step) {
    Tensor loss;
    {
      const amp::Autocast mixed(autocast == DType::f32 ? DType::bf16 : autocast, device,
                                {.enabled = autocast != DType::f32});
      loss = net(x).square().mean();
    }
    loss.backward({}, twice);
    if (twice) loss.backward();
    for (const Tensor& parameter : net->parameters()) note(parameter.grad());
    optimizer.step();
    optimizer.zero_grad();
    note(loss);
  }
  note(x.grad());
  for (const auto& [name, tensor] : net->state_dict()) note(tensor);
  note(rand({2}));  // the generator stands where it stood
  return all;
}

void expect_the_same_bits(Device device) {
  const auto expected = train(Again::never, device);
  EXPECT_EQ(train(Again::blocks, device), expected);
  EXPECT_EQ(train(Again::nested, device), expected);
  for (const DType half : {DType::bf16, DType::f16})
    EXPECT_EQ(train(Again::nested, device, half), train(Again::never, device, half));
  EXPECT_EQ(train(Again::nested, device, DType::f32, true),
            train(Again::never, device, DType::f32, true));
}

TEST(Checkpoint, GivesTheBitsOfACall) { expect_the_same_bits(cpu); }

TEST(Checkpoint, GpuGivesTheBitsOfACall) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device on this machine";
  expect_the_same_bits(cuda(0));
}

TEST(Checkpoint, RunsOncePerBackwardAndNotAtAllWithoutOne) {
  const auto net = nn::make<ResidualBlocks>(4, TensorOptions{}, Again::blocks);
  const Tensor x = randn({3, 4});
  no_grad([&] { net(x); });
  EXPECT_EQ(net->runs, 4);
  const Tensor y = net(x);
  EXPECT_EQ(net->runs, 8);
  y.sum().backward();
  EXPECT_EQ(net->runs, 12);
}

TEST(Checkpoint, KeepsNoActivations) {
  const auto peak = [](Again again) {
    const auto net = nn::make<ResidualBlocks>(64, TensorOptions{}, again);
    const Tensor x = randn({512, 64});
    reset_peak_memory_stats(cpu);
    const std::size_t before = memory_allocated(cpu);
    const Tensor y = net(x);
    const std::size_t kept = memory_allocated(cpu) - before;
    y.sum().backward();
    EXPECT_LE(memory_allocated(cpu) - before, 2 * y.nbytes() + 600'000);  // y and gradients
    return std::pair(kept, max_memory_allocated(cpu) - before);
  };
  const auto [all, most] = peak(Again::never);
  const auto [few, least] = peak(Again::blocks);
  EXPECT_LT(5 * few, all);
  EXPECT_LT(2 * least, most);
}

TEST(Checkpoint, RefusesAnotherRunThanTheFirst) {
  Tensor x = randn({4}).set_requires_grad();
  int run = 0;
  const auto expect_refusal = [&](const auto& function, const char* what) {
    run = 0;
    const Tensor y = nn::checkpoint(function, x * 1.0);
    try {
      y.sum().backward();
      ADD_FAILURE() << "not refused";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
    x.set_grad({});
  };
  expect_refusal([&](const Tensor& in) { return run++ ? tanh(tanh(in)) : tanh(in); },
                 "comes to tanh, as it did not the first time");
  expect_refusal([&](const Tensor& in) { return run++ ? tanh(in) : tanh(tanh(in)); },
                 "saved 1 tensors, the first time 2");
  expect_refusal([&](const Tensor& in) { return run++ ? cos(in) : sin(in); },
                 "comes to cos, as it did not the first time");
  expect_refusal([&](const Tensor& in) { return in.slice(0, 0, run++ ? 2 : 4).square(); },
                 "the first time f32 [4]");
  expect_refusal(
      [&](const Tensor& in) {
        LOCKSTEP_CHECK(run++ == 0, InvalidArgument, "not again");
        return tanh(in);
      },
      "not again");
}

TEST(Checkpoint, RefusesModulesThatWentToAnotherModeBeforeBackward) {
  const auto norm =
      nn::make<nn::BatchNorm2d>(nn::BatchNormLayerOptions{.channels = 2, .affine = false});
  const auto dropout = nn::make<nn::Dropout>(0.5);
  const auto linear = nn::make<nn::Linear>(3, 3);
  const auto expect_refusal = [&](const Tensor& x, nn::Module& module, bool trained) {
    module.train(trained);
    const Tensor y = nn::checkpoint([&](const Tensor& in) { return linear(dropout(norm(in))); }, x);
    module.train(!trained);
    const std::string message = testing::refusal([&] { y.sum().backward(); });
    EXPECT_NE(message.find("went to training or evaluation"), std::string::npos) << message;
    module.train(trained);
    EXPECT_NO_THROW(y.sum().backward()) << "back in the mode of the forward";
  };
  const Tensor data = randn({4, 2, 3, 3}), x = randn({4, 2, 3, 3}).set_requires_grad();
  for (const bool trained : {true, false})
    for (const Tensor& in : {x, data}) {
      expect_refusal(in, *norm, trained);
      expect_refusal(in, *dropout, trained);
    }
}

TEST(Checkpoint, PassesOverWhatCameTheFirstTimeAlone) {
  Tensor x = randn({4, 3}).set_requires_grad(), weight = randn({2, 3}).set_requires_grad();
  Tensor statistic, transposed;
  const auto part = [&](const Tensor& in) {
    if (!autograd::Recomputation::is_running()) statistic = mean(in).detach();
    if (!transposed.defined()) transposed = weight.t();
    return tanh(matmul(tanh(in), transposed));
  };
  const Tensor y = nn::checkpoint(part, x);
  y.sum().backward();
  const Tensor once = x.grad(), of_weight = weight.grad();
  x.set_grad({});
  weight.set_grad({});
  tanh(matmul(tanh(x), weight.t())).sum().backward();
  EXPECT_TRUE(equal(once, x.grad()));
  EXPECT_TRUE(equal(of_weight, weight.grad()));
}

TEST(Checkpoint, RefusesAnInputThatWasChanged) {
  const Tensor leaf = randn({4}).set_requires_grad();
  const Tensor x = leaf * 2.0;
  const Tensor y = nn::checkpoint([](const Tensor& in) { return tanh(in); }, x);
  no_grad([&] { x.detach().mul_(3.0); });
  EXPECT_THROW(y.sum().backward(), InvalidArgument);
}

// The run that comes in backward saves what the first one saved, and then changes it, too.
TEST(Checkpoint, RefusesASavedTensorThatThePartItselfChanges) {
  const Tensor x = randn({4}).set_requires_grad();
  const auto changes = [](const Tensor& in) {
    const Tensor y = exp(in), z = y * y;
    no_grad([&] { y.detach().mul_(3.0); });
    return z;
  };
  EXPECT_THROW(changes(x).sum().backward(), InvalidArgument);
  EXPECT_THROW(nn::checkpoint(changes, x).sum().backward(), InvalidArgument);
}

TEST(Checkpoint, RefusesAParameterThatWasChangedUnderAutocastToo) {
  const Tensor x = randn({2, 4}).set_requires_grad(), weight = randn({4, 4}).set_requires_grad();
  const auto product = [&](const Tensor& in) { return matmul(in, weight); };
  for (const bool mixed : {false, true}) {
    const Tensor y = [&] {
      const amp::Autocast autocast(DType::bf16, cpu, {.enabled = mixed});
      return nn::checkpoint(product, x);
    }();
    no_grad([&] { weight.detach().mul_(3.0); });
    EXPECT_THROW(y.to(DType::f32).sum().backward(), InvalidArgument) << mixed;
  }
}

/// What backward says of a part after one of the tensors that it reads was changed.
void expect_refusal_of_a_change(const std::function<Tensor(const Tensor&)>& part, Tensor read,
                                const Tensor& x) {
  const Tensor y = nn::checkpoint(part, x);
  no_grad([&] { read.detach().mul_(3.0); });
  EXPECT_THROW(y.sum().backward(), InvalidArgument);
}

// An op that does not save an operand would compute another result from it.
TEST(Checkpoint, RefusesWhateverItsOpsReadAndWasChanged) {
  const Tensor x = randn({2, 4}).set_requires_grad(), weight = randn({4, 4}).set_requires_grad();
  for (const bool is_parameter : {false, true}) {
    const Tensor other = randn({4}).set_requires_grad(is_parameter);
    const Tensor rows = randn({1, 4}).set_requires_grad(is_parameter);
    expect_refusal_of_a_change([&](const Tensor& in) { return tanh(linear(in, weight, other)); },
                               other, x);
    expect_refusal_of_a_change([&](const Tensor& in) { return exp(in + other); }, other, x);
    expect_refusal_of_a_change([&](const Tensor& in) { return exp(cat({in, rows}, 0)); }, rows, x);
    expect_refusal_of_a_change(
        [&](const Tensor& in) {
          const auto sum = [&](const Tensor& inner) { return inner + other; };
          return exp(nn::checkpoint(sum, in));
        },
        other, x);
  }
}

// Its own results are others each time, and so are handles of its inputs.
TEST(Checkpoint, TakesParametersWhoseArraysWereExchangedBefore) {
  Tensor weight = randn({4, 4}).set_requires_grad();
  weight.set_data(randn({4, 4}));
  weight.set_data(randn({4, 4}));
  const Tensor x = randn({2, 4}).set_requires_grad();
  const Tensor y = nn::checkpoint(
      [&](const Tensor& in, const Tensor& given) { return tanh(matmul(in, given.t())); }, x,
      weight);
  y.sum().backward();
  EXPECT_TRUE(weight.grad().defined());
}

TEST(Checkpoint, LeavesBucketsOfReplicasAsTheyAre) {
  const auto gradients = [](Again again) {
    std::vector<std::vector<double>> of_rank(2);
    comm::run_ranks(2, [&](comm::Communicator& group) {
      manual_seed(5);
      const auto net = nn::make<ResidualBlocks>(8, TensorOptions{.dtype = DType::f64}, again);
      DistributedDataParallel<ResidualBlocks> ddp(net, CommunicatorPtr(&group),
                                                  {.bucket_bytes = 1024});
      manual_seed(7 + static_cast<std::uint64_t>(group.rank()));
      for (int step = 0; step < 3; ++step) {
        net->zero_grad();
        ddp(randn({5, 8}, {.dtype = DType::f64})).square().mean().backward();
      }
      auto& all = of_rank[static_cast<std::size_t>(group.rank())];
      for (const Tensor& parameter : net->parameters())
        for (const double value : parameter.grad().to_vector<double>()) all.push_back(value);
    });
    EXPECT_EQ(of_rank[0], of_rank[1]);
    return of_rank[0];
  };
  const auto expected = gradients(Again::never);
  EXPECT_EQ(gradients(Again::blocks), expected);
  EXPECT_EQ(gradients(Again::nested), expected);
}

TEST(Checkpoint, DoesNotTakeAWrapper) {
  comm::run_ranks(1, [](comm::Communicator& group) {
    DistributedDataParallel<nn::Linear> ddp(nn::make<nn::Linear>(2, 2), CommunicatorPtr(&group));
    EXPECT_THROW(nn::checkpoint([&](const Tensor& x) { return ddp(x); }, randn({1, 2})),
                 InvalidArgument);
  });
}

void expect_captured_steps_to_agree(Device device) {
  const auto run = [&](bool capture) {
    manual_seed(11);
    const auto net = nn::make<ResidualBlocks>(8, TensorOptions{.device = device}, Again::nested);
    optim::AdamW optimizer(net->named_parameters(), {.lr = 0.01});
    const StepGraph::Step step = [&](std::span<const Tensor> in) {
      const Tensor loss = net(in[0]).square().mean();
      loss.backward();
      optimizer.step();
      optimizer.zero_grad();
      return std::vector{loss};
    };
    StepGraph graph(step);
    const Tensor x = randn({6, 8}, {.device = device});
    std::vector<double> losses;
    for (int i = 0; i < 8; ++i)
      losses.push_back((capture ? graph({x}) : step(std::vector{x}))[0].item());
    EXPECT_EQ(graph.replayed(), capture) << graph.fallback_reason();
    return losses;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Checkpoint, WorksInCapturedSteps) { expect_captured_steps_to_agree(cpu); }

TEST(Checkpoint, GpuWorksInCapturedSteps) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device on this machine";
  expect_captured_steps_to_agree(cuda(0));
}

TEST(Checkpoint, TakesWhatItsPartMadeTheFirstTimeAlone) {
  const Tensor x = full({2, 2}, 3.0).set_requires_grad();
  Tensor table;
  const auto part = [&](const Tensor& t) {
    if (!table.defined()) table = tril(ones({2, 2}) + 1.0);
    return square(t * (table + 1.0));
  };
  nn::checkpoint(part, x).sum().backward();
  EXPECT_EQ(x.grad()[0][1].item(), 6);
}

TEST(Checkpoint, TakesParametersAsInputs) {
  const auto layer = nn::make<nn::Linear>(2, 2);
  nn::checkpoint([](const Tensor& weight) { return square(weight); }, layer->weight)
      .sum()
      .backward();
  EXPECT_TRUE(equal(layer->weight.grad(), layer->weight.detach() * 2));
}

}  // namespace
}  // namespace lockstep::test
