#include <array>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "functional/op_list.hpp"
#include "lockstep/amp/autocast.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/call_op.hpp"
#include "support/golden.hpp"
#include "support/place.hpp"

// Calls each op under autocast and compares the dtype of its result with what PyTorch's has on its
// CUDA device (scripts/make_autocast_reference.py).

namespace lockstep {
namespace {

using Unary = std::function<Tensor(const Tensor&)>;
using Binary = std::function<Tensor(const Tensor&, const Tensor&)>;

Tensor zero_index(const Tensor& x, const Shape& shape) {
  return zeros(shape, {DType::i64, x.device()});
}

/// Ops of one floating operand [4, 4], or [4, 4, 4, 4] where they take images.
std::map<std::string, Unary> unary_functions() {
  std::map<std::string, Unary> all = {
      {"amax", [](auto& x) { return amax(x); }},
      {"amin", [](auto& x) { return amin(x); }},
      {"max", [](auto& x) { return max(x); }},
      {"min", [](auto& x) { return min(x); }},
      {"mean", [](auto& x) { return mean(x); }},
      {"sum", [](auto& x) { return sum(x); }},
      {"prod", [](auto& x) { return prod(x); }},
      {"var", [](auto& x) { return var(x); }},
      {"std", [](auto& x) { return std(x); }},
      {"norm", [](auto& x) { return norm(x); }},
      {"normalize", [](auto& x) { return normalize(x); }},
      {"nan_to_num", [](auto& x) { return nan_to_num(x); }},
      {"cumsum", [](auto& x) { return cumsum(x, 0); }},
      {"logsumexp", [](auto& x) { return logsumexp(x, {0}); }},
      {"softmax", [](auto& x) { return softmax(x, -1); }},
      {"log_softmax", [](auto& x) { return log_softmax(x, -1); }},
      {"layer_norm", [](auto& x) { return layer_norm(x, {4}); }},
      {"rms_norm", [](auto& x) { return rms_norm(x, {4}); }},
      {"group_norm", [](auto& x) { return group_norm(x, 2); }},
      {"dropout", [](auto& x) { return dropout(x, 0.5); }},
      {"embedding", [](auto& x) { return embedding(zero_index(x, {3}), x); }},
      {"cross_entropy", [](auto& x) { return cross_entropy(x, zero_index(x, {4})); }},
      {"nll_loss", [](auto& x) { return nll_loss(x, zero_index(x, {4})); }},
      {"clone", [](auto& x) { return x.clone(); }},
      {"flip", [](auto& x) { return flip(x, {0}); }},
      {"gather",
       [](auto& x) {
         return gather(x, 0, zero_index(x, {4, 4}));
       }},
      {"index_select", [](auto& x) { return index_select(x, 0, zero_index(x, {2})); }},
      {"pad",
       [](auto& x) {
         return pad(x, std::array<std::int64_t, 2>{1, 1});
       }},
      {"permute",
       [](auto& x) {
         return x.permute({1, 0});
       }},
      {"reshape", [](auto& x) { return x.reshape({16}); }},
      {"expand",
       [](auto& x) {
         return x.expand({2, 4, 4});
       }},
      {"slice", [](auto& x) { return x.slice(0, 1, 4); }},
      {"split", [](auto& x) { return split(x, 2)[0]; }},
      {"diagonal", [](auto& x) { return x.diagonal(); }},
      {"tril", [](auto& x) { return tril(x); }},
      {"triu", [](auto& x) { return triu(x); }},
      {"topk", [](auto& x) { return topk(x, 2).first; }},
      {"bernoulli", [](auto& x) { return bernoulli(x); }},
      {"selu", [](auto& x) { return selu(x); }},
      {"celu", [](auto& x) { return celu(x); }},
      {"logsigmoid", [](auto& x) { return logsigmoid(x); }},
      {"glu", [](auto& x) { return glu(x); }},
      {"diag", [](auto& x) { return diag(x); }},
      {"repeat_interleave", [](auto& x) { return repeat_interleave(x, 2, 0); }},
      {"vector_norm", [](auto& x) { return vector_norm(x, 3); }},
      {"cumprod", [](auto& x) { return cumprod(x, 0); }},
      {"median", [](auto& x) { return median(x, 0).first; }},
      {"lerp", [](auto& x) { return lerp(x, x, 0.3); }},
  };
  for (std::size_t i = 0; i < std::size(unary_ops); ++i)
    all[std::string(unary_ops[i].name)] = [i](auto& x) {
      return testing::call(static_cast<UnaryOp>(i), x, {.alpha = 0.5, .beta = 1.0});
    };
  return all;
}

std::map<std::string, Unary> image_functions() {
  return {
      {"avg_pool2d", [](auto& x) { return avg_pool2d(x, 2); }},
      {"max_pool2d", [](auto& x) { return max_pool2d(x, 2); }},
      {"adaptive_avg_pool2d", [](auto& x) { return adaptive_avg_pool2d(x, 1); }},
      {"pixel_shuffle", [](auto& x) { return pixel_shuffle(x, 2); }},
      {"pixel_unshuffle", [](auto& x) { return pixel_unshuffle(x, 2); }},
      {"interpolate",
       [](auto& x) {
         return interpolate(x, {.scale_factor = {2.0, 2.0}});
       }},
      {"batch_norm",
       [](auto& x) {
         const TensorOptions single{DType::f32, x.device()};
         return batch_norm(x, zeros({4}, single), ones({4}, single));
       }},
  };
}

/// Ops of two floating operands [4, 4].
std::map<std::string, Binary> binary_functions() {
  std::map<std::string, Binary> all = {
      {"where",
       [](auto& a, auto& b) {
         return where(ones({4, 4}, {DType::boolean, a.device()}), a, b);
       }},
      {"cat",
       [](auto& a, auto& b) {
         return cat(std::vector<Tensor>{a, b});
       }},
      {"stack",
       [](auto& a, auto& b) {
         return stack(std::vector<Tensor>{a, b});
       }},
      {"addcmul", [](auto& a, auto& b) { return addcmul(a, a, b); }},
      {"addcdiv", [](auto& a, auto& b) { return addcdiv(a, a, b); }},
      {"cosine_similarity", [](auto& a, auto& b) { return cosine_similarity(a, b); }},
      {"prelu", [](auto& a, auto& b) { return prelu(a, b[0]); }},
      {"cdist", [](auto& a, auto& b) { return cdist(a, b); }},
      {"matmul", [](auto& a, auto& b) { return matmul(a, b); }},
      {"mm", [](auto& a, auto& b) { return mm(a, b); }},
      {"linear", [](auto& a, auto& b) { return linear(a, b); }},
      {"linear_cross_entropy",
       [](auto& a, auto& b) { return linear_cross_entropy(a, b, zero_index(a, {4})); }},
      {"einsum",
       [](auto& a, auto& b) {
         return einsum("ij,jk->ik", {a, b});
       }},
      {"scatter_add",
       [](auto& a, auto& b) {
         return scatter_add(a, 0, zero_index(a, {4, 4}), b);
       }},
      {"mse_loss", [](auto& a, auto& b) { return mse_loss(a, b); }},
      {"l1_loss", [](auto& a, auto& b) { return l1_loss(a, b); }},
      {"smooth_l1_loss", [](auto& a, auto& b) { return smooth_l1_loss(a, b); }},
      {"huber_loss", [](auto& a, auto& b) { return huber_loss(a, b); }},
      {"kl_div", [](auto& a, auto& b) { return kl_div(a, b); }},
      {"binary_cross_entropy_with_logits",
       [](auto& a, auto& b) { return binary_cross_entropy_with_logits(a, b); }},
      {"lstm",
       [](auto& x, auto& w) {
         const Tensor weight = w.repeat({4, 1});
         return lstm_layer(x.unsqueeze(0), x, x, {weight, weight, {}, {}}).first;
       }},
      {"gru",
       [](auto& x, auto& w) {
         const Tensor weight = w.repeat({3, 1});
         return gru_layer(x.unsqueeze(0), x, {weight, weight, {}, {}});
       }},
  };
  for (std::size_t i = 0; i < std::size(binary_ops); ++i)
    all[std::string(binary_ops[i].name)] = [i](auto& a, auto& b) {
      return testing::call(static_cast<BinaryOp>(i), a, b, {});
    };
  for (std::size_t i = 0; i < std::size(compare_ops); ++i)
    all[std::string(compare_ops[i].name)] = [i](auto& a, auto& b) {
      return testing::call(static_cast<CompareOp>(i), a, b);
    };
  return all;
}

std::map<std::string, Binary> binary_image_functions() {
  return {
      {"conv2d", [](auto& a, auto& b) { return conv2d(a, b); }},
      {"conv_transpose2d", [](auto& a, auto& b) { return conv_transpose2d(a, b); }},
      {"scaled_dot_product_attention",
       [](auto& a, auto& b) { return scaled_dot_product_attention(a, b, b); }},
  };
}

nlohmann::json recorded() {
  std::ifstream file(testing::reference_dir() / "autocast.json");
  return nlohmann::json::parse(file);
}

class AutocastPolicies : public ::testing::TestWithParam<testing::Place> {
 protected:
  void SetUp() override {
    if (testing::is_missing(GetParam())) GTEST_SKIP() << "no CUDA device on this machine";
  }

