#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/leaf.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/autograd/thread_modes.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/nn/checkpoint.hpp"
#include "lockstep/runtime/info.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"

// Gradients of biases that norms' gradients compute besides, on a GPU.

namespace lockstep {
namespace {

constexpr std::int64_t width = 64, rows = 24;

struct Leaf {
  Tensor tensor;
  bool is_bias;
};

/// A random network of norms, linear layers, residuals and hooks, its parameters, and what they
/// get.
class Network {
 public:
  Network(unsigned seed, bool autocast) : random_(seed), autocast_(autocast), generator_(seed) {}

  std::vector<Leaf> run() {
    const autograd::AutocastModeGuard mode(DeviceType::cuda, autocast_ ? DType::bf16 : DType::f32);
    Tensor x = leaf({rows, width}, false);
    Tensor loss = zeros({}, {DType::f32, cuda(0)});
    for (int layer = 0; layer < 5; ++layer) {
      x = next(x);
      if (one_of(4)) loss = loss + sum(square(x.to(DType::f32))) * 0.01;
    }
    loss = loss + sum(square(x.to(DType::f32)));
    const int times = one_of(3) ? 2 : 1;
    for (int i = 0; i < times; ++i) loss.backward({}, i + 1 < times);
    return leaves_;
  }

 private:
  bool one_of(unsigned n) { return random_() % n == 0; }
  Tensor leaf(const Shape& shape, bool is_bias) {
    const DType dtype = autocast_ ? DType::f32 : DType::bf16;
    Tensor values = randn(shape, {}, generator_) * (shape.size() == 2 ? 0.12 : 0.5);
    Tensor made = values.to(cuda(0)).to(dtype).detach();
    made.set_requires_grad(!one_of(8));
    leaves_.push_back({made, is_bias});
    return made;
  }
  Tensor bias(std::int64_t n) {
    if (n == width && shared_.defined() && one_of(4)) return shared_;
    Tensor made = leaf({n}, true);
    if (n == width && one_of(4)) shared_ = made;
    return made;
  }
  Tensor norm(const Tensor& x) {
    return layer_norm(x, {width}, leaf({width}, false), bias(width), 1e-5,
                      autocast_ ? NormResult::for_products : NormResult::as_computed);
  }
  Tensor layer(const Tensor& x, std::int64_t out) {
    return hooked(linear(x, leaf({out, x.size(-1)}, false), bias(out)));
  }
  Tensor hooked(Tensor x) {
    if (x.requires_grad() && one_of(5)) x.register_hook([](const Tensor& g) { return g * 2; });
    return x;
  }
  Tensor next(const Tensor& x) {
    switch (random_() % 6) {
      case 0: {
        const Tensor branch = layer(norm(x), width);
        return hooked(add_linear(x, branch, leaf({width, width}, false), bias(width)));
      }
      case 1:
        return hooked(mlp(
            norm(x), {leaf({128, width}, false), bias(128), leaf({width, 128}, false), bias(width)},
            {.addend = x}));
      case 2: return layer(norm(x), width).to(x.dtype());
      case 5: {
        const Tensor h = x.reshape({2, rows / 2, width}), qkv = layer(norm(h), 3 * width);
        const Tensor seen = tril(ones({rows / 2, rows / 2}, {DType::boolean, cuda(0)}));
        const Tensor y = hooked(
            self_attention(qkv, 2, {.mask = one_of(4) ? seen : Tensor(), .is_causal = one_of(2)}));
        return hooked(add_linear(h, y, leaf({width, width}, false), bias(width)))
            .reshape({rows, width});
      }
      case 3: {
        const Tensor n = hooked(norm(x));
        return x + (layer(n, width) * layer(n, width) + layer(n, width)).to(x.dtype());
      }
      default: return norm(x).to(x.dtype()) + layer(norm(x), width).to(x.dtype());
    }
  }

