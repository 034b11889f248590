#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/autograd/ops.hpp"
#include "support/call_op.hpp"
#include "support/golden.hpp"

/// @file
/// How each op of the golden files is called in lockstep.

namespace lockstep::test {

using testing::GoldenArgs;
using testing::GoldenCase;

/// Operands of a golden case, absent ones at the end undefined.
class GoldenInputs {
 public:
  GoldenInputs(const std::vector<Tensor>& tensors, const GoldenArgs& arguments)
      : args(arguments), tensors_(tensors) {}
  Tensor operator[](std::size_t i) const { return i < tensors_.size() ? tensors_[i] : Tensor(); }
  const std::vector<Tensor>& all() const { return tensors_; }
  const GoldenArgs& args;

 private:
  const std::vector<Tensor>& tensors_;
};

using GoldenOp = std::function<std::vector<Tensor>(const GoldenInputs&)>;
using GoldenOps = std::map<std::string_view, GoldenOp>;

namespace golden {

using In = const GoldenInputs&;
using Out = std::vector<Tensor>;

inline Size2d size2d(const GoldenArgs& args, std::string_view key, std::int64_t fallback) {
  const Dims size = args.dims(key, {fallback});
  return {size[0], size.back()};
}

inline Reduction reduction(const GoldenArgs& args) {
  const std::string text = args.text("reduction", "mean");
  if (text == "batchmean") return Reduction::batch_mean;
  return text == "none" ? Reduction::none : text == "sum" ? Reduction::sum : Reduction::mean;
}

inline Tensor compare_with(CompareOp op, const Tensor& x, double value) {
  switch (op) {
    case CompareOp::eq: return x == value;
    case CompareOp::ne: return x != value;
    case CompareOp::lt: return x < value;
    case CompareOp::le: return x <= value;
    case CompareOp::gt: return x > value;
    case CompareOp::ge: return x >= value;
    default: return {};
  }
}

inline void add_elementwise(GoldenOps& ops) {
  for (std::size_t i = 0; i < std::size(unary_ops); ++i)
    ops[unary_ops[i].name] = [op = static_cast<UnaryOp>(i)](In x) -> Out {
      return {testing::call(op, x[0], {})};
    };
  for (std::size_t i = 0; i < std::size(binary_ops); ++i)
    ops[binary_ops[i].name] = [op = static_cast<BinaryOp>(i)](In x) -> Out {
      return {testing::call(op, x[0], x[1], {})};
    };
  for (std::size_t i = 0; i < std::size(compare_ops); ++i)
    ops[compare_ops[i].name] = [op = static_cast<CompareOp>(i)](In x) -> Out {
      return {x.args.has("other") ? compare_with(op, x[0], x.args.number("other"))
                                  : testing::call(op, x[0], x[1])};
    };
  ops["logical_not"] = [](In x) -> Out { return {logical_not(x[0])}; };
  ops["pow"] = [](In x) -> Out {
    return {x.args.has("exponent") ? pow(x[0], x.args.number("exponent")) : pow(x[0], x[1])};
  };
  ops["elu"] = [](In x) -> Out { return {elu(x[0], x.args.number("alpha", 1.0))}; };
  ops["gelu"] = [](In x) -> Out {
    const bool exact = x.args.text("approximate", "none") == "none";
    return {gelu(x[0], exact ? GeluApproximation::none : GeluApproximation::tanh)};
  };
  ops["leaky_relu"] = [](In x) -> Out {
    return {leaky_relu(x[0], x.args.number("negative_slope", 0.01))};
  };
  ops["clamp"] = [](In x) -> Out {
    return {clamp(x[0], x.args.number("min"), x.args.number("max"))};
  };
  ops["where"] = [](In x) -> Out { return {where(x[0], x[1], x[2])}; };
}

inline void add_reductions(GoldenOps& ops) {
  using Reduce = Tensor (*)(const Tensor&, const Dims&, bool);
  const std::map<std::string_view, Reduce> reductions{
      {"sum", sum},   {"mean", mean},           {"amax", amax}, {"prod", prod},
      {"amin", amin}, {"logsumexp", logsumexp}, {"norm", norm}};
  for (const auto& [name, op] : reductions)
    ops[name] = [op = op](In x) -> Out {
      return {op(x[0], x.args.dims("dim"), x.args.flag("keepdim"))};
    };
  ops["var"] = [](In x) -> Out {
    return {var(x[0], x.args.dims("dim"), x.args.integer("correction", 1))};
  };
  ops["any"] = [](In x) -> Out { return {any(x[0], x.args.dims("dim"), x.args.flag("keepdim"))}; };
  ops["all"] = [](In x) -> Out { return {all(x[0], x.args.dims("dim"), x.args.flag("keepdim"))}; };
  const auto pair = [](const std::pair<Tensor, Tensor>& both) -> Out {
    return {both.first, both.second};
  };
  ops["max"] = [=](In x) -> Out { return pair(max(x[0], x.args.integer("dim"))); };
  ops["min"] = [=](In x) -> Out { return pair(min(x[0], x.args.integer("dim"))); };
  ops["argmax"] = [](In x) -> Out {
    return {x.args.has("dim") ? argmax(x[0], x.args.integer("dim")) : argmax(x[0])};
  };
  ops["argmin"] = [](In x) -> Out {
    return {x.args.has("dim") ? argmin(x[0], x.args.integer("dim")) : argmin(x[0])};
  };
  ops["cumsum"] = [](In x) -> Out { return {cumsum(x[0], x.args.integer("dim"))}; };
  ops["topk"] = [=](In x) -> Out {
    return pair(
        topk(x[0], x.args.integer("k"), x.args.integer("dim", -1), x.args.flag("largest", true)));
  };
  ops["sort"] = [=](In x) -> Out {
    return pair(sort(x[0], x.args.integer("dim", -1), x.args.flag("descending")));
  };
  ops["argsort"] = [](In x) -> Out {
    return {argsort(x[0], x.args.integer("dim", -1), x.args.flag("descending"))};
  };
  ops["searchsorted"] = [](In x) -> Out {
    return {searchsorted(x[0], x[1], x.args.flag("right"))};
  };
}

inline void add_shapes(GoldenOps& ops) {
  ops["permute"] = [](In x) -> Out { return {x[0].permute(x.args.dims("dims"))}; };
  ops["transpose"] = [](In x) -> Out {
    return {x[0].transpose(x.args.integer("dim0"), x.args.integer("dim1"))};
  };
  ops["reshape"] = [](In x) -> Out { return {x[0].reshape(x.args.dims("shape"))}; };
  ops["slice"] = [](In x) -> Out {
    return {x[0].slice(x.args.integer("dim"), x.args.integer("start"), x.args.integer("end"),
                       x.args.integer("step", 1))};
  };
  ops["select"] = [](In x) -> Out {
    return {x[0].select(x.args.integer("dim"), x.args.integer("index"))};
  };
  ops["expand"] = [](In x) -> Out { return {x[0].expand(x.args.dims("shape"))}; };
  ops["flip"] = [](In x) -> Out { return {flip(x[0], x.args.dims("dims"))}; };
  ops["pad"] = [](In x) -> Out {
    const Dims padding = x.args.dims("pad");
    return {pad(x[0], std::span(padding.begin(), padding.end()), x.args.number("value"))};
  };
  ops["tril"] = [](In x) -> Out { return {tril(x[0], x.args.integer("diagonal"))}; };
  ops["triu"] = [](In x) -> Out { return {triu(x[0], x.args.integer("diagonal"))}; };
  ops["roll"] = [](In x) -> Out {
    return {roll(x[0], x.args.dims("shifts")[0], x.args.dims("dim")[0])};
  };
  ops["cat"] = [](In x) -> Out { return {cat(x.all(), x.args.integer("dim"))}; };
  ops["stack"] = [](In x) -> Out { return {stack(x.all(), x.args.integer("dim"))}; };
  ops["split"] = [](In x) -> Out {
    const Dims sizes = x.args.dims("sizes");
    return split(x[0], std::span(sizes.begin(), sizes.end()), x.args.integer("dim"));
  };
  ops["chunk"] = [](In x) -> Out {
    return chunk(x[0], x.args.integer("chunks"), x.args.integer("dim"));
  };
  ops["index_select"] = [](In x) -> Out {
    return {index_select(x[0], x.args.integer("dim"), x[1])};
  };
  ops["gather"] = [](In x) -> Out { return {gather(x[0], x.args.integer("dim"), x[1])}; };
}

inline void add_indexing(GoldenOps& ops) {
  ops["diagonal"] = [](In x) -> Out {
    return {
        x[0].diagonal(x.args.integer("offset"), x.args.integer("dim1"), x.args.integer("dim2"))};
  };
  ops["masked_fill"] = [](In x) -> Out {
    return {masked_fill(x[0], x[1], x.args.number("value"))};
  };
  ops["one_hot"] = [](In x) -> Out { return {one_hot(x[0], x.args.integer("num_classes"))}; };
  ops["scatter_add"] = [](In x) -> Out {
    return {scatter_add(x[0], x.args.integer("dim"), x[1], x[2])};
  };
  ops["index_add"] = [](In x) -> Out {
    return {index_add(x[0], x.args.integer("dim"), x[1], x[2], x.args.number("alpha", 1.0))};
  };
}

inline void add_losses(GoldenOps& ops) {
  ops["softmax"] = [](In x) -> Out { return {softmax(x[0], x.args.integer("dim"))}; };
  ops["log_softmax"] = [](In x) -> Out { return {log_softmax(x[0], x.args.integer("dim"))}; };
  ops["cross_entropy"] = [](In x) -> Out {
    return {cross_entropy(x[0], x[1],
                          {.weight = x[2],
                           .ignore_index = x.args.integer("ignore_index", -100),
                           .label_smoothing = x.args.number("label_smoothing"),
                           .reduction = reduction(x.args)})};
  };
  ops["nll_loss"] = [](In x) -> Out { return {nll_loss(x[0], x[1], reduction(x.args))}; };
  ops["mse_loss"] = [](In x) -> Out { return {mse_loss(x[0], x[1], reduction(x.args))}; };
  ops["l1_loss"] = [](In x) -> Out { return {l1_loss(x[0], x[1], reduction(x.args))}; };
  ops["smooth_l1_loss"] = [](In x) -> Out {
    return {smooth_l1_loss(x[0], x[1], x.args.number("beta", 1.0), reduction(x.args))};
  };
  ops["huber_loss"] = [](In x) -> Out {
    return {huber_loss(x[0], x[1], x.args.number("delta", 1.0), reduction(x.args))};
  };
  ops["binary_cross_entropy_with_logits"] = [](In x) -> Out {
    return {binary_cross_entropy_with_logits(x[0], x[1], {}, x[2], reduction(x.args))};
  };
  ops["binary_cross_entropy"] = [](In x) -> Out {
    return {binary_cross_entropy(x[0], x[1], x[2], reduction(x.args))};
  };
  ops["kl_div"] = [](In x) -> Out { return {kl_div(x[0], x[1], reduction(x.args))}; };
}

inline void add_layers(GoldenOps& ops) {
  ops["matmul"] = [](In x) -> Out { return {matmul(x[0], x[1])}; };
  ops["einsum"] = [](In x) -> Out { return {einsum(x.args.text("equation"), x.all())}; };
  ops["linear"] = [](In x) -> Out { return {linear(x[0], x[1], x[2])}; };
  ops["layer_norm"] = [](In x) -> Out {
    return {layer_norm(x[0], x.args.dims("normalized_shape"), x[1], x[2], x.args.number("eps"))};
  };
  ops["rms_norm"] = [](In x) -> Out {
    return {rms_norm(x[0], x.args.dims("normalized_shape"), x[1], x.args.number("eps"))};
  };
  ops["group_norm"] = [](In x) -> Out {
    return {group_norm(x[0], x.args.integer("num_groups"), x[1], x[2], x.args.number("eps"))};
  };
  ops["batch_norm"] = [](In x) -> Out {
    const Tensor y = batch_norm(x[0], x[3], x[4], x[1], x[2],
                                {.training = x.args.flag("training"),
                                 .momentum = x.args.number("momentum"),
                                 .eps = x.args.number("eps")});
    return {y, x[3], x[4]};
  };
  ops["embedding"] = [](In x) -> Out {
    return {embedding(x[0], x[1], x.args.integer("padding_idx", -1))};
  };
  ops["scaled_dot_product_attention"] = [](In x) -> Out {
    AttentionOptions options{.mask = x[3], .is_causal = x.args.flag("is_causal")};
    if (x.args.has("scale")) options.scale = x.args.number("scale");
    return {scaled_dot_product_attention(x[0], x[1], x[2], options)};
  };
}

inline void add_spatial(GoldenOps& ops) {
  ops["conv2d"] = [](In x) -> Out {
    return {conv2d(x[0], x[1], x[2],
                   {.stride = size2d(x.args, "stride", 1),
                    .padding = size2d(x.args, "padding", 0),
                    .dilation = size2d(x.args, "dilation", 1),
                    .groups = x.args.integer("groups", 1)})};
  };
  ops["conv1d"] = [](In x) -> Out {
    return {conv1d(x[0], x[1], x[2],
                   {.stride = x.args.integer("stride", 1),
                    .padding = x.args.integer("padding"),
                    .dilation = x.args.integer("dilation", 1),
                    .groups = x.args.integer("groups", 1)})};
  };
  ops["conv_transpose2d"] = [](In x) -> Out {
    return {conv_transpose2d(x[0], x[1], x[2],
                             {.stride = size2d(x.args, "stride", 1),
                              .padding = size2d(x.args, "padding", 0),
                              .output_padding = size2d(x.args, "output_padding", 0),
                              .dilation = size2d(x.args, "dilation", 1),
                              .groups = x.args.integer("groups", 1)})};
  };
  ops["interpolate"] = [](In x) -> Out {
    const std::vector<double> factors = x.args.numbers("scale_factor");
    InterpolateOptions options{.size = size2d(x.args, "size", 0),
                               .align_corners = x.args.flag("align_corners")};
    if (!factors.empty()) options.scale_factor = {factors[0], factors[1]};
    if (x.args.text("mode") == "bilinear") options.mode = InterpolationMode::bilinear;
    return {interpolate(x[0], options)};
  };
  const auto pooling = [](const GoldenArgs& args) -> Pool2dOptions {
    return {.kernel = size2d(args, "kernel_size", 1),
            .stride = size2d(args, "stride", 0),
            .padding = size2d(args, "padding", 0),
            .ceil_mode = args.flag("ceil_mode"),
            .count_include_pad = args.flag("count_include_pad", true)};
  };
  ops["max_pool2d"] = [=](In x) -> Out { return {max_pool2d(x[0], pooling(x.args))}; };
  ops["avg_pool2d"] = [=](In x) -> Out { return {avg_pool2d(x[0], pooling(x.args))}; };
  ops["adaptive_avg_pool2d"] = [](In x) -> Out {
    return {adaptive_avg_pool2d(x[0], size2d(x.args, "output_size", 1))};
  };
}

/// Layers of an LSTM or a GRU over one another. Inputs: x, the first states (as many as the
/// argument "states" says), then the parameters in PyTorch's order.
inline Out recurrent(In x, bool lstm) {
  std::size_t next = 1;
  const auto state = [&](std::int64_t i) {
    return x.args.integer("states") > i ? x[next++] : Tensor();
  };
  const Tensor h = state(0), c = state(1);
  const bool two_ways = x.args.flag("bidirectional"), batch_first = x.args.flag("batch_first");
  Tensor sequence = batch_first ? x[0].transpose(0, 1) : x[0];
  std::vector<Tensor> last_h, last_c;
  for (std::int64_t layer = 0; layer < x.args.integer("num_layers", 1); ++layer) {
    std::vector<Tensor> directions;
    for (const bool reverse : two_ways ? std::vector{false, true} : std::vector{false}) {
      RecurrentWeights weights{x[next], x[next + 1], {}, {}};
      next += 2;
      if (x.args.flag("bias", true)) {
        weights.input_bias = x[next++];
        weights.hidden_bias = x[next++];
      }
      const auto at = static_cast<std::int64_t>(last_h.size());
      const auto first = [&](const Tensor& all) { return all.defined() ? all.select(0, at) : all; };
      Tensor states, last;
      if (lstm)
        std::tie(states, last) = lstm_layer(sequence, first(h), first(c), weights, reverse);
      else
        states = gru_layer(sequence, first(h), weights, reverse);
      last_h.push_back(states.select(0, reverse ? 0 : -1));
      if (lstm) last_c.push_back(last);
      directions.push_back(states);
    }
    sequence = cat(directions, 2);
  }
  Out results{batch_first ? sequence.transpose(0, 1) : sequence, stack(last_h)};
  if (lstm) results.push_back(stack(last_c));
  return results;
}

inline void add_recurrent(GoldenOps& ops) {
  ops["lstm"] = [](In x) -> Out { return recurrent(x, true); };
  ops["gru"] = [](In x) -> Out { return recurrent(x, false); };
}

}  // namespace golden

/// All ops, by PyTorch's functional names.
inline const GoldenOps& golden_ops() {
  static const GoldenOps ops = [] {
    GoldenOps table;
    golden::add_elementwise(table);
    golden::add_reductions(table);
    golden::add_shapes(table);
    golden::add_indexing(table);
    golden::add_losses(table);
    golden::add_layers(table);
    golden::add_spatial(table);
    golden::add_recurrent(table);
    return table;
  }();
  return ops;
}

}  // namespace lockstep::test