  /// Compares an op with the record, if that knows it.
  void compare(const std::string& op, std::string_view operands, const Unary& run,
               const Tensor& x) {
    const auto record = expected_.find(op);
    if (record == expected_.end() || !record->at("cuda").contains(operands)) return;
    compared_.emplace(op, operands);
    const std::string wanted = record->at("cuda").at(std::string(operands));
    if (wanted == "refused") return;  // lockstep may do it
    const amp::Autocast mixed(DType::bf16);
    EXPECT_EQ(std::string(lockstep::name(run(x).dtype())), wanted) << op << " of " << operands;
  }
  Tensor operand(const Shape& shape, DType dtype) const {
    return full(shape, 0.5, {DType::f32, GetParam().device}).to(dtype);
  }
  void compare_unary(const std::map<std::string, Unary>& functions, const Shape& shape) {
    for (const auto& [op, function] : functions)
      for (const DType dtype : {DType::f32, DType::bf16})
        compare(op, lockstep::name(dtype), function, operand(shape, dtype));
  }
  void compare_binary(const std::map<std::string, Binary>& functions, const Shape& shape) {
    for (const auto& [op, function] : functions) {
      const auto with = [&function = function](const Tensor& b) {
        return [&function, b](const Tensor& a) { return function(a, b); };
      };
      const Tensor single = operand(shape, DType::f32), half = operand(shape, DType::bf16);
      compare(op, "f32", with(single), single);
      compare(op, "bf16", with(half), half);
      compare(op, "bf16 beside f32", with(single), half);
    }
  }

  nlohmann::json expected_ = recorded();
  std::set<std::pair<std::string, std::string>> compared_;
};

TEST_P(AutocastPolicies, GiveResultsOfTheDTypesOfPyTorchs) {
  const testing::PlaceScope place(GetParam());
  const Shape matrix{4, 4}, image{4, 4, 4, 4};
  compare_unary(unary_functions(), matrix);
  compare_unary(image_functions(), image);
  compare_binary(binary_functions(), matrix);
  compare_binary(binary_image_functions(), image);
  std::size_t recorded_results = 0;
  for (const auto& [op, devices] : expected_.items()) recorded_results += devices["cuda"].size();
  EXPECT_EQ(compared_.size(), recorded_results)
      << "an op of the record is called by no function here";
}

INSTANTIATE_TEST_SUITE_P(Places, AutocastPolicies, ::testing::ValuesIn(testing::places()),
                         testing::place_name);

}  // namespace
}  // namespace lockstep
