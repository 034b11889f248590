#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "contract/formulas.hpp"
#include "functional/op_list.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/call_op.hpp"

/// @file
/// Every op, called with operands of any dtype.

namespace lockstep::test {

using Call = std::function<Tensor(const TensorOptions&)>;

/// An op by name, called with all operands of one dtype on one device.
struct Op {
  std::string name;
  Call call;
  bool takes_integers = false;
  bool takes_bool = false;
  std::string in_messages = name;
};
inline std::ostream& operator<<(std::ostream& out, const Op& op) { return out << op.name; }

inline Tensor x(const Shape& shape, const TensorOptions& options) { return ones(shape, options); }
inline Tensor image(const TensorOptions& options) { return x({1, 1, 4, 4}, options); }
inline Tensor index_of(const Shape& shape, const TensorOptions& options) {
  return zeros(shape, {DType::i64, options.device});
}
inline Tensor mask_of(const Shape& shape, const TensorOptions& options) {
  return ones(shape, {DType::boolean, options.device});
}

/// A call with a [2, 3] of the dtype.
template <class F>
Call of_one(const F& f) {
  return [f](const TensorOptions& given) { return f(x({2, 3}, given)); };
}
/// A call with two.
template <class F>
Call of_two(const F& f) {
  return [f](const TensorOptions& given) { return f(x({2, 3}, given), x({2, 3}, given)); };
}
/// A call in place: what the op gives is its tensor.
template <class F>
Call in_place(const F& f) {
  return [f](const TensorOptions& given) {
    Tensor changed = x({2, 3}, given);
    f(changed, x({3}, given));
    return changed;
  };
}

inline std::vector<Op> pointwise_ops() {
  std::vector<Op> ops;
  for (std::size_t i = 0; i < std::size(unary_ops); ++i) {
    const auto op = static_cast<UnaryOp>(i);
    // x / 2 converts what is no floating dtype.
    const bool converts = op == UnaryOp::div_scalar;
    ops.push_back({std::string(traits(op).name),
                   [op](const TensorOptions& given) {
                     return testing::call(op, x({2, 3}, given), {.alpha = 2.0, .beta = 3.0});
                   },
                   converts || takes_integers(op), converts});
    if (op == UnaryOp::pow_scalar) ops.back().in_messages = "pow";
  }
  for (std::size_t i = 0; i < std::size(binary_ops); ++i) {
    const auto op = static_cast<BinaryOp>(i);
    // a / b likewise.
    const bool converts = op == BinaryOp::div;
    ops.push_back({std::string(traits(op).name),
                   [op](const TensorOptions& given) {
                     return testing::call(op, x({2, 3}, given), x({3}, given), {});
                   },
                   converts || takes_integers(op), converts});
  }
  for (std::size_t i = 0; i < std::size(compare_ops); ++i) {
    const auto op = static_cast<CompareOp>(i);
    ops.push_back({std::string(traits(op).name),
                   [op](const TensorOptions& given) {
                     return testing::call(op, x({2, 3}, given), x({3}, given));
                   },
                   true, true});
  }
  return ops;
}

/// The ops described in src/autograd/ops that take tensors of more dtypes than i64.
inline std::vector<Op> other_ops() {
  return {
      {"adaptive_avg_pool1d",
       [](const TensorOptions& given) {
         return adaptive_avg_pool1d(x({1, 1, 4}, given), 2);
       }},
      {"adaptive_avg_pool2d",
       [](const TensorOptions& given) {
         return adaptive_avg_pool2d(x({1, 1, 4, 4}, given), 2);
       }},
      {"add_", in_place([](Tensor& a, const Tensor& b) { a.add_(b); }), true},
      {"all", of_one([](const Tensor& a) { return all(a, {0}); }), true, true},
      {"amax", of_one([](const Tensor& a) { return amax(a); }), true},
      {"amin", of_one([](const Tensor& a) { return amin(a); }), true},
      {"any", of_one([](const Tensor& a) { return any(a, {0}); }), true, true},
      {"argmax", of_one([](const Tensor& a) { return argmax(a, 0); }), true},
      {"argmin", of_one([](const Tensor& a) { return argmin(a, 0); }), true},
      {"argsort", of_one([](const Tensor& a) { return argsort(a); }), true, true},
      {"avg_pool1d",
       [](const TensorOptions& given) {
         return avg_pool1d(x({1, 1, 4}, given), {.kernel = 2});
       }},
      {"avg_pool2d",
       [](const TensorOptions& given) {
         return avg_pool2d(x({1, 1, 4, 4}, given), {.kernel = 2});
       }},
      {"batch_norm",
       of_one([](const Tensor& a) { return batch_norm(a, {}, {}, {}, {}, {.training = true}); })},
      {"bernoulli", of_one([](const Tensor& a) { return bernoulli(a); })},
      {"binary_cross_entropy_with_logits", of_two([](const Tensor& a, const Tensor& b) {
         return binary_cross_entropy_with_logits(a, b);
       })},
      {"cat", of_two([](const Tensor& a, const Tensor& b) {
         return cat({a, b});
       }),
       true, true},
      {"channels_last",
       [](const TensorOptions& given) {
         return x({1, 2, 2, 2}, given).channels_last();
       },
       true, true},
      {"cdist", of_two([](const Tensor& a, const Tensor& b) { return cdist(a, b); })},
      {"addcdiv", of_two([](const Tensor& a, const Tensor& b) { return addcdiv(a, a, b); })},
      {"addcmul", of_two([](const Tensor& a, const Tensor& b) { return addcmul(a, a, b); })},
      {"celu", of_one([](const Tensor& a) { return celu(a); })},
      {"clone", of_one([](const Tensor& a) { return a.clone(); }), true, true},
      {"conv1d",
       [](const TensorOptions& given) {
         return conv1d(x({1, 1, 4}, given), x({1, 1, 2}, given));
       }},
      {"conv2d",
       [](const TensorOptions& given) {
         return conv2d(x({1, 1, 3, 3}, given), x({1, 1, 2, 2}, given));
       }},
      {"conv_transpose1d",
       [](const TensorOptions& given) {
         return conv_transpose1d(x({3, 8, 8}, given), x({8, 9, 4}, given), {}, {.padding = 1});
       }},
      {"conv_transpose2d",
       [](const TensorOptions& given) { return conv_transpose2d(image(given), image(given)); }},
      {"copy_", in_place([](Tensor& a, const Tensor& b) { a.copy_(b); }), true, true},
      {"cross_entropy",
       [](const TensorOptions& given) {
         return cross_entropy(x({2, 3}, given), zeros({2}, {DType::i64, given.device}));
       }},
      {"cosine_embedding_loss", of_two([](const Tensor& a, const Tensor& b) {
         return cosine_embedding_loss(a, b, zeros({2}, a.options()));
       })},
      {"cosine_similarity",
       of_two([](const Tensor& a, const Tensor& b) { return cosine_similarity(a, b); })},
      {"cumprod", of_one([](const Tensor& a) { return cumprod(a, 0); }), true, true},
      {"cumsum", of_one([](const Tensor& a) { return cumsum(a, 0); }), true, true},
      {"diag", of_one([](const Tensor& a) { return diag(a); }), true, true},
      {"diagonal",
       [](const TensorOptions& given) {
         return x({2, 3}, given).diagonal();
       },
       true, true},
      {"div_", in_place([](Tensor& a, const Tensor& b) { a.div_(b); })},
      {"dropout", of_one([](const Tensor& a) { return dropout(a, 0.5); })},
      {"dropout2d", [](const TensorOptions& given) { return dropout2d(image(given), 0.5); }},
      {"einsum", of_two([](const Tensor& a, const Tensor& b) {
         return einsum("ij,kj->ik", {a, b});
       }),
       false, false, "matmul"},
      {"add_embedding",
       [](const TensorOptions& given) {
         return add_embedding(x({3}, given), index_of({2}, given), x({2, 3}, given));
       }},
      {"embedding",
       [](const TensorOptions& given) {
         return embedding(index_of({2}, given), x({2, 3}, given));
       }},
      {"expand", of_one([](const Tensor& a) {
         return a.expand({2, 2, 3});
       }),
       true, true},
      {"fill_",
       [](const TensorOptions& given) {
         return x({2, 3}, given).fill_(1);
       },
       true, true},
      {"flip", of_one([](const Tensor& a) { return flip(a, 0); }), true, true},
      {"gather",
       [](const TensorOptions& given) {
         return gather(x({2, 3}, given), 0, index_of({1, 3}, given));
       },
       true, true},
      {"gaussian_nll_loss", of_two([](const Tensor& a, const Tensor& b) {
         return gaussian_nll_loss(a, b, ones({2, 3}, b.options()));
       })},
      {"glu", of_one([](const Tensor& a) { return glu(a, 0); })},
      {"group_norm", [](const TensorOptions& given) { return group_norm(image(given), 1); }},
      {"gru",
       [](const TensorOptions& given) {
         const RecurrentWeights weights{x({3, 3}, given), x({3, 1}, given), {}, {}};
         return gru_layer(x({2, 1, 3}, given), {}, weights);
       }},
      {"huber_loss", of_two([](const Tensor& a, const Tensor& b) { return huber_loss(a, b); })},
      {"index_add",
       [](const TensorOptions& given) {
         return index_add(x({2, 3}, given), 0, index_of({2}, given), x({2, 3}, given));
       },
       true},
      {"index_select",
       [](const TensorOptions& given) {
         return index_select(x({2, 3}, given), 0, index_of({3}, given));
       },
       true, true},
      {"interpolate",
       [](const TensorOptions& given) {
         return interpolate(x({1, 1, 3, 3}, given), {.size = 2});
       }},
      {"isfinite", of_one([](const Tensor& a) { return isfinite(a); }), true, true},
      {"isinf", of_one([](const Tensor& a) { return isinf(a); }), true, true},
      {"isnan", of_one([](const Tensor& a) { return isnan(a); }), true, true},
      {"kl_div", of_two([](const Tensor& a, const Tensor& b) { return kl_div(a, b); })},
      {"l1_loss", of_two([](const Tensor& a, const Tensor& b) { return l1_loss(a, b); })},
      {"layer_norm", of_one([](const Tensor& a) { return layer_norm(a, {3}); })},
      {"lerp", of_two([](const Tensor& a, const Tensor& b) { return lerp(a, b, a); })},
      {"linear",
       [](const TensorOptions& given) {
         return linear(x({2, 3}, given), x({2, 3}, given));
       }},
      {"linear_cross_entropy",
       [](const TensorOptions& given) {
         return linear_cross_entropy(x({2, 3}, given), x({4, 3}, given), index_of({2}, given));
       }},
      {"add_linear",
       [](const TensorOptions& given) {
         return add_linear(x({2, 2}, given), x({2, 3}, given), x({2, 3}, given));
       }},
      {"mlp",
       [](const TensorOptions& given) {
         return mlp(x({2, 3}, given),
                    {x({4, 3}, given), x({4}, given), x({2, 4}, given), x({2}, given)});
       }},
      {"log_softmax", of_one([](const Tensor& a) { return log_softmax(a, 1); })},
      {"logical_not", of_one([](const Tensor& a) { return logical_not(a); }), true, true},
      {"logsumexp", of_one([](const Tensor& a) { return logsumexp(a); })},
      {"lstm",
       [](const TensorOptions& given) {
         const RecurrentWeights weights{x({4, 3}, given), x({4, 1}, given), {}, {}};
         return lstm_layer(x({2, 1, 3}, given), {}, {}, weights).first;
       }},
      {"masked_fill",
       [](const TensorOptions& given) {
         return masked_fill(x({2, 3}, given), ones({3}, {DType::boolean, given.device}), 1.0);
       },
       true, true},
      {"masked_fill_",
       [](const TensorOptions& given) {
         return x({2, 3}, given).masked_fill_(mask_of({3}, given), 1);
       },
       true, true},
      {"masked_select",
       [](const TensorOptions& given) {
         return masked_select(x({2, 3}, given), mask_of({3}, given));
       },
       true, true},
      {"matmul",
       [](const TensorOptions& given) {
         return matmul(x({2, 3}, given), x({3, 2}, given));
       }},
      {"max", of_one([](const Tensor& a) { return max(a); }), true},
      {"max_pool1d",
       [](const TensorOptions& given) {
         return max_pool1d(x({1, 1, 4}, given), {.kernel = 2});
       }},
      {"max_pool2d",
       [](const TensorOptions& given) {
         return max_pool2d(x({1, 1, 4, 4}, given), {.kernel = 2});
       }},
      {"mean", of_one([](const Tensor& a) { return mean(a); })},
      {"logsigmoid", of_one([](const Tensor& a) { return logsigmoid(a); })},
      {"margin_ranking_loss",
       of_two([](const Tensor& a, const Tensor& b) { return margin_ranking_loss(a, b, a); })},
      {"median", of_one([](const Tensor& a) { return median(a, 1).first; }), true},
      {"meshgrid", of_one([](const Tensor& a) {
         return meshgrid({a[0], a[1]})[0];
       }),
       true, true},
      {"min", of_one([](const Tensor& a) { return min(a); }), true},
      {"mse_loss", of_two([](const Tensor& a, const Tensor& b) { return mse_loss(a, b); })},
      {"mul_", in_place([](Tensor& a, const Tensor& b) { a.mul_(b); }), true},
      {"multinomial", of_one([](const Tensor& a) { return multinomial(a, 2); })},
      {"nan_to_num", of_one([](const Tensor& a) { return nan_to_num(a); }), true, true},
      {"nll_loss",
       [](const TensorOptions& given) {
         return nll_loss(x({2, 3}, given), index_of({2}, given));
       }},
      {"nonzero", of_one([](const Tensor& a) { return nonzero(a); }), true, true},
      {"norm", of_one([](const Tensor& a) { return norm(a); })},
      {"normalize", of_one([](const Tensor& a) { return normalize(a); })},
      {"normal_",
       [](const TensorOptions& given) {
         return x({2, 3}, given).normal_();
       }},
      {"pad", of_one([](const Tensor& a) {
         return pad(a, std::vector<std::int64_t>{1, 1});
       }),
       true, true},
      {"pairwise_distance",
       of_two([](const Tensor& a, const Tensor& b) { return pairwise_distance(a, b); })},
      {"permute", of_one([](const Tensor& a) {
         return a.permute({1, 0});
       }),
       true, true},
      {"pixel_shuffle",
       [](const TensorOptions& given) {
         return pixel_shuffle(x({4, 1, 1}, given), 2);
       },
       true, true},
      {"pixel_unshuffle",
       [](const TensorOptions& given) {
         return pixel_unshuffle(x({1, 2, 2}, given), 2);
       },
       true, true},
      {"prelu", of_one([](const Tensor& a) { return prelu(a, a[0][0]); })},
      {"prod", of_one([](const Tensor& a) { return prod(a, {0}); }), true, true},
      {"quantile", of_one([](const Tensor& a) { return quantile(a, 0.5, 1); })},
      {"poisson_nll_loss",
       of_two([](const Tensor& a, const Tensor& b) { return poisson_nll_loss(a, b); })},
      {"repeat", of_one([](const Tensor& a) {
         return repeat(a, {2, 1});
       }),
       true, true},
      {"repeat_interleave", of_one([](const Tensor& a) { return repeat_interleave(a, 2, 0); }),
       true, true},
      {"reshape", of_one([](const Tensor& a) {
         return a.reshape({3, 2});
       }),
       true, true},
      {"rms_norm", of_one([](const Tensor& a) { return rms_norm(a, {3}); })},
      {"roll", of_one([](const Tensor& a) { return roll(a, 1, 0); }), true, true},
      {"rotary_embedding",
       [](const TensorOptions& given) {
         const Tensor angles = x({2, 1}, {DType::f32, given.device});
         return rotary_embedding(x({1, 1, 2, 2}, given), angles, angles);
       }},
      {"rotary_embedding_",
       [](const TensorOptions& given) {
         const Tensor angles = x({2, 1}, {DType::f32, given.device});
         Tensor changed = x({1, 1, 2, 2}, given);
         return rotary_embedding_(changed, angles, angles);
       }},
      {"scaled_dot_product_attention",
       [](const TensorOptions& given) {
         const Tensor heads = x({1, 1, 2, 2}, given);
         return scaled_dot_product_attention(heads, heads, heads);
       }},
      {"self_attention",
       [](const TensorOptions& given) {
         return self_attention(x({1, 2, 12}, given), 2);
       }},
      {"scaled_softplus", of_one([](const Tensor& a) { return scaled_softplus(a, 2); })},
      {"scatter",
       [](const TensorOptions& given) {
         return scatter(x({2, 3}, given), 0, index_of({1, 3}, given), 1);
       },
       true, true},
      {"scatter_add",
       [](const TensorOptions& given) {
         const Tensor index = zeros({2, 3}, {DType::i64, given.device});
         return scatter_add(x({2, 3}, given), 0, index, x({2, 3}, given));
       },
       true},
      {"searchsorted",
       [](const TensorOptions& given) {
         return searchsorted(x({3}, given), x({2, 3}, given));
       },
       true},
      {"selu", of_one([](const Tensor& a) { return selu(a); })},
      {"slice", of_one([](const Tensor& a) { return a.slice(0, 0, 1); }), true, true},
      {"smooth_l1_loss",
       of_two([](const Tensor& a, const Tensor& b) { return smooth_l1_loss(a, b); })},
      {"softmax", of_one([](const Tensor& a) { return softmax(a, 1); })},
      {"sort", of_one([](const Tensor& a) { return sort(a).first; }), true, true},
      {"split", of_one([](const Tensor& a) { return split(a, 1)[0]; }), true, true},
      {"stack", of_two([](const Tensor& a, const Tensor& b) {
         return stack({a, b});
       }),
       true, true},
      {"std", of_one([](const Tensor& a) { return std(a); })},
      {"sub_", in_place([](Tensor& a, const Tensor& b) { a.sub_(b); }), true},
      {"sum", of_one([](const Tensor& a) { return sum(a, {0}); }), true, true},
      {"to", of_one([](const Tensor& a) {
         return a.to(a.dtype() == DType::i64 ? DType::i32 : DType::i64);
       }),
       true, true},
      {"topk", of_one([](const Tensor& a) { return topk(a, 2).first; }), true},
      {"triplet_margin_loss",
       of_two([](const Tensor& a, const Tensor& b) { return triplet_margin_loss(a, b, b); })},
      {"tril", of_one([](const Tensor& a) { return tril(a); }), true, true},
      {"triu", of_one([](const Tensor& a) { return triu(a); }), true, true},
      {"unique", of_one([](const Tensor& a) { return unique(a).values; }), true, true},
      {"uniform_",
       [](const TensorOptions& given) {
         return x({2, 3}, given).uniform_();
       }},
      {"var", of_one([](const Tensor& a) { return var(a); })},
      {"vector_norm", of_one([](const Tensor& a) { return vector_norm(a, 3); })},
      {"where",
       [](const TensorOptions& given) {
         return where(mask_of({3}, given), x({2, 3}, given), x({2, 3}, given));
       },
       true, true},
  };
}

/// All of them.
inline std::vector<Op> every_op() {
  std::vector<Op> all = pointwise_ops();
  for (Op& op : other_ops()) all.push_back(std::move(op));
  return all;
}

}  // namespace lockstep::test