  std::mt19937 random_;
  bool autocast_;
  Generator generator_;
  std::vector<Leaf> leaves_;
  Tensor shared_;
};

/// On a thread of its own, as each asks for the choice once.
template <class Function>
void with_choice(const char* in_products, Function&& run) {
  ::setenv("LOCKSTEP_FUSED_BIAS_GRADIENT", in_products, 1);
  std::thread(run).join();
  ::unsetenv("LOCKSTEP_FUSED_BIAS_GRADIENT");
}

bool has_gpu() { return cuda_device_count() > 0; }

TEST(BiasGradientsGpu, AreTheSameBesideNormsAndInProductsWhateverTheGraph) {
  if (!has_gpu()) GTEST_SKIP() << "no CUDA device on this machine";
  for (unsigned seed = 0; seed < 8; ++seed)
    for (const bool autocast : {false, true}) {
      std::vector<Leaf> expected, found;
      with_choice("1", [&] { expected = Network(seed, autocast).run(); });
      with_choice("", [&] { found = Network(seed, autocast).run(); });
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        const Tensor a = found[i].tensor.grad(), b = expected[i].tensor.grad();
        ASSERT_EQ(a.defined(), b.defined()) << "leaf " << i << " of " << seed;
        if (!a.defined()) continue;
        const Tensor want = b.to(cpu).to(DType::f64);
        const double largest = max(abs(want)).item<double>();
        EXPECT_TRUE(
            allclose(a.to(cpu).to(DType::f64), want, 0.0, found[i].is_bias ? largest * 0.02 : 0.0))
            << "leaf " << i << " of " << seed << (autocast ? " under autocast" : " in bf16");
      }
    }
}

/// The gradients of the biases of an attention block, and what its other parameters get.
struct AttentionBlock {
  Tensor qkv_bias, out_bias, others;
};

/// @param in_hook called when the gradient of the first weight is final, with the last one
AttentionBlock attention_block(
    const char* in_products, const AttentionOptions& options,
    const std::function<void(Tensor)>& in_hook = [](const Tensor&) {}) {
  AttentionBlock found;
  with_choice(in_products, [&] {
    auto leaf = [seed = 0u](const Shape& shape) mutable {
      Generator generator(++seed);
      return (randn(shape, {}, generator) * 0.2)
          .to(cuda(0))
          .to(DType::bf16)
          .detach()
          .set_requires_grad();
    };
    const Tensor x = leaf({2, rows, width}), w0 = leaf({3 * width, width}), b0 = leaf({3 * width});
    const Tensor w1 = leaf({width, width}), b1 = leaf({width});
    const Tensor gamma = leaf({width}), beta = leaf({width});
    autograd::leaf_of(w0).add_hook([&](autograd::LeafNode&) { in_hook(w1); });
    const auto norm = [&](const Tensor& z) { return layer_norm(z, {width}, gamma, beta); };
    const Tensor h = add_linear(x, self_attention(linear(norm(x), w0, b0), 2, options), w1, b1);
    sum(square(norm(h).to(DType::f32))).backward();
    found = {b0.grad().to(cpu).to(DType::f32), b1.grad().to(cpu).to(DType::f32),
             cat({w0.grad().flatten(), w1.grad().flatten(), x.grad().flatten()}).to(cpu)};
  });
  return found;
}

void expect_close(const Tensor& found, const Tensor& expected) {
  EXPECT_TRUE(allclose(found, expected, 0.0, max(abs(expected)).item() * 0.02));
}

// Those of keys are 0, as roundings do not have it; so parts of the gradient have been left out.
TEST(BiasGradientsGpu, OfQueriesKeysAndValuesFollowFromLess) {
  if (!has_gpu()) GTEST_SKIP() << "no CUDA device on this machine";
  const Tensor first = (arange(rows) < 3).to(cuda(0));
  for (const AttentionOptions& options :
       {AttentionOptions{}, AttentionOptions{.is_causal = true}, AttentionOptions{.mask = first}}) {
    const AttentionBlock expected = attention_block("1", options);
    const AttentionBlock found = attention_block("", options);
    expect_close(found.qkv_bias, expected.qkv_bias);
    expect_close(found.out_bias, expected.out_bias);
    EXPECT_TRUE(allclose(found.others, expected.others, 0.0, 0.0));
    EXPECT_EQ(max(abs(found.qkv_bias.slice(0, width, 2 * width))).item(), 0);
  }
}

// An update by a hook, before the sums are added up.
TEST(BiasGradientsGpu, OfValuesAreThoseOfTheWeightThatTheirGradientsCameThrough) {
  if (!has_gpu()) GTEST_SKIP() << "no CUDA device on this machine";
  const auto update = [](Tensor weight) {
    const NoGradGuard no_recording;
    weight.mul_(-3);
  };
  const AttentionBlock expected = attention_block("1", {});
  expect_close(attention_block("", {}, update).qkv_bias, expected.qkv_bias);
}

/// The leaves of a residual block in the order in which their gradients are final.
std::vector<std::string> order_of(const char* in_products) {
  std::vector<std::string> order;
  with_choice(in_products, [&] {
    const auto leaf = [&](const Shape& shape, const std::string& name) {
      Tensor made = full(shape, 0.01, {DType::bf16, cuda(0)}).set_requires_grad();
      autograd::leaf_of(made).add_hook(
          [&order, name](autograd::LeafNode&) { order.push_back(name); });
      return made;
    };
    const Tensor x = leaf({rows, width}, "x");
    const Tensor h = add_linear(x, x, leaf({width, width}, "w0"), leaf({width}, "b0"));
    const Tensor n = layer_norm(h, {width}, leaf({width}, "gamma"), leaf({width}, "beta"));
    const Tensor y = mlp(n,
                         {leaf({width, width}, "w1"), leaf({width}, "b1"),
                          leaf({width, width}, "w2"), leaf({width}, "b2")},
                         {.addend = h});
    sum(y).backward();
  });
  return order;
}

TEST(BiasGradientsGpu, OfABlockComeWithTheNormThatWritesOrFollowsTheirs) {
  if (!has_gpu()) GTEST_SKIP() << "no CUDA device on this machine";
  EXPECT_EQ(order_of("1"),
            (std::vector<std::string>{"b2", "w2", "b1", "w1", "gamma", "beta", "b0", "w0", "x"}));
  EXPECT_EQ(order_of(""),
            (std::vector<std::string>{"b2", "w2", "w1", "gamma", "beta", "b1", "b0", "w0", "x"}));
}

Tensor random_leaf(const Shape& shape, DType dtype, unsigned seed) {
  Generator generator(seed);
  return (randn(shape, {}, generator) * 0.3).to(cuda(0)).to(dtype).detach().set_requires_grad();
}

// Before the block runs again, the update would change what its forward read.
TEST(BiasGradientsGpu, OfAPartThatRunsAgainAreFinalBehindIt) {
  if (!has_gpu()) GTEST_SKIP() << "no CUDA device on this machine";
  std::vector<Tensor> leaves;
  for (unsigned i = 0; i < 2; ++i)
    for (const Shape& shape : {Shape{width}, Shape{width}, Shape{width, width}, Shape{width}}) {
      Tensor leaf = random_leaf(shape, DType::bf16, i);
      autograd::leaf_of(leaf).add_hook([leaf](autograd::LeafNode& node) {
        Tensor(leaf).sub_(node.gradient() * 0.05);
        node.clear_gradient();
      });
      leaves.push_back(leaf);
    }
  Tensor x = random_leaf({rows, width}, DType::bf16, 3);
  for (std::size_t block = 0; block < leaves.size(); block += 4)
    x = nn::checkpoint(
        [block, &leaves](const Tensor& z) {
          const Tensor n = layer_norm(z, {width}, leaves[block], leaves[block + 1]);
          return add_linear(z, n, leaves[block + 2], leaves[block + 3]);
        },
        x);
  EXPECT_NO_THROW(sum(square(x.to(DType::f32))).backward());
}

// Gamma's gradient is converted, and handed over with the others' in place.
TEST(BiasGradientsGpu, AreThereWhereAHookOfAConvertedGradientRunsABackward) {
  if (!has_gpu()) GTEST_SKIP() << "no CUDA device on this machine";
  const autograd::AutocastModeGuard mode(DeviceType::cuda, DType::bf16);
  std::vector<std::vector<Tensor>> found;
  for (const bool in_hook : {false, true}) {
    const Tensor x = random_leaf({rows, width}, DType::f32, 1);
    const Tensor w0 = random_leaf({width, width}, DType::f32, 2);
    const Tensor w1 = random_leaf({width, width}, DType::f32, 3);
    const Tensor b0 = random_leaf({width}, DType::f32, 4), b1 = random_leaf({width}, DType::f32, 5);
    const Tensor gamma = random_leaf({width}, DType::bf16, 6);
    const Tensor beta = random_leaf({width}, DType::f32, 7);
    const auto backward = [&](const Tensor& scale, const Tensor& z) {
      const GradModeGuard recording(true);
      const Tensor n = layer_norm(add_linear(z, z, w0, b0), {width}, scale, beta, 1e-5,
                                  NormResult::for_products);
      sum(square(linear(n, w1, b1).to(DType::f32))).backward();
    };
    const auto other = [&] { backward(ones({width}, x.options()), x.detach()); };
    bool is_done = !in_hook;
    autograd::leaf_of(gamma).add_hook([&](autograd::LeafNode&) {
      if (!std::exchange(is_done, true)) other();
    });
    backward(gamma, x);
    if (!in_hook) other();
    found.push_back({b0.grad().to(cpu), beta.grad().to(cpu), b1.grad().to(cpu)});
  }
  for (std::size_t i = 0; i < found[0].size(); ++i)
    EXPECT_TRUE(allclose(found[1][i], found[0][i], 0.0, max(abs(found[0][i])).item() * 0.02)) << i;
}

// The copy for products is what the norm wrote before the hook was there.
TEST(BiasGradientsGpu, AHookThatComesAndGoesInTheBackwardChangesAllGradients) {
  if (!has_gpu()) GTEST_SKIP() << "no CUDA device on this machine";
  const autograd::AutocastModeGuard mode(DeviceType::cuda, DType::bf16);
  std::vector<Tensor> found;
  for (const bool hooks : {false, true}) {
    const Tensor x = random_leaf({rows, width}, DType::f32, 1);
    const Tensor weight = random_leaf({width, width}, DType::f32, 2);
    const Tensor gamma = random_leaf({width}, DType::f32, 3);
    const Tensor h = add_linear(x, x, weight, random_leaf({width}, DType::f32, 4));
    HookHandle handle;
    if (hooks)
      autograd::leaf_of(gamma).add_hook([&](autograd::LeafNode&) {
        handle = h.register_hook([&](const Tensor& gradient) {
          handle.remove();
          return gradient * 0;
        });
      });
    const Tensor n = layer_norm(h, {width}, gamma, random_leaf({width}, DType::f32, 5), 1e-5,
                                NormResult::for_products);
    sum(square(n.to(DType::f32))).backward();
    found.push_back(weight.grad().to(cpu));
  }
  EXPECT_GT(max(abs(found[0])).item(), 0);
  EXPECT_EQ(max(abs(found[1])).item(), 0);
}

}  // namespace
}  // namespace lockstep
