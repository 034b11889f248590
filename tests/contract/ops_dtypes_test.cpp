#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/formulas.hpp"
#include "functional/op_list.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/call_op.hpp"
#include "support/place.hpp"

// What ops say to dtypes they do not take: an error that names the op, the dtype and the device.

namespace lockstep::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// An op by name, called with all operands of one dtype on one device.
struct Op {
  std::string name;
  std::function<Tensor(const TensorOptions&)> call;
  bool takes_integers = false;
  bool takes_bool = false;
  std::string in_messages = name;
};
std::ostream& operator<<(std::ostream& out, const Op& op) { return out << op.name; }

Tensor x(const Shape& shape, const TensorOptions& options) { return ones(shape, options); }

std::vector<Op> pointwise_ops() {
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

std::vector<Op> other_ops() {
  const auto attention = [](const TensorOptions& given) {
    const Tensor heads = x({1, 1, 2, 2}, given);
    return scaled_dot_product_attention(heads, heads, heads);
  };
  return {
      {"sum",
       [](const TensorOptions& given) {
         return sum(x({2, 3}, given), {0});
       },
       true, true},
      {"amax",
       [](const TensorOptions& given) {
         return amax(x({2, 3}, given));
       },
       true},
      {"amin",
       [](const TensorOptions& given) {
         return amin(x({2, 3}, given));
       },
       true},
      {"argmax",
       [](const TensorOptions& given) {
         return argmax(x({2, 3}, given), 0);
       },
       true},
      {"argmin",
       [](const TensorOptions& given) {
         return argmin(x({2, 3}, given), 0);
       },
       true},
      {"cumsum",
       [](const TensorOptions& given) {
         return cumsum(x({2, 3}, given), 0);
       },
       true, true},
      {"topk",
       [](const TensorOptions& given) {
         return topk(x({2, 3}, given), 2).first;
       },
       true},
      {"prod",
       [](const TensorOptions& given) {
         return prod(x({2, 3}, given), {0});
       },
       true, true},
      {"any",
       [](const TensorOptions& given) {
         return any(x({2, 3}, given), {0});
       },
       true, true},
      {"all",
       [](const TensorOptions& given) {
         return all(x({2, 3}, given), {0});
       },
       true, true},
      {"argsort",
       [](const TensorOptions& given) {
         return sort(x({2, 3}, given), 0, true).first;
       },
       true, true},
      {"searchsorted",
       [](const TensorOptions& given) {
         return searchsorted(x({3}, given), x({2, 3}, given));
       },
       true},
      {"scatter_add",
       [](const TensorOptions& given) {
         const Tensor index = zeros({2, 3}, {DType::i64, given.device});
         return scatter_add(x({2, 3}, given), 0, index, x({2, 3}, given));
       },
       true},
      {"masked_fill",
       [](const TensorOptions& given) {
         return masked_fill(x({2, 3}, given), ones({3}, {DType::boolean, given.device}), 1.0);
       },
       true, true},
      {"diagonal",
       [](const TensorOptions& given) {
         return x({2, 3}, given).diagonal();
       },
       true, true},
      {"multinomial",
       [](const TensorOptions& given) {
         return multinomial(x({2, 3}, given), 2);
       }},
      {"mean",
       [](const TensorOptions& given) {
         return mean(x({2, 3}, given));
       }},
      {"logsumexp",
       [](const TensorOptions& given) {
         return logsumexp(x({2, 3}, given));
       }},
      {"var",
       [](const TensorOptions& given) {
         return var(x({2, 3}, given));
       }},
      {"norm",
       [](const TensorOptions& given) {
         return norm(x({2, 3}, given));
       }},
      {"matmul",
       [](const TensorOptions& given) {
         return matmul(x({2, 3}, given), x({3, 2}, given));
       }},
      {"linear",
       [](const TensorOptions& given) {
         return linear(x({2, 3}, given), x({2, 3}, given));
       }},
      {"softmax",
       [](const TensorOptions& given) {
         return softmax(x({2, 3}, given), 1);
       }},
      {"log_softmax",
       [](const TensorOptions& given) {
         return log_softmax(x({2, 3}, given), 1);
       }},
      {"cross_entropy",
       [](const TensorOptions& given) {
         return cross_entropy(x({2, 3}, given), zeros({2}, {DType::i64, given.device}));
       }},
      {"layer_norm",
       [](const TensorOptions& given) {
         return layer_norm(x({2, 3}, given), {3});
       }},
      {"rms_norm",
       [](const TensorOptions& given) {
         return rms_norm(x({2, 3}, given), {3});
       }},
      {"batch_norm",
       [](const TensorOptions& given) {
         return batch_norm(x({2, 3}, given), {}, {}, {}, {}, {.training = true});
       }},
      {"lstm",
       [](const TensorOptions& given) {
         const RecurrentWeights weights{x({4, 3}, given), x({4, 1}, given), {}, {}};
         return lstm_layer(x({2, 1, 3}, given), {}, {}, weights).first;
       }},
      {"gru",
       [](const TensorOptions& given) {
         const RecurrentWeights weights{x({3, 3}, given), x({3, 1}, given), {}, {}};
         return gru_layer(x({2, 1, 3}, given), {}, weights);
       }},
      {"interpolate",
       [](const TensorOptions& given) {
         return interpolate(x({1, 1, 3, 3}, given), {.size = 2});
       }},
      {"dropout",
       [](const TensorOptions& given) {
         return dropout(x({2, 3}, given), 0.5);
       }},
      {"conv2d",
       [](const TensorOptions& given) {
         return conv2d(x({1, 1, 3, 3}, given), x({1, 1, 2, 2}, given));
       }},
      {"max_pool2d",
       [](const TensorOptions& given) {
         return max_pool2d(x({1, 1, 4, 4}, given), {.kernel = 2});
       }},
      {"avg_pool2d",
       [](const TensorOptions& given) {
         return avg_pool2d(x({1, 1, 4, 4}, given), {.kernel = 2});
       }},
      {"adaptive_avg_pool2d",
       [](const TensorOptions& given) {
         return adaptive_avg_pool2d(x({1, 1, 4, 4}, given), 2);
       }},
      {"scaled_dot_product_attention", attention},
  };
}

void expect_refused(const Op& op, const TensorOptions& given) {
  try {
    op.call(given);
    ADD_FAILURE() << "accepted";
  } catch (const Unsupported& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr(op.in_messages), HasSubstr(std::string(name(given.dtype))),
                      HasSubstr(given.device.is_cuda() ? "cuda:0" : "cpu")));
  }
}

