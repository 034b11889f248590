#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/nn/nn.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/grad_check.hpp"
#include "support/refusal.hpp"

namespace lockstep {
namespace {

using lockstep::testing::expect_gradients;

constexpr TensorOptions f64{DType::f64};

/// Checks a layer's gradients for its input and all its parameters.
template <class M>
void expect_layer_gradients(const nn::ModulePtr<M>& layer, const Tensor& x) {
  std::vector<Tensor> inputs{x};
  for (const Tensor& parameter : layer->parameters()) inputs.push_back(parameter);
  expect_gradients([&](const std::vector<Tensor>& given) { return layer(given[0]); }, inputs);
}

TEST(Linear, MultipliesByItsTransposedWeight) {
  const auto layer = nn::make<nn::Linear>(2, 3, f64);
  layer->load_state_dict(
      {{"weight", from_span<double>(std::vector<double>{1, 2, 3, 4, 5, 6}, {3, 2})},
       {"bias", tensor<double>({10, 20, 30})}});
  EXPECT_EQ(layer(tensor<double>({1, 1})).to_vector<double>(), (std::vector<double>{13, 27, 41}));
}

TEST(Linear, HasTheRightGradients) {
  manual_seed(1);
  expect_layer_gradients(nn::make<nn::Linear>(3, 2, f64), randn({2, 2, 3}, f64));
  expect_layer_gradients(nn::make<nn::Linear>({.in = 3, .out = 2, .bias = false, .tensor = f64}),
                         randn({4, 3}, f64));
}

TEST(Linear, RefusesNoFeatures) { EXPECT_THROW(nn::make<nn::Linear>(0, 2), InvalidArgument); }

TEST(Conv2d, HasTheRightGradients) {
  manual_seed(2);
  expect_layer_gradients(nn::make<nn::Conv2d>({.in = 4,
                                               .out = 2,
                                               .kernel = {3, 2},
                                               .stride = 2,
                                               .padding = 1,
                                               .groups = 2,
                                               .tensor = f64}),
                         randn({2, 4, 4, 5}, f64));
}

TEST(Conv2d, TakesNoImagesInAnyLayout) {
  const auto layer = nn::make<nn::Conv2d>(3, 2, 3);
  const Tensor none = empty({4, 0, 5, 3}).permute({1, 3, 2, 0});
  const Tensor y = layer(none);
  EXPECT_EQ(y.shape(), (Shape{0, 2, 3, 2}));
  sum(y).backward();
  EXPECT_TRUE(equal(layer->weight.grad(), zeros({2, 3, 3, 3})));
  EXPECT_EQ(conv_transpose2d(none, layer->weight.transpose(0, 1)).shape(), (Shape{0, 2, 7, 6}));
}

TEST(Conv2d, RefusesGroupsThatDoNotDivideTheChannels) {
  EXPECT_THROW(nn::make<nn::Conv2d>({.in = 3, .out = 4, .groups = 2}), InvalidArgument);
}

TEST(Conv1d, HasTheRightGradients) {
  manual_seed(2);
  expect_layer_gradients(
      nn::make<nn::Conv1d>(
          {.in = 4, .out = 2, .kernel = 3, .stride = 2, .padding = 1, .groups = 2, .tensor = f64}),
      randn({2, 4, 6}, f64));
  EXPECT_THROW(nn::make<nn::Conv1d>(4, 2, 3)(randn({2, 4, 6, 1})), InvalidArgument);
}

TEST(ConvTranspose2d, HasTheRightGradients) {
  manual_seed(2);
  expect_layer_gradients(nn::make<nn::ConvTranspose2d>({.in = 4,
                                                        .out = 6,
                                                        .kernel = {3, 2},
                                                        .stride = 2,
                                                        .padding = 1,
                                                        .output_padding = 1,
                                                        .groups = 2,
                                                        .tensor = f64}),
                         randn({2, 4, 3, 2}, f64));
}

TEST(ConvTranspose2d, StartsWithinTheBoundOfItsOutputChannels) {
  const auto layer = nn::make<nn::ConvTranspose2d>({.in = 3, .out = 8, .kernel = 2, .groups = 1});
  EXPECT_EQ(layer->weight.shape(), (Shape{3, 8, 2, 2}));
  EXPECT_EQ(layer->bias.shape(), (Shape{8}));
  const double bound = 1 / std::sqrt(8.0 * 4.0);  // PyTorch takes the weight's second extent
  EXPECT_LE(amax(abs(layer->weight)).item(), bound);
  EXPECT_GT(amax(abs(layer->weight)).item(), 0.8 * bound);
  EXPECT_LE(amax(abs(layer->bias)).item(), bound);
}

TEST(ConvTranspose2d, RefusesGeometriesWithoutAPosition) {
  const auto with = [](const ConvTranspose2dOptions& options) {
    return conv_transpose2d(ones({1, 2, 2, 2}), ones({2, 2, 2, 2}), {}, options);
  };
  EXPECT_THROW(with({.padding = 2}), InvalidArgument);
  EXPECT_THROW(with({.output_padding = 1}), InvalidArgument);
  EXPECT_THROW(with({.groups = 3}), InvalidArgument);
  EXPECT_THROW(with({.stride = 0}), InvalidArgument);
}

TEST(Upsample, TakesASizeOrAFactor) {
  const Tensor x = randn({1, 2, 3, 4});
  EXPECT_EQ(nn::make<nn::Upsample>({.scale_factor = 2})(x).shape(), (Shape{1, 2, 6, 8}));
  const auto bilinear = nn::make<nn::Upsample>(
      {.size = {5, 1}, .mode = InterpolationMode::bilinear, .align_corners = true});
  EXPECT_EQ(bilinear(x).shape(), (Shape{1, 2, 5, 1}));
  EXPECT_THROW(interpolate(x, {}), InvalidArgument);
  EXPECT_THROW(interpolate(x, {.size = 2, .scale_factor = 2}), InvalidArgument);
  EXPECT_THROW(interpolate(x, {.scale_factor = 0.1}), InvalidArgument);
  EXPECT_THROW(interpolate(x, {.size = 2, .align_corners = true}), InvalidArgument);
  EXPECT_THROW(interpolate(x.flatten(), {.size = 2}), InvalidArgument);
}

TEST(PixelShuffle, MakesPixelsOfChannels) {
  const Tensor x = randn({2, 8, 3, 2});
  const Tensor y = nn::make<nn::PixelShuffle>(2)(x);
  EXPECT_TRUE(equal(y, pixel_shuffle(x, 2)));
  EXPECT_TRUE(equal(nn::make<nn::PixelUnshuffle>(2)(y), x));
  EXPECT_THROW(nn::make<nn::PixelShuffle>(0), InvalidArgument);
}

TEST(Embedding, HasTheRightGradientsAndNoneForPadding) {
  const auto table =
      nn::make<nn::Embedding>({.count = 4, .features = 3, .padding_index = 1, .tensor = f64});
  const std::vector<std::int64_t> indices{0, 1, 3, 3};
  const Tensor index = from_span<std::int64_t>(indices, {2, 2});
  EXPECT_TRUE(equal(table->weight.select(0, 1), zeros({3}, f64)));
  sum(table(index)).backward();
  EXPECT_EQ(table->weight.grad().to_vector<double>(),
            (std::vector<double>{1, 1, 1, 0, 0, 0, 0, 0, 0, 2, 2, 2}));
}

TEST(LayerNorm, HasTheRightGradients) {
  manual_seed(3);
  expect_layer_gradients(nn::make<nn::LayerNorm>({.shape = {2, 3}, .tensor = f64}),
                         randn({4, 2, 3}, f64));
}

TEST(RMSNorm, HasTheRightGradients) {
  manual_seed(4);
  expect_layer_gradients(nn::make<nn::RMSNorm>(5, f64), randn({3, 5}, f64));
}

TEST(GroupNorm, HasTheRightGradients) {
  manual_seed(4);
  const auto layer = nn::make<nn::GroupNorm>({.groups = 2, .channels = 4, .tensor = f64});
  expect_layer_gradients(layer, randn({3, 4, 2, 2}, f64));
  EXPECT_EQ(layer->parameters().size(), 2u);
  EXPECT_THROW(layer(randn({3, 6, 2, 2}, f64)), InvalidArgument);
  EXPECT_THROW(nn::make<nn::GroupNorm>(3, 4), InvalidArgument);
}

TEST(InstanceNorm, NormalisesEachChannelOfEachSample) {
  manual_seed(4);
  const auto layer = nn::make<nn::InstanceNorm2d>(3);
  EXPECT_TRUE(layer->parameters().empty());
  const Tensor x = randn({2, 3, 4, 5}), y = layer(x);
  for (std::int64_t i = 0; i < 2; ++i)
    for (std::int64_t c = 0; c < 3; ++c) {
      EXPECT_NEAR(mean(y[i][c]).item(), 0, 1e-6);
      EXPECT_NEAR(var(y[i][c], {}, 0).item(), 1, 1e-4);
    }
  expect_layer_gradients(
      nn::make<nn::InstanceNorm1d>({.channels = 2, .affine = true, .tensor = f64}),
      randn({3, 2, 5}, f64));
  EXPECT_TRUE(layer(randn({0, 3, 4, 5})).shape() == (Shape{0, 3, 4, 5}));
  for (const Shape& shape : {Shape{2, 4, 4, 4}, {2, 3, 4}, {3, 4, 4}, {2, 3, 1, 1}})
    EXPECT_THROW(layer(randn(shape)), InvalidArgument) << shape;
  EXPECT_THROW(nn::make<nn::InstanceNorm1d>(3)(randn({2, 3, 4, 5})), InvalidArgument);
  EXPECT_THROW(nn::make<nn::InstanceNorm1d>(0), InvalidArgument);
}

TEST(PReLU, LearnsItsSlopes) {
  manual_seed(4);
  const auto one = nn::make<nn::PReLU>();
  EXPECT_EQ(one(tensor<float>({-2, 0, 3})).to_vector<float>(), (std::vector<float>{-0.5f, 0, 3}));
  expect_layer_gradients(nn::make<nn::PReLU>({.channels = 3, .tensor = f64}),
                         randn({2, 3, 4}, f64));
  const Tensor limits = tensor<float>({INFINITY, -1});
  one(limits).slice(0, 1, 2).sum().backward();
  EXPECT_EQ(one->weight.grad().item(), -1);
  EXPECT_EQ(nn::make<nn::PReLU>(3)(ones({2, 3, 0})).shape(), (Shape{2, 3, 0}));
  EXPECT_THROW(nn::make<nn::PReLU>(3)(randn({2, 4})), InvalidArgument);
  EXPECT_THROW(nn::make<nn::PReLU>(0), InvalidArgument);
}

TEST(Pooling1d, PoolsSequences) {
  const Tensor x = tensor<float>({1, 3, 2, 5, 4, 0}).reshape({1, 1, 6});
  using Values = std::vector<float>;
  EXPECT_EQ(nn::make<nn::MaxPool1d>(2)(x).to_vector<float>(), (Values{3, 5, 4}));
  EXPECT_EQ(nn::make<nn::AvgPool1d>({.kernel = 3, .stride = 1, .padding = 1})(x)
                .slice(2, 1, 3)
                .to_vector<float>(),
            (Values{2, 10.0f / 3}));
  EXPECT_EQ(nn::make<nn::AdaptiveAvgPool1d>(2)(x).to_vector<float>(), (Values{2, 3}));
  EXPECT_EQ(max_pool1d(x, 2).to_vector<float>(), (Values{3, 5, 4}));
  EXPECT_EQ(avg_pool1d(x, 2, 3).to_vector<float>(), (Values{2, 4.5f}));
  EXPECT_THROW(nn::make<nn::MaxPool1d>(2)(randn({2, 4})), InvalidArgument);
  EXPECT_THROW(adaptive_avg_pool1d(x, 0), InvalidArgument);
}

TEST(BatchNorm2d, HasTheRightGradientsInBothModes) {
  manual_seed(5);
  const auto layer = nn::make<nn::BatchNorm2d>({.channels = 2, .tensor = f64});
  const Tensor x = randn({3, 2, 2, 2}, f64);
  expect_layer_gradients(layer, x);
  layer->eval();
  expect_layer_gradients(layer, x);
}

/// In f32 and f64 nothing is rounded between the parts that differs.
TEST(BatchNorm2d, EndsWithAResidualAndReluInOnePass) {
  manual_seed(5);
  const auto plain = nn::make<nn::BatchNorm2d>({.channels = 5, .tensor = f64});
  const auto whole = nn::make<nn::BatchNorm2d>({.channels = 5, .relu = true, .tensor = f64});
  const auto leaf = [](const Tensor& value) {
    Tensor result = value.clone();
    result.set_requires_grad(true);
    return result;
  };
  const Tensor x = randn({3, 5, 4, 4}, f64), residual = randn({3, 5, 4, 4}, f64);
  const Tensor dy = randn({3, 5, 4, 4}, f64);
  for (const bool adds : {true, false})
    for (const bool training : {true, false}) {
      const Tensor x1 = leaf(x), r1 = leaf(residual), x2 = leaf(x), r2 = leaf(residual);
      plain->train(training);
      whole->train(training);
      plain->zero_grad();
      whole->zero_grad();
      const Tensor separate = relu(adds ? plain(x1) + r1 : plain(x1));
      const Tensor together = adds ? whole(x2, r2) : whole(x2);
      EXPECT_TRUE(allclose(together, separate, 1e-12, 1e-12));
      separate.backward(dy);
      together.backward(dy);
      EXPECT_TRUE(allclose(x2.grad(), x1.grad(), 1e-12, 1e-12));
      EXPECT_TRUE(!adds || equal(r2.grad(), r1.grad()));
      EXPECT_TRUE(allclose(whole->weight.grad(), plain->weight.grad(), 1e-12, 1e-12));
      EXPECT_TRUE(allclose(whole->bias.grad(), plain->bias.grad(), 1e-12, 1e-12));
      EXPECT_TRUE(equal(whole->running_var, plain->running_var));
    }
  EXPECT_THROW(whole(x, residual.narrow(0, 0, 2)), InvalidArgument);
  EXPECT_THROW(whole(x, residual.to(DType::f32)), InvalidArgument);
  EXPECT_NE(whole->describe().find("relu"), std::string::npos);
}

TEST(BatchNorm2d, TracksMeanAndUnbiasedVarianceInTraining) {
  const auto layer = nn::make<nn::BatchNorm2d>({.channels = 1, .momentum = 0.5, .tensor = f64});
  const Tensor x = tensor<double>({1, 2, 3, 6}).reshape({1, 1, 2, 2});
  layer(x);
  EXPECT_DOUBLE_EQ(layer->running_mean.item(), 0.5 * 3);
  EXPECT_DOUBLE_EQ(layer->running_var.item(), 0.5 * 1 + 0.5 * 14.0 / 3.0);
  EXPECT_EQ(layer->num_batches_tracked.item(), 1);
  layer->eval();
  layer(x);
  EXPECT_EQ(layer->num_batches_tracked.item(), 1);
  EXPECT_THROW(layer(x.reshape({4, 1})), InvalidArgument);
}

TEST(BatchNorm2d, GoesByTheBatchWithoutRunningStatistics) {
  const auto layer = nn::make<nn::BatchNorm2d>({.channels = 3, .track_running_stats = false});
  const Tensor x = rand({4, 3, 2, 2});
  const Tensor expected = batch_norm(x, {}, {}, layer->weight, layer->bias, {.training = true});
  EXPECT_TRUE(equal(layer(x), expected));
  layer->eval();
  EXPECT_TRUE(equal(layer(x), expected));
  EXPECT_EQ(layer->state_dict().size(), 2u);
  EXPECT_EQ(nn::make<nn::BatchNorm2d>(3)->state_dict().size(), 5u);
}

TEST(BatchNorm1d, TakesVectorsAndSequences) {
  const auto layer = nn::make<nn::BatchNorm1d>(3);
  EXPECT_EQ(layer(randn({4, 3})).shape(), (Shape{4, 3}));
  EXPECT_EQ(layer(randn({4, 3, 5})).shape(), (Shape{4, 3, 5}));
}

TEST(Dropout, WorksInTrainingOnly) {
  manual_seed(6);
  const auto layer = nn::make<nn::Dropout>(0.25);
  const Tensor x = ones({10000});
  EXPECT_NEAR(mean(layer(x)).item(), 1.0, 0.03);
  EXPECT_FALSE(equal(layer(x), x));
  layer->eval();
  EXPECT_TRUE(equal(layer(x), x));
  EXPECT_THROW(nn::make<nn::Dropout>(1.5), InvalidArgument);
}

TEST(Dropout2d, DropsWholeChannelsInTrainingOnly) {
  manual_seed(6);
  const auto layer = nn::make<nn::Dropout2d>(0.25);
  const Tensor x = ones({100, 40, 2, 3}), y = layer(x);
  EXPECT_NEAR(mean(y).item(), 1.0, 0.03);
  EXPECT_TRUE(equal(amax(y, {2, 3}), amin(y, {2, 3})));
  EXPECT_NEAR(amax(y).item(), 4.0 / 3.0, 1e-6);
  EXPECT_EQ(amin(y).item(), 0.0);
  layer->eval();
  EXPECT_TRUE(equal(layer(x), x));
  EXPECT_THROW(nn::make<nn::Dropout2d>(1.5), InvalidArgument);
}

TEST(Pooling, ReducesWindows) {
  const Tensor x = arange(0, 16, 1, f64).reshape({1, 1, 4, 4});
  EXPECT_EQ(nn::make<nn::MaxPool2d>(2)(x).to_vector<double>(), (std::vector<double>{5, 7, 13, 15}));
  EXPECT_EQ(nn::make<nn::AvgPool2d>(2)(x).to_vector<double>(),
            (std::vector<double>{2.5, 4.5, 10.5, 12.5}));
  EXPECT_EQ(nn::make<nn::AdaptiveAvgPool2d>(1)(x).to_vector<double>(), (std::vector<double>{7.5}));
  EXPECT_EQ(nn::make<nn::Flatten>()(x).shape(), (Shape{1, 16}));
  const Tensor flat = arange(24).reshape({2, 12});
  EXPECT_EQ(nn::make<nn::Unflatten>(1, Shape{3, -1})(flat).shape(), (Shape{2, 3, 4}));
  EXPECT_EQ(nn::make<nn::Unflatten>(-2, Shape{1, 2})(flat).shape(), (Shape{1, 2, 12}));
  EXPECT_THROW(nn::make<nn::Unflatten>(1, Shape{5, -1})(flat), InvalidArgument);
  EXPECT_THROW(nn::make<nn::Unflatten>(1, Shape{2, 3})(flat), InvalidArgument);
  EXPECT_TRUE(equal(nn::make<nn::ZeroPad2d>(1)(x), pad(x, {1, 1, 1, 1})));
}

TEST(Activations, MatchTheirOps) {
  const Tensor x = randn({7});
  EXPECT_TRUE(equal(nn::make<nn::ReLU>()(x), relu(x)));
  EXPECT_TRUE(
      equal(nn::make<nn::GELU>(GeluApproximation::tanh)(x), gelu(x, GeluApproximation::tanh)));
  EXPECT_TRUE(equal(nn::make<nn::SiLU>()(x), silu(x)));
  EXPECT_TRUE(equal(nn::make<nn::Tanh>()(x), lockstep::tanh(x)));
  EXPECT_TRUE(equal(nn::make<nn::Sigmoid>()(x), sigmoid(x)));
  EXPECT_TRUE(equal(nn::make<nn::ReLU6>()(x * 5.0), clamp(x * 5.0, 0, 6)));
  EXPECT_TRUE(equal(nn::make<nn::LeakyReLU>(0.2)(x), leaky_relu(x, 0.2)));
  EXPECT_TRUE(equal(nn::make<nn::LeakyReLU>()(x), leaky_relu(x, 0.01)));
  EXPECT_TRUE(equal(nn::make<nn::ELU>(0.5)(x), elu(x, 0.5)));
  EXPECT_TRUE(equal(nn::make<nn::SELU>()(x), selu(x)));
  EXPECT_TRUE(equal(nn::make<nn::CELU>(0.5)(x), celu(x, 0.5)));
  EXPECT_TRUE(equal(nn::make<nn::GLU>()(x.repeat({2})), x * sigmoid(x)));
  EXPECT_TRUE(equal(nn::make<nn::Mish>()(x), mish(x)));
  EXPECT_TRUE(equal(nn::make<nn::Hardswish>()(x), hardswish(x)));
  EXPECT_TRUE(equal(nn::make<nn::Hardtanh>()(x), clamp(x, -1, 1)));
  EXPECT_TRUE(equal(nn::make<nn::Softplus>()(x), softplus(x)));
  EXPECT_TRUE(allclose(nn::make<nn::Softplus>(2.0)(x), log1p(exp(x * 2.0)) / 2.0));
  EXPECT_TRUE(allclose(nn::make<nn::LogSigmoid>()(x), log(sigmoid(x))));
  EXPECT_TRUE(equal(nn::make<nn::Softmax>(0)(x), softmax(x, 0)));
  EXPECT_TRUE(equal(nn::make<nn::LogSoftmax>(-1)(x), log_softmax(x, 0)));
  EXPECT_THROW(nn::make<nn::CELU>(0.0), InvalidArgument);
  EXPECT_THROW(nn::make<nn::Softplus>(0.0), InvalidArgument);
  EXPECT_THROW(nn::make<nn::Hardtanh>(1.0, -1.0), InvalidArgument);
}

TEST(MultiheadAttention, HasTheRightGradients) {
  manual_seed(7);
  const auto layer = nn::make<nn::MultiheadAttention>({.features = 4, .heads = 2, .tensor = f64});
  expect_gradients(
      [&](const std::vector<Tensor>& in) {
        return layer(in[0], nn::AttentionMask{.is_causal = true});
      },
      {randn({2, 3, 4}, f64), layer->in_proj_weight, layer->in_proj_bias, layer->out_proj->weight,
       layer->out_proj->bias});
}

TEST(MultiheadAttention, TakesSelfAttentionAsThreeEqualArguments) {
  const auto layer = nn::make<nn::MultiheadAttention>({.features = 6, .heads = 3, .tensor = f64});
  const Tensor x = randn({2, 5, 6}, f64);
  EXPECT_TRUE(allclose(layer(x), layer(x, x, x), 1e-12, 1e-12));
  EXPECT_THROW(nn::make<nn::MultiheadAttention>(6, 4), InvalidArgument);
}

TEST(MultiheadAttention, DoesNotSeeTheFutureWhenCausal) {
  const auto layer = nn::make<nn::MultiheadAttention>({.features = 4, .heads = 2, .tensor = f64});
  const Tensor x = randn({1, 4, 4}, f64), changed = x.clone();
  changed.slice(1, 3, 4).fill_(9.0);
  const nn::AttentionMask causal{.is_causal = true};
  EXPECT_TRUE(allclose(layer(x, causal).slice(1, 0, 3), layer(changed, causal).slice(1, 0, 3)));
  EXPECT_FALSE(allclose(layer(x).slice(1, 0, 3), layer(changed).slice(1, 0, 3)));
}

// PyTorch's layer and its function say the opposite of each other.
TEST(MultiheadAttention, MasksOutWhereTheMaskIsTrue) {
  const auto layer = nn::make<nn::MultiheadAttention>({.features = 4, .heads = 2, .tensor = f64});
  const Tensor x = randn({1, 3, 4}, f64);
  const Tensor future = triu(ones({3, 3}), 1) > 0;
  const Tensor causal = layer(x, nn::AttentionMask{.is_causal = true});
  EXPECT_TRUE(allclose(layer(x, nn::AttentionMask{.attn_mask = future}), causal));
  const Tensor scores = masked_fill(zeros({3, 3}, f64), future, -INFINITY);
  EXPECT_TRUE(allclose(layer(x, nn::AttentionMask{.attn_mask = scores}), causal));
  const Tensor heads = randn({1, 2, 3, 4}, f64);
  EXPECT_TRUE(allclose(scaled_dot_product_attention(heads, heads, heads, {.mask = !future}),
                       scaled_dot_product_attention(heads, heads, heads, {.is_causal = true})));
}

TEST(ScaledDotProductAttention, SaysThatTheMaskDoesNotFit) {
  const Tensor heads = randn({2, 3, 4, 8});
  for (const Shape& shape : {Shape{4, 5}, Shape{1, 2, 3, 4, 4}}) {
    const std::string message = testing::refusal([&] {
      return scaled_dot_product_attention(heads, heads, heads, {.mask = ones(shape) > 0});
    });
    EXPECT_NE(message.find("the mask has shape"), std::string::npos) << message;
  }
}

// 1 / 256 is the most that one rounding to bf16 takes away.
TEST(GroupNorm, IsRoundedOnce) {
  for (const Shape& shape : {Shape{4, 8, 6, 6}, Shape{2, 8, 20, 20}, Shape{3, 8}}) {
    const auto bf16 = [](const Tensor& x) { return x.to(DType::bf16); };
    const auto f32 = [](const Tensor& x) { return x.to(DType::f32); };
    const Tensor x = bf16(randn(shape)), weight = bf16(randn({8})), bias = bf16(randn({8}));
    const Tensor exact = group_norm(f32(x), 2, f32(weight), f32(bias));
    const Tensor off = abs(f32(group_norm(x, 2, weight, bias)) - exact);
    EXPECT_EQ((off > abs(exact) * (1.01 / 256) + 1e-6).to(DType::i64).sum().item(), 0) << shape;
  }
}

TEST(Identity, GivesWhatItIsGiven) {
  const Tensor x = rand({2});
  EXPECT_TRUE(nn::make<nn::Identity>()(x).is_same(x));
}

TEST(BatchNorm2d, LoadsStatesThatDoNotCountBatches) {
  const auto norm = nn::make<nn::BatchNorm2d>(2);
  NamedTensors state = norm->state_dict();
  std::erase_if(state, [](const auto& named) { return named.first == "num_batches_tracked"; });
  ASSERT_EQ(state.size(), 4U);
  state[0].second = full({2}, 3.0);
  norm->load_state_dict(state);
  EXPECT_TRUE(equal(norm->weight, full({2}, 3.0)));
  state.pop_back();
  EXPECT_THROW(norm->load_state_dict(state), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
