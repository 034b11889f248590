#include <gtest/gtest.h>

#include "autograd/grad_check_cases.hpp"
#include "lockstep/runtime/stream.hpp"

// Gradients of normalisation, attention and image ops against central differences in f64.

namespace lockstep::test {
namespace {

std::vector<GradCase> norms() {
  return {
      {"layer_norm", [](const Tensors& in) { return layer_norm(in[0], {5}, in[1], in[2]); },
       shapes({{3, 4, 5}, {5}, {5}})},
      {"layer_norm_bare",
       [](const Tensors& in) {
         return layer_norm(in[0], {4, 5});
       },
       shapes({{3, 4, 5}})},
      {"layer_norm_of_views",
       [](const Tensors& in) {
         return layer_norm(in[0].transpose(0, 1), {2, 3}, in[1].transpose(0, 1),
                           in[2].expand({2, 3}));
       },
       shapes({{2, 4, 3}, {3, 2}, {3}})},
      {"layer_norm_with_one_parameter",
       [](const Tensors& in) { return layer_norm(in[0], {5}, in[1], in[1]); },
       shapes({{3, 5}, {5}})},
      {"layer_norm_of_its_own_weight",
       [](const Tensors& in) {
         const Tensor x = in[0] * 2.0;
         return layer_norm(x, {5}, x, in[0]) + x * 3.0;
       },
       shapes({{5}})},
      {"layer_norms_beside_residuals",
       [](const Tensors& in) {
         const Tensor x = in[0] * 2.0, y = x + square(layer_norm(x, {5}, in[1], in[2]));
         return y + square(rms_norm(y, {5}, in[1]));
       },
       shapes({{3, 4, 5}, {5}, {5}})},
      {"rms_norm", [](const Tensors& in) { return rms_norm(in[0], {5}, in[1]); },
       shapes({{3, 4, 5}, {5}})},
      {"rms_norm_bare", [](const Tensors& in) { return rms_norm(in[0].transpose(0, 1), {3}); },
       shapes({{3, 4}})},
      {"group_norm", [](const Tensors& in) { return group_norm(in[0], 3, in[1], in[2]); },
       shapes({{2, 6, 2, 3}, {6}, {6}})},
      {"batch_norm_training",
       [](const Tensors& in) {
         return batch_norm(in[0], {}, {}, in[1], in[2], {.training = true});
       },
       shapes({{4, 3, 2, 2}, {3}, {3}})},
      {"batch_norm_training_channels_last",
       [](const Tensors& in) {
         return batch_norm(in[0].channels_last(), {}, {}, in[1], in[2], {.training = true});
       },
       shapes({{4, 3, 2, 2}, {3}, {3}})},
      {"batch_norm_residual_relu",
       [](const Tensors& in) {
         return batch_norm(in[0], {}, {}, in[1], in[2], {.training = true, .relu = true}, in[3]);
       },
       shapes({{4, 3, 2, 2}, {3}, {3}, {4, 3, 2, 2}})},
      {"batch_norm_residual_of_another_order",
       [](const Tensors& in) {
         return batch_norm(in[0].channels_last(), {}, {}, in[1], in[2], {.training = true}, in[3]);
       },
       shapes({{4, 3, 2, 2}, {3}, {3}, {4, 3, 2, 2}})},
      {"batch_norm_relu",
       [](const Tensors& in) {
         return batch_norm(in[0].channels_last(), {}, {}, in[1], in[2],
                           {.training = true, .relu = true});
       },
       shapes({{4, 3, 2, 2}, {3}, {3}})},
      {"batch_norm_of_itself_and_relu",
       [](const Tensors& in) {
         return batch_norm(in[0], {}, {}, {}, {}, {.training = true, .relu = true}, in[0]);
       },
       shapes({{6, 3}})},
      {"batch_norm_evaluation_residual_relu",
       [](const Tensors& in) {
         return batch_norm(in[0], beside(in, distinct({3})), beside(in, distinct({3}, 0.5, 2.0)),
                           in[1], in[2], {.relu = true}, in[3]);
       },
       shapes({{4, 3, 2}, {3}, {3}, {4, 3, 2}})},
      {"batch_norm_of_rows",
       [](const Tensors& in) { return batch_norm(in[0], {}, {}, {}, {}, {.training = true}); },
       shapes({{6, 3}})},
      {"batch_norm_evaluation",
       [](const Tensors& in) {
         return batch_norm(in[0], beside(in, distinct({3})), beside(in, distinct({3}, 0.5, 2.0)),
                           in[1], in[2]);
       },
       shapes({{4, 3, 2}, {3}, {3}})},
      {"embedding",
       [](const Tensors& in) {
         return embedding(beside(in, tensor<std::int64_t>({3, 0, 3, 1}).reshape({2, 2})), in[0]);
       },
       shapes({{5, 3}})},
      {"add_embedding",
       [](const Tensors& in) {
         const Tensor index = beside(in, tensor<std::int64_t>({3, 0, 3, 1}).reshape({2, 2}));
         return add_embedding(in[1], index, in[0]);
       },
       shapes({{5, 3}, {2, 3}})},
      {"add_embedding_of_as_many",
       [](const Tensors& in) {
         return add_embedding(in[1], beside(in, tensor<std::int64_t>({3, 0, 3})), in[0]);
       },
       shapes({{5, 3}, {3, 3}})},
      {"dropout",
       [](const Tensors& in) {
         manual_seed(11);
         return dropout(in[0], 0.4);
       },
       shapes({{6, 7}})},
      {"dropout2d",
       [](const Tensors& in) {
         manual_seed(11);
         return dropout2d(in[0], 0.4);
       },
       shapes({{3, 5, 2, 2}})},
  };
}

std::vector<GradCase> rotary_embeddings() {
  const auto turned = [](const Tensors& in, const Tensor& x) {
    const Tensor angles = beside(in, distinct({3, 2}, 0.1, 3.0));
    return rotary_embedding(x, cos(angles), sin(angles));
  };
  return {
      {"rotary_embedding", [=](const Tensors& in) { return turned(in, in[0]); },
       shapes({{2, 4, 3, 4}})},
      {"rotary_embedding_of_parts_of_one_product",
       [=](const Tensors& in) {
         const auto parts = split(in[0], {8, 4}, -1);
         const auto heads = [&](std::size_t i) {
           return parts[i].reshape({2, 3, -1, 4}).transpose(1, 2);
         };
         return cat({turned(in, heads(0)), turned(in, heads(1))}, 1);
       },
       shapes({{2, 3, 12}})},
      {"rotary_embedding_of_transposed",
       [=](const Tensors& in) { return turned(in, in[0].transpose(2, 3)); },
       shapes({{1, 2, 4, 3}})},
  };
}

std::vector<GradCase> attentions() {
  const auto attention = [](AttentionOptions options) {
    return [=](const Tensors& in) {
      return scaled_dot_product_attention(in[0], in[1], in[2], options);
    };
  };
  const std::vector<Shape> square{{2, 2, 4, 3}, {2, 2, 4, 3}, {2, 2, 4, 3}};
  return {
      {"attention", attention({}), shapes(square)},
      {"attention_causal", attention({.is_causal = true}), shapes(square)},
      {"attention_scaled", attention({.scale = 0.3}), shapes(square)},
      {"attention_of_one_product",
       [](const Tensors& in) {
         auto parts = split(in[0], {8, 4, 6}, 2);
         const std::int64_t heads[] = {4, 2, 2};
         for (std::size_t i = 0; i < 3; ++i)
           parts[i] = parts[i].reshape({2, 3, heads[i], -1}).transpose(1, 2);
         return scaled_dot_product_attention(parts[0], parts[1], parts[2], {.is_causal = true});
       },
       shapes({{2, 3, 18}})},
      {"self_attention",
       [](const Tensors& in) { return self_attention(in[0], 2, {.is_causal = true}); },
       shapes({{2, 4, 18}})},
      {"self_attention_behind_a_layer",
       [](const Tensors& in) { return self_attention(linear(in[0], in[1], in[2]), 2); },
       shapes({{2, 3, 4}, {12, 4}, {12}})},
      {"self_attention_with_mask",
       [](const Tensors& in) {
         const Tensor mask = beside(in, tensor<bool>({true, false, true, true}).reshape({1, 4}));
         return self_attention(in[0], 1, {.mask = mask, .scale = 0.3});
       },
       shapes({{2, 4, 9}})},
      {"attention_of_other_lengths", attention({}),
       shapes({{1, 2, 3, 4}, {1, 2, 5, 4}, {1, 2, 5, 6}})},
      {"attention_grouped", attention({.is_causal = true}),
       shapes({{1, 4, 3, 2}, {1, 2, 3, 2}, {1, 2, 3, 2}})},
      {"attention_masked",
       [](const Tensors& in) {
         const Tensor mask = beside(in, tensor<bool>({true, false, true, true}).reshape({1, 4}));
         return scaled_dot_product_attention(in[0], in[1], in[2], {.mask = mask});
       },
       shapes(square)},
      {"attention_with_added_mask",
       [](const Tensors& in) {
         return scaled_dot_product_attention(in[0], in[1], in[2],
                                             {.mask = beside(in, distinct({4, 4}))});
       },
       shapes(square)},
      {"attention_with_learned_mask",
       [](const Tensors& in) {
         return scaled_dot_product_attention(in[0], in[1], in[2],
                                             {.mask = in[3], .is_causal = true, .scale = 0.3});
       },
       shapes({{2, 4, 3, 3}, {2, 2, 5, 3}, {2, 2, 5, 2}, {4, 1, 5}})},
      {"attention_with_dropout",
       [](const Tensors& in) {
         manual_seed(3);
         return self_attention(in[0], 2, {.is_causal = true, .dropout = 0.4});
       },
       shapes({{2, 4, 18}})},
      {"attention_of_views",
       [](const Tensors& in) {
         // As a model has it: heads cut out of one projection.
         const auto parts = chunk(in[0].reshape({2, 4, 3, 2, 3}), 3, 2);
         const auto heads = [](const Tensor& x) { return x.squeeze(2).transpose(1, 2); };
         return scaled_dot_product_attention(heads(parts[0]), heads(parts[1]), heads(parts[2]));
       },
       shapes({{2, 4, 18}})},
  };
}

std::vector<GradCase> convolutions() {
  const auto convolution = [](Conv2dOptions options) {
    return [=](const Tensors& in) {
      return conv2d(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), options);
    };
  };
  const std::vector<Shape> small{{2, 2, 5, 4}, {3, 2, 3, 3}, {3}};
  return {
      {"conv2d", convolution({}), shapes(small)},
      {"conv2d_without_bias", convolution({}), shapes({{1, 2, 4, 4}, {3, 2, 1, 1}})},
      {"conv2d_strided", convolution({.stride = 2, .padding = 1}), shapes(small)},
      {"conv2d_rectangular", convolution({.stride = {1, 2}, .padding = {0, 2}}),
       shapes({{1, 2, 3, 5}, {2, 2, 1, 3}, {2}})},
      {"conv2d_dilated", convolution({.padding = 2, .dilation = 2}), shapes(small)},
      {"conv2d_grouped", convolution({.padding = 1, .groups = 2}),
       shapes({{2, 4, 3, 3}, {4, 2, 3, 3}, {4}})},
      {"conv2d_of_images_like_weights",
       [](const Tensors& in) { return conv2d(in[0].channels_last(), in[1]); },
       shapes({{2, 3, 2, 2}, {2, 3, 2, 2}})},
      {"conv2d_channels_last",
       [](const Tensors& in) {
         return conv2d(in[0].channels_last(), in[1].channels_last(), in[2], {.padding = 1});
       },
       shapes(small)},
      {"conv2d_of_views",
       [](const Tensors& in) {
         return conv2d(in[0].transpose(2, 3).slice(0, 0, 1), in[1].slice(1, 0, 4, 2));
       },
       shapes({{2, 2, 4, 5}, {3, 4, 2, 2}})},
  };
}

std::vector<GradCase> other_convolutions() {
  const auto transposed = [](ConvTranspose2dOptions options) {
    return [=](const Tensors& in) { return conv_transpose2d(in[0], in[1], in[2], options); };
  };
  const std::vector<Shape> small{{2, 4, 3, 3}, {4, 2, 3, 3}, {2}};
  return {
      {"conv_transpose2d", transposed({}), shapes(small)},
      {"conv_transpose2d_strided", transposed({.stride = 2, .padding = 1, .output_padding = 1}),
       shapes(small)},
      {"conv_transpose2d_grouped", transposed({.stride = {1, 2}, .groups = 2}),
       shapes({{2, 4, 3, 3}, {4, 2, 2, 3}, {4}})},
      {"conv_transpose2d_dilated",
       transposed({.padding = 1, .output_padding = {2, 1}, .dilation = 3}), shapes(small)},
      {"conv_transpose2d_channels_last",
       [](const Tensors& in) {
         return conv_transpose2d(in[0].channels_last(), in[1].channels_last(), in[2],
                                 {.stride = 2});
       },
       shapes(small)},
      {"conv_transpose2d_of_views",
       [](const Tensors& in) {
         return conv_transpose2d(in[0].transpose(2, 3), in[1].slice(0, 0, 4, 2));
       },
       shapes({{2, 2, 3, 4}, {4, 2, 3, 2}})},
      {"conv1d",
       [](const Tensors& in) {
         return conv1d(in[0], in[1], in[2],
                       {.stride = 2, .padding = 2, .dilation = 2, .groups = 2});
       },
       shapes({{2, 4, 7}, {4, 2, 3}, {4}})},
      {"conv1d_of_view", [](const Tensors& in) { return conv1d(in[0].transpose(1, 2), in[1]); },
       shapes({{2, 6, 3}, {2, 3, 3}})},
  };
}

std::vector<GradCase> interpolations() {
  const auto resized = [](InterpolateOptions options) {
    return [=](const Tensors& in) { return interpolate(in[0], options); };
  };
  const auto image = shapes({{2, 3, 4, 5}});
  constexpr auto bilinear = InterpolationMode::bilinear;
  return {
      {"interpolate_nearest", resized({.size = {7, 3}}), image},
      {"interpolate_by_factor", resized({.scale_factor = {2, 1.7}}), image},
      {"interpolate_bilinear", resized({.size = {7, 3}, .mode = bilinear}), image},
      {"interpolate_bilinear_by_factor", resized({.scale_factor = {2, 1.7}, .mode = bilinear}),
       image},
      {"interpolate_aligned", resized({.size = {3, 9}, .mode = bilinear, .align_corners = true}),
       image},
      {"interpolate_channels_last",
       [](const Tensors& in) {
         return interpolate(in[0].channels_last(),
                            {.size = 6, .mode = InterpolationMode::bilinear});
       },
       image},
      {"interpolate_view",
       [](const Tensors& in) {
         return interpolate(in[0].transpose(2, 3).slice(1, 0, 2), {.scale_factor = 2});
       },
       image},
  };
}

/// Operands of a recurrent layer: x, h, weights, biases.
std::vector<Shape> recurrent_shapes(std::int64_t gates) {
  return {{3, 2, 4}, {2, 3}, {gates * 3, 4}, {gates * 3, 3}, {gates * 3}, {gates * 3}};
}
RecurrentWeights weights_of(const Tensors& in) { return {in[2], in[3], in[4], in[5]}; }

std::vector<GradCase> recurrences() {
  std::vector<Shape> with_c = recurrent_shapes(4);
  with_c.push_back({2, 3});
  const auto both = [](const std::pair<Tensor, Tensor>& states) {
    return cat({states.first.flatten(), states.second.flatten()});
  };
  return {
      {"lstm",
       [=](const Tensors& in) { return both(lstm_layer(in[0], in[1], in[6], weights_of(in))); },
       shapes(with_c, -1, 1)},
      {"lstm_reversed",
       [=](const Tensors& in) {
         return both(lstm_layer(in[0], in[1], in[6], weights_of(in), true));
       },
       shapes(with_c, -1, 1)},
      {"lstm_last_state_alone",
       [](const Tensors& in) {
         return lstm_layer(in[0].transpose(0, 1), {}, {}, {in[1], in[2], {}, {}}).second;
       },
       shapes({{2, 3, 4}, {12, 4}, {12, 3}}, -1, 1)},
      {"lstm_states_alone",
       [](const Tensors& in) {
         return lstm_layer(in[0], {}, {}, {in[1], in[2].transpose(0, 1), {}, {}}).first;
       },
       shapes({{3, 2, 4}, {12, 4}, {3, 12}}, -1, 1)},
      {"lstm_of_one_step",
       [](const Tensors& in) {
         return lstm_layer(in[0], {}, {}, {in[1], in[2], {}, {}}).first;
       },
       shapes({{1, 2, 4}, {12, 4}, {12, 3}}, -1, 1)},
      {"gru", [](const Tensors& in) { return gru_layer(in[0], in[1], weights_of(in)); },
       shapes(recurrent_shapes(3), -1, 1)},
      {"gru_reversed",
       [](const Tensors& in) { return gru_layer(in[0], in[1], weights_of(in), true); },
       shapes(recurrent_shapes(3), -1, 1)},
      {"gru_of_view",
       [](const Tensors& in) {
         return gru_layer(in[0].transpose(0, 1), {}, {in[1], in[2], {}, {}});
       },
       shapes({{2, 3, 4}, {9, 4}, {9, 3}}, -1, 1)},
  };
}

std::vector<GradCase> pools() {
  const auto spread = [] { return Tensors{distinct({2, 3, 5, 6})}; };
  const auto max = [](Pool2dOptions options) {
    return [=](const Tensors& in) { return max_pool2d(in[0], options); };
  };
  const auto average = [](Pool2dOptions options) {
    return [=](const Tensors& in) { return avg_pool2d(in[0], options); };
  };
  return {
      {"max_pool2d", max({.kernel = 2}), spread},
      {"max_pool2d_overlapping", max({.kernel = 3, .stride = 2, .padding = 1}), spread},
      {"max_pool2d_ceil", max({.kernel = 2, .stride = 2, .ceil_mode = true}), spread},
      {"max_pool2d_channels_last",
       [](const Tensors& in) { return max_pool2d(in[0].channels_last(), {.kernel = 3}); }, spread},
      {"avg_pool2d", average({.kernel = 2}), spread},
      {"avg_pool2d_padded", average({.kernel = 3, .stride = 2, .padding = 1}), spread},
      {"avg_pool2d_without_padding",
       average({.kernel = 3, .stride = 2, .padding = 1, .count_include_pad = false}), spread},
      {"avg_pool2d_ceil", average({.kernel = 2, .stride = 2, .ceil_mode = true}), spread},
      {"avg_pool2d_channels_last",
       [](const Tensors& in) { return avg_pool2d(in[0].channels_last(), {.kernel = 2}); }, spread},
      {"adaptive_avg_pool2d",
       [](const Tensors& in) {
         return adaptive_avg_pool2d(in[0], {3, 4});
       },
       spread},
      {"adaptive_avg_pool2d_channels_last",
       [](const Tensors& in) { return adaptive_avg_pool2d(in[0].channels_last(), 1); }, spread},
  };
}

class LayerGradients : public ::testing::TestWithParam<GradCase> {};

TEST_P(LayerGradients, MatchDifferences) {
  testing::expect_gradients(GetParam().op, GetParam().inputs());
}

TEST_P(LayerGradients, OfGradientsMatchDifferences) {
  testing::expect_second_gradients(GetParam().op, GetParam().inputs());
}

TEST_P(LayerGradients, LeaveNothingAlive) { expect_no_leak(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Norm, LayerGradients, ::testing::ValuesIn(norms()), case_name);
INSTANTIATE_TEST_SUITE_P(RotaryEmbedding, LayerGradients, ::testing::ValuesIn(rotary_embeddings()),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Attention, LayerGradients, ::testing::ValuesIn(attentions()), case_name);
INSTANTIATE_TEST_SUITE_P(Convolution, LayerGradients, ::testing::ValuesIn(convolutions()),
                         case_name);
INSTANTIATE_TEST_SUITE_P(OtherConvolution, LayerGradients,
                         ::testing::ValuesIn(other_convolutions()), case_name);
INSTANTIATE_TEST_SUITE_P(Interpolation, LayerGradients, ::testing::ValuesIn(interpolations()),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Recurrent, LayerGradients, ::testing::ValuesIn(recurrences()), case_name);
INSTANTIATE_TEST_SUITE_P(Pooling, LayerGradients, ::testing::ValuesIn(pools()), case_name);

class LayerGradientsOnGpu : public GradCasesOnGpu {};

TEST_F(LayerGradientsOnGpu, OfNormsMatchDifferences) { check(norms()); }
// Blocks of a launch count themselves in numbers that belong to its stream. The driver's own has
// none.
TEST_F(LayerGradientsOnGpu, OfNormsComeOnSeveralStreamsAtOnce) {
  const TensorOptions on_gpu{DType::f32, device};
  const Stream first(device), second(device);
  const StreamRef streams[] = {first.ref(), second.ref(), {device}};
  const Tensor x = rand({300, 128}, on_gpu), image = rand({4, 128, 9, 9}, on_gpu);
  const Tensor last = image.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2});
  Tensor weight = ones({128}, on_gpu).set_requires_grad(true), loss;
  sum(x).item();  // what the default stream made is there
  sum(last).item();
  const auto forward = [&] {
    const Tensor y = batch_norm(last, {}, {}, weight, {}, {.training = true});
    return sum(rms_norm(x, {128}, weight) + layer_norm(x, {128}, weight)) + sum(y * last);
  };
  {
    const StreamGuard guard(first.ref());
    loss = forward();
  }
  first.synchronize();
  std::vector<Tensor> gradients, losses;
  for (const StreamRef stream : streams) {
    const StreamGuard guard(stream);
    losses.push_back(forward());
    loss.backward({}, true);
    gradients.push_back(weight.grad());
    weight.set_grad({});
  }
  for (const StreamRef stream : streams) synchronize(stream);
  for (std::size_t i = 1; i < gradients.size(); ++i) {
    EXPECT_EQ(amax(abs(gradients[0] - gradients[i])).item(), 0.0) << i;
    EXPECT_EQ(losses[0].item(), losses[i].item()) << i;
  }
}
TEST_F(LayerGradientsOnGpu, OfAttentionMatchDifferences) {
  check(rotary_embeddings());
  check(attentions());
}
TEST_F(LayerGradientsOnGpu, OfAttentionToValuesWithoutWidthAreZero) {
  const TensorOptions on_gpu{DType::f32, device};
  Tensor q = rand({2, 2, 3, 4}, on_gpu).set_requires_grad(), k = rand({2, 2, 3, 4}, on_gpu);
  k.set_requires_grad();
  const Tensor v = empty({2, 2, 3, 0}, on_gpu).set_requires_grad();
  sum(scaled_dot_product_attention(q, k, v)).backward();
  for (const Tensor& each : {q, k}) EXPECT_EQ(amax(abs(each.grad())).item(), 0.0);
}
TEST_F(LayerGradientsOnGpu, OfConvolutionMatchDifferences) { check(convolutions()); }
TEST_F(LayerGradientsOnGpu, OfOtherConvolutionsMatchDifferences) { check(other_convolutions()); }
TEST_F(LayerGradientsOnGpu, OfInterpolationMatchDifferences) { check(interpolations()); }
TEST_F(LayerGradientsOnGpu, OfRecurrentLayersMatchDifferences) { check(recurrences()); }
TEST_F(LayerGradientsOnGpu, OfPoolingMatchDifferences) { check(pools()); }

}  // namespace
}  // namespace lockstep::test