constexpr DType floating[] = {DType::f64, DType::f32, DType::bf16, DType::f16};
constexpr DType integers[] = {DType::i64, DType::i32};

void expect_taken(const Op& op, const TensorOptions& given) {
  EXPECT_TRUE(op.call(given).defined());
}

void expect_taken_or_refused(const Op& op, const TensorOptions& given) {
  if (op.takes_integers)
    expect_taken(op, given);
  else
    expect_refused(op, given);
}

void expect_bool_taken_or_refused(const Op& op, const TensorOptions& given) {
  if (op.takes_bool)
    expect_taken(op, given);
  else
    expect_refused(op, given);
}

/// Calls `check` for each dtype, saying which op, backend and dtype in messages.
template <class Dtypes, class Check>
void on(const testing::Place& place, const Op& op, const Dtypes& dtypes, Check&& check) {
  const testing::PlaceScope scope(place);
  for (const DType dtype : dtypes) {
    SCOPED_TRACE(lockstep::detail::concat(op, " on ", place, " in ", dtype));
    check(op, {dtype, place.device});
  }
}

class OpDtypes : public ::testing::TestWithParam<Op> {
 protected:
  template <class Dtypes, class Check>
  void on_every_backend(const Dtypes& dtypes, Check&& check) const {
    for (const auto backend : backend::cpu_backends())
      on({backend, cpu}, GetParam(), dtypes, check);
  }
};

TEST_P(OpDtypes, TakesEveryFloatingDtypeOnEveryBackend) {
  on_every_backend(floating, expect_taken);
}

TEST_P(OpDtypes, TakesIntegersOrRefusesThemByName) {
  on_every_backend(integers, expect_taken_or_refused);
}

TEST_P(OpDtypes, TakesBoolOrRefusesItByName) {
  on_every_backend(std::array{DType::boolean}, expect_bool_taken_or_refused);
}

class OpDtypesOnGpu : public testing::OnGpu {};

TEST_F(OpDtypesOnGpu, AreThoseOfTheCpu) {
  for (const auto& ops : {pointwise_ops(), other_ops()})
    for (const Op& op : ops) {
      const testing::Place gpu{"cuda", device};
      on(gpu, op, floating, expect_taken);
      on(gpu, op, integers, expect_taken_or_refused);
      on(gpu, op, std::array{DType::boolean}, expect_bool_taken_or_refused);
    }
}

std::string op_name(const ::testing::TestParamInfo<Op>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Pointwise, OpDtypes, ::testing::ValuesIn(pointwise_ops()), op_name);
INSTANTIATE_TEST_SUITE_P(Others, OpDtypes, ::testing::ValuesIn(other_ops()), op_name);

void expect_mixed_operands_refused(Device device) {
  const auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  };
  const TensorOptions wide{DType::f64, device};
  const Tensor a = ones({2, 2}, {DType::f32, device}), b = ones({2, 2}, wide);
  const auto both = AllOf(HasSubstr("f32"), HasSubstr("f64"));
  EXPECT_THAT(message([&] { add(a, b); }), both);
  EXPECT_THAT(message([&] { matmul(a, b); }), both);
  EXPECT_THAT(message([&] { linear(a, b); }), both);
  EXPECT_THAT(message([&] { where(gt(a, a), a, b); }), both);
  EXPECT_THAT(message([&] { cat({a, b}); }), both);
  EXPECT_THAT(message([&] { layer_norm(a, {2}, ones({2}, wide)); }), both);
  EXPECT_THAT(message([&] { where(a, a, a); }), HasSubstr("bool"));
  EXPECT_THAT(message([&] { embedding(a, a); }), HasSubstr("i64"));
  EXPECT_THAT(message([&] { gather(a, 0, a); }), HasSubstr("i64"));
  EXPECT_THAT(message([&] { scatter_add(a, 0, a, a); }), HasSubstr("i64"));
  EXPECT_THAT(message([&] { one_hot(a); }), HasSubstr("i64"));
  EXPECT_THAT(message([&] { masked_fill(a, a, 1.0); }), HasSubstr("bool"));
  EXPECT_THAT(message([&] { searchsorted(a, b); }), both);
}

TEST(MixedOperands, AreRefusedWithBothDtypes) { expect_mixed_operands_refused(cpu); }

class MixedOperandsOnGpu : public testing::OnGpu {};
TEST_F(MixedOperandsOnGpu, AreRefusedWithBothDtypes) { expect_mixed_operands_refused(device); }

}  // namespace
}  // namespace lockstep::test
