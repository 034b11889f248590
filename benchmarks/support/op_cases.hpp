#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/lockstep.hpp"

/// @file
/// Calls of single ops, as programs make them; benchmarks/peers/torch_ops.py has the same.

namespace lockstep::benchmark {

/// One call, with its gradients if it has leaves.
struct OpCase {
  std::function<Tensor()> call;
  std::vector<Tensor> leaves = {};
};
/// By name: what makes the operands.
using OpCases = std::map<std::string, std::function<OpCase()>>;

/// Numbers in [0, end) in no order, which any program can make without a generator.
inline Tensor places(const Shape& shape, std::int64_t end) {
  const Tensor i = arange(numel(shape), {.dtype = DType::i64});
  return remainder(remainder(i * i * 7919 + i * 104729, 1000003), end).reshape(shape);
}

/// Values in [-0.5, 0.5) of the same kind.
inline Tensor values(const Shape& shape) {
  return (places(shape, 1000003).to(DType::f64) / 1000003.0 - 0.5).to(DType::f32);
}

/// The same, whose gradient is wanted.
inline Tensor leaf(const Shape& shape) {
  Tensor tensor = values(shape);
  tensor.set_requires_grad();
  return tensor;
}

/// All cases.
inline OpCases op_cases() {
  constexpr std::int64_t many = std::int64_t{1} << 22;
  OpCases cases;
  using One = std::function<Tensor(const Tensor&)>;
  using Two = std::function<Tensor(const Tensor&, const Tensor&)>;
  const auto forward = [&](const std::string& name, const Shape& shape, const One& op) {
    cases[name] = [=] { return OpCase{[op, x = values(shape)] { return op(x); }}; };
  };
  const auto both = [&](const std::string& name, const Shape& shape, const One& op) {
    cases[name] = [=] {
      const Tensor x = leaf(shape);
      return OpCase{[=] { return op(x); }, {x}};
    };
  };
  const auto pair = [&](const std::string& name, const Shape& a, const Shape& b, const Two& op) {
    cases[name] = [=] {
      const Tensor x = leaf(a), y = leaf(b);
      return OpCase{[=] { return op(x, y); }, {x, y}};
    };
  };
  const auto indexed = [&](const std::string& name, const Shape& shape, const Shape& index,
                           std::int64_t end, const Two& op) {
    cases[name] = [=] {
      return OpCase{[op, x = values(shape), i = places(index, end)] { return op(x, i); }};
    };
  };
  const auto module = [&](const std::string& name, const Shape& shape, auto make) {
    cases[name] = [=] {
      const auto net = make();
      const Tensor x = leaf(shape);
      std::vector<Tensor> leaves = net->parameters();
      leaves.push_back(x);
      return OpCase{[=] { return net(x); }, leaves};
    };
  };

  // Elements.
  both("gelu", {many}, [](const Tensor& x) { return gelu(x); });
  both("silu", {many}, silu);
  both("tanh", {many}, tanh);
  both("exp", {many}, exp);
  both("sin", {many}, sin);
  both("softplus", {many}, softplus);
  both("relu", {many}, relu);
  forward("log", {many}, [](const Tensor& x) { return log(x + 1.0); });
  forward("erf", {many}, erf);
  forward("pow_2.5", {many}, [](const Tensor& x) { return pow(x + 1.0, 2.5); });
  pair("add", {many}, {many}, [](const Tensor& a, const Tensor& b) { return a + b; });
  pair("mul_row", {4096, 1024}, {1024}, [](const Tensor& a, const Tensor& b) { return a * b; });
  pair("mul_column", {4096, 1024}, {4096, 1},
       [](const Tensor& a, const Tensor& b) { return a * b; });
  pair("mul_narrow_row", {many / 16, 16}, {16},
       [](const Tensor& a, const Tensor& b) { return a * b; });
  pair("sub_narrow_column", {many / 4, 4}, {many / 4, 1},
       [](const Tensor& a, const Tensor& b) { return a - b; });
  forward("remainder", {many}, [](const Tensor& x) { return remainder(x, 0.125); });
  forward("atan2", {many}, [](const Tensor& x) { return atan2(x, x + 0.25); });
  forward("asin", {many}, asin);
  forward("sinh", {many}, sinh);
  forward("atanh", {many}, atanh);
  both("glu", {4096, 1024}, [](const Tensor& x) { return glu(x); });
  pair("prelu", {8, 64, 56, 56}, {64}, prelu);
  both("leaky_relu", {many}, [](const Tensor& x) { return leaky_relu(x); });
  both("elu", {many}, [](const Tensor& x) { return elu(x); });
  both("selu", {many}, selu);
  both("mish", {many}, mish);
  both("hardswish", {many}, hardswish);
  both("clamp", {many}, [](const Tensor& x) { return clamp(x, -0.25, 0.25); });
  forward("nan_to_num", {many}, [](const Tensor& x) { return nan_to_num(x); });
  forward("floor_divide", {many}, [](const Tensor& x) { return floor_divide(x, x + 1.0); });
  pair("lerp", {many}, {many}, [](const Tensor& a, const Tensor& b) { return lerp(a, b, 0.3); });
  both("div_row", {4096, 1024}, [](const Tensor& x) { return x / x.amax(1, true).detach(); });
  pair("mse_loss", {many}, {many}, [](const Tensor& a, const Tensor& b) { return mse_loss(a, b); });
  pair("l1_loss", {many}, {many}, [](const Tensor& a, const Tensor& b) { return l1_loss(a, b); });
  both("bce_with_logits", {many}, [t = values({many}) + 0.5](const Tensor& x) {
    return binary_cross_entropy_with_logits(x, t);
  });
  both("kl_div", {4096, 1000},
       [t = softmax(values({4096, 1000}), 1)](const Tensor& x) { return kl_div(x, t); });
  pair("cosine_similarity", {4096, 512}, {4096, 512},
       [](const Tensor& a, const Tensor& b) { return cosine_similarity(a, b); });
  both("normalize", {4096, 512}, [](const Tensor& x) { return normalize(x); });
  pair("huber_loss", {many}, {many},
       [](const Tensor& a, const Tensor& b) { return huber_loss(a, b, 0.25); });
  forward("where", {many}, [](const Tensor& x) { return where(gt(x, 0.0), x, 0.0); });
  forward("to_bf16", {many}, [](const Tensor& x) { return x.to(DType::bf16); });
  forward("to_f16", {many}, [](const Tensor& x) { return x.to(DType::f16); });

  // Reductions, along rows, columns and all.
  const Shape matrix{4096, 1024};
  forward("sum", {many}, [](const Tensor& x) { return sum(x); });
  forward("sum_rows", matrix, [](const Tensor& x) { return sum(x, 1); });
  forward("sum_columns", matrix, [](const Tensor& x) { return sum(x, 0); });
  forward("sum_short_rows", {many / 8, 8}, [](const Tensor& x) { return sum(x, 1); });
  forward("var_rows", matrix, [](const Tensor& x) { return var(x, 1); });
  forward("amax_rows", matrix, [](const Tensor& x) { return amax(x, 1); });
  forward("max_rows", matrix, [](const Tensor& x) { return max(x, 1).first; });
  forward("argmax_rows", matrix, [](const Tensor& x) { return argmax(x, 1); });
  forward("logsumexp_rows", matrix, [](const Tensor& x) { return logsumexp(x, 1); });
  forward("cumsum_rows", matrix, [](const Tensor& x) { return cumsum(x, 1); });
  forward("cumsum_columns", matrix, [](const Tensor& x) { return cumsum(x, 0); });
  forward("cumprod_rows", matrix, [](const Tensor& x) { return cumprod(x + 1.0, 1); });

  forward("sum_bool", {many}, [](const Tensor& x) { return sum(gt(x, 0.0)); });
  forward("sum_all_but_channels", {8, 64, 56, 56}, [](const Tensor& x) {
    return sum(x, {0, 2, 3});
  });
  forward("mean_planes", {8, 64, 56, 56}, [](const Tensor& x) { return mean(x, {2, 3}); });
  forward("norm", {many}, [](const Tensor& x) { return norm(x); });
  forward("prod_rows", matrix, [](const Tensor& x) { return prod(x + 1.0, 1); });
  forward("argmax_narrow", {many / 16, 16}, [](const Tensor& x) { return argmax(x, 1); });
  forward("all", {many}, [](const Tensor& x) { return all(gt(x, -1.0)); });
  forward("median", {many}, [](const Tensor& x) { return median(x); });

  // Order and places.
  forward("sort", {1 << 20}, [](const Tensor& x) { return sort(x).first; });
  forward("argsort_narrow", {many / 16, 16}, [](const Tensor& x) { return argsort(x); });
  forward("topk_narrow", {4096, 64}, [](const Tensor& x) { return topk(x, 2).first; });
  indexed("unique", {1}, {1 << 18}, 4096,
          [](const Tensor&, const Tensor& i) { return unique(i).values.to(DType::f32); });
  indexed("bincount", {1}, {1 << 20}, 4096,
          [](const Tensor&, const Tensor& i) { return bincount(i).to(DType::f32); });
  indexed("one_hot", {1}, {65536}, 100,
          [](const Tensor&, const Tensor& i) { return one_hot(i, 100).to(DType::f32); });
  indexed("index_select_narrow", {65536, 8}, {262144}, 65536,
          [](const Tensor& x, const Tensor& i) { return index_select(x, 0, i); });
  forward("sort_rows", {1024, 1024}, [](const Tensor& x) { return sort(x).first; });
  forward("topk", {64, 50257}, [](const Tensor& x) { return topk(x, 50).first; });
  forward("masked_select", {many}, [](const Tensor& x) { return masked_select(x, gt(x, 0.0)); });
  forward("nonzero", {many}, [](const Tensor& x) { return nonzero(gt(x, 0.0)); });
  indexed("index_select_rows", {65536, 256}, {16384}, 65536,
          [](const Tensor& x, const Tensor& i) { return index_select(x, 0, i); });
  indexed("gather", matrix, matrix, 1024,
          [](const Tensor& x, const Tensor& i) { return gather(x, 1, i); });
  indexed("scatter_add", matrix, matrix, 1024,
          [](const Tensor& x, const Tensor& i) { return scatter_add(x, 1, i, x); });
  indexed("index_add_rows", {4096, 256}, {4096}, 4096,
          [](const Tensor& x, const Tensor& i) { return index_add(x, 0, i, x); });
  cases["embedding"] = [] {
    const Tensor table = leaf({50257, 768}), i = places({8, 512}, 50257);
    return OpCase{[=] { return embedding(i, table); }, {table}};
  };

  // Movement.
  forward("transpose", {2048, 2048},
          [](const Tensor& x) { return x.transpose(0, 1).contiguous(); });
  forward("to_channels_last", {8, 64, 112, 112}, [](const Tensor& x) {
    return x.permute({0, 2, 3, 1}).contiguous();
  });
  forward("flip", {1024, 4096}, [](const Tensor& x) { return flip(x, 1); });
  forward("roll", {1024, 4096}, [](const Tensor& x) { return roll(x, 100, 1); });
  forward("tril", {2048, 2048}, [](const Tensor& x) { return tril(x); });
  forward("stack_last", {1024, 1024}, [](const Tensor& x) { return stack({x, x, x, x}, -1); });
  forward("repeat_interleave", {1024, 1024},
          [](const Tensor& x) { return repeat_interleave(x, 4, 0); });
  forward("reflection_pad", {8, 64, 56, 56}, [](const Tensor& x) {
    return pad(x, {1, 1, 1, 1}, PaddingMode::reflect);
  });
  forward("pixel_shuffle", {8, 64, 56, 56}, [](const Tensor& x) { return pixel_shuffle(x, 2); });
  forward("cat", {1024, 1024}, [](const Tensor& x) { return cat({x, x, x, x}, 1); });
  forward("repeat", {1024, 1024}, [](const Tensor& x) { return repeat(x, {2, 2}); });
  forward("expand_narrow", {many / 16, 1}, [](const Tensor& x) {
    return x.expand({x.size(0), 16}).contiguous();
  });
  forward("pad", {8, 64, 56, 56}, [](const Tensor& x) { return pad(x, {1, 1, 1, 1}); });

  // Norms, softmax and losses.
  both("softmax_rows", {4096, 1000}, [](const Tensor& x) { return softmax(x, -1); });
  both("softmax_middle", {64, 100, 1000}, [](const Tensor& x) { return softmax(x, 1); });
  both("log_softmax_rows", {4096, 1000}, [](const Tensor& x) { return log_softmax(x, -1); });
  both("log_softmax_narrow", {many / 16, 16}, [](const Tensor& x) { return log_softmax(x, -1); });
  both("softmax_narrow", {many / 16, 16}, [](const Tensor& x) { return softmax(x, -1); });
  both("logsumexp_narrow", {many / 16, 16}, [](const Tensor& x) { return logsumexp(x, -1); });
  both("cross_entropy_narrow", {65536, 10},
       [t = places({65536}, 10)](const Tensor& x) { return cross_entropy(x, t); });
  both("cross_entropy_smoothed", {4096, 1000}, [t = places({4096}, 1000)](const Tensor& x) {
    return cross_entropy(x, t, {.label_smoothing = 0.1});
  });
  both("cross_entropy", {4096, 8192},
       [t = places({4096}, 8192)](const Tensor& x) { return cross_entropy(x, t); });
  module("layer_norm", {4096, 768}, [] { return nn::make<nn::LayerNorm>(768); });
  module("rms_norm", {4096, 768}, [] { return nn::make<nn::RMSNorm>(768); });
  module("group_norm", {8, 64, 56, 56}, [] { return nn::make<nn::GroupNorm>(8, 64); });
  module("batch_norm", {8, 64, 56, 56}, [] { return nn::make<nn::BatchNorm2d>(64); });
  module("layer_norm_narrow", {65536, 32}, [] { return nn::make<nn::LayerNorm>(32); });
  module("instance_norm", {8, 64, 56, 56}, [] { return nn::make<nn::InstanceNorm2d>(64); });
  module("batch_norm_1d", {1024, 512}, [] { return nn::make<nn::BatchNorm1d>(512); });
  module("batch_norm_eval", {8, 64, 56, 56}, [] {
    auto net = nn::make<nn::BatchNorm2d>(64);
    net->eval();
    return net;
  });

  // Products, convolutions, pools and attention.
  pair("mm_1024", {1024, 1024}, {1024, 1024}, mm);
  pair("bmm_16", {4096, 16, 16}, {4096, 16, 16}, bmm);
  for (const std::int64_t rows : {1, 4, 8})
    cases["linear_of_" + std::to_string(rows)] = [rows] {
      return OpCase{[x = values({rows, 768}), w = values({3072, 768})] { return linear(x, w); }};
    };
  pair("conv_3x3", {8, 64, 56, 56}, {64, 64, 3, 3},
       [](const Tensor& x, const Tensor& w) { return conv2d(x, w, {}, {.padding = 1}); });
  pair("conv_depthwise", {8, 144, 56, 56}, {144, 1, 3, 3}, [](const Tensor& x, const Tensor& w) {
    return conv2d(x, w, {}, {.padding = 1, .groups = 144});
  });
  pair("conv_1x1", {8, 64, 56, 56}, {256, 64, 1, 1},
       [](const Tensor& x, const Tensor& w) { return conv2d(x, w); });
  pair("conv_7x7", {8, 3, 112, 112}, {64, 3, 7, 7}, [](const Tensor& x, const Tensor& w) {
    return conv2d(x, w, {}, {.stride = 2, .padding = 3});
  });
  pair("conv_dilated", {8, 32, 56, 56}, {32, 32, 3, 3}, [](const Tensor& x, const Tensor& w) {
    return conv2d(x, w, {}, {.padding = 2, .dilation = 2});
  });
  pair("conv_1d", {16, 128, 500}, {128, 128, 5},
       [](const Tensor& x, const Tensor& w) { return conv1d(x, w, {}, {.padding = 2}); });
  pair("conv_transpose", {8, 64, 28, 28}, {64, 32, 4, 4}, [](const Tensor& x, const Tensor& w) {
    return conv_transpose2d(x, w, {}, {.stride = 2, .padding = 1});
  });
  pair("outer", {2048}, {2048}, outer);
  pair("einsum_heads", {8, 128, 8, 64}, {8, 128, 8, 64}, [](const Tensor& a, const Tensor& b) {
    return einsum("bqhd,bkhd->bhqk", {a, b});
  });
  pair("cdist", {512, 64}, {512, 64}, [](const Tensor& a, const Tensor& b) { return cdist(a, b); });
  // Layers of several ops, with weights that any program can make.
  const auto layer = [&](const std::string& name, const Shape& shape, auto make, auto run) {
    cases[name] = [=] {
      const auto net = make();
      const NoGradGuard no_recording;
      for (Tensor each : net->parameters()) each.copy_(values(each.shape()) * 0.1);
      const Tensor x = leaf(shape);
      std::vector<Tensor> leaves = net->parameters();
      leaves.push_back(x);
      return OpCase{[=] { return run(net, x); }, leaves};
    };
  };
  const auto first = [](const auto& net, const Tensor& x) { return std::get<0>(net(x)); };
  layer(
      "lstm", {64, 32, 128}, [] { return nn::make<nn::LSTM>(128, 256); }, first);
  layer(
      "gru", {64, 32, 128}, [] { return nn::make<nn::GRU>(128, 256); }, first);
  layer(
      "lstm_two_ways", {32, 64, 64},
      [] {
        return nn::make<nn::LSTM>(nn::RecurrentOptions{
            .input_size = 64, .hidden_size = 128, .num_layers = 2, .bidirectional = true});
      },
      first);
  layer(
      "transformer_layer", {16, 128, 256},
      [] {
        return nn::make<nn::TransformerEncoderLayer>(nn::TransformerLayerOptions{
            .features = 256, .heads = 8, .dim_feedforward = 1024, .dropout = 0});
      },
      [](const auto& net, const Tensor& x) { return net(x); });
  both("avg_pool", {8, 64, 112, 112},
       [](const Tensor& x) { return avg_pool2d(x, {.kernel = 2, .stride = 2}); });
  both("max_pool", {8, 64, 112, 112},
       [](const Tensor& x) { return max_pool2d(x, {.kernel = 3, .stride = 2, .padding = 1}); });
  both("adaptive_avg_pool", {64, 512, 7, 7},
       [](const Tensor& x) { return adaptive_avg_pool2d(x, 1); });
  both("interpolate_bilinear", {8, 64, 28, 28}, [](const Tensor& x) {
    return interpolate(x, {.scale_factor = 2, .mode = InterpolationMode::bilinear});
  });
  both("interpolate_nearest", {8, 64, 28, 28},
       [](const Tensor& x) { return interpolate(x, {.scale_factor = 2}); });
  both("attention", {8, 8, 256, 64},
       [](const Tensor& x) { return scaled_dot_product_attention(x, x, x); });
  both("attention_causal", {8, 8, 256, 64},
       [](const Tensor& x) { return scaled_dot_product_attention(x, x, x, {.is_causal = true}); });
  both("attention_masked", {8, 8, 256, 64}, [mask = values({8, 1, 256, 256})](const Tensor& x) {
    return scaled_dot_product_attention(x, x, x, {.mask = mask});
  });
  return cases;
}

}  // namespace lockstep::benchmark
