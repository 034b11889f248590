#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/backend.hpp"
#include "contract/backend_scope.hpp"
#include "functional/op_list.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/factories.hpp"

// What ops say to dtypes they do not take: an error that names the op, the dtype and the device.

namespace lockstep::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// An op by name, called with all operands of one dtype.
struct Op {
  std::string name;
  std::function<Tensor(DType)> call;
  bool takes_integers = false;
};
std::ostream& operator<<(std::ostream& out, const Op& op) { return out << op.name; }

Tensor x(const Shape& shape, DType dtype) { return ones(shape, {.dtype = dtype}); }

using Unary = Tensor (*)(const Tensor&);
using Binary = Tensor (*)(const Tensor&, const Tensor&);

std::vector<Op> pointwise_ops() {
  std::vector<Op> ops;
  const std::map<std::string, Unary> floating{{"sqrt", sqrt},
                                              {"rsqrt", rsqrt},
                                              {"reciprocal", reciprocal},
                                              {"exp", exp},
                                              {"expm1", expm1},
                                              {"log", log},
                                              {"log1p", log1p},
                                              {"sin", sin},
                                              {"cos", cos},
                                              {"erf", erf},
                                              {"tanh", tanh},
                                              {"sigmoid", sigmoid},
                                              {"silu", silu},
                                              {"softplus", softplus},
                                              {"mish", mish},
                                              {"hardswish", hardswish}};
  for (const auto& [name, op] : floating)
    ops.push_back({name, [op = op](DType dtype) { return op(x({2, 3}, dtype)); }});
  ops.push_back({"gelu", [](DType dtype) { return gelu(x({3}, dtype)); }});
  ops.push_back({"elu", [](DType dtype) { return elu(x({3}, dtype)); }});
  ops.push_back({"leaky_relu", [](DType dtype) { return leaky_relu(x({3}, dtype)); }});
  ops.push_back({"pow_scalar", [](DType dtype) { return pow(x({3}, dtype), 2.0); }});
  ops.push_back({"pow", [](DType dtype) { return pow(x({3}, dtype), x({3}, dtype)); }});
  const std::map<std::string, Unary> exact{
      {"neg", neg}, {"abs", abs}, {"square", square}, {"relu", relu}};
  for (const auto& [name, op] : exact)
    ops.push_back({name, [op = op](DType dtype) { return op(x({2, 3}, dtype)); }, true});
  ops.push_back({"clamp", [](DType dtype) { return clamp(x({3}, dtype), 0, 1); }, true});
  ops.push_back({"affine", [](DType dtype) { return affine(x({3}, dtype), 2, 1); }, true});
  ops.push_back({"add", [](DType dtype) { return x({2, 3}, dtype) + x({3}, dtype); }, true});
  ops.push_back({"sub", [](DType dtype) { return x({2, 3}, dtype) - x({3}, dtype); }, true});
  const std::map<std::string, Binary> binary{
      {"mul", mul}, {"div", div}, {"maximum", maximum}, {"minimum", minimum}};
  for (const auto& [name, op] : binary)
    ops.push_back({name,
                   [op = op](DType dtype) {
                     return op(x({2, 3}, dtype), x({3}, dtype));
                   },
                   true});
  return ops;
}

std::vector<Op> other_ops() {
  const auto attention = [](DType dtype) {
    const Tensor heads = x({1, 1, 2, 2}, dtype);
    return scaled_dot_product_attention(heads, heads, heads);
  };
  return {
      {"sum",
       [](DType dtype) {
         return sum(x({2, 3}, dtype), {0});
       },
       true},
      {"amax",
       [](DType dtype) {
         return amax(x({2, 3}, dtype));
       },
       true},
      {"amin",
       [](DType dtype) {
         return amin(x({2, 3}, dtype));
       },
       true},
      {"argmax",
       [](DType dtype) {
         return argmax(x({2, 3}, dtype), 0);
       },
       true},
      {"argmin",
       [](DType dtype) {
         return argmin(x({2, 3}, dtype), 0);
       },
       true},
      {"cumsum",
       [](DType dtype) {
         return cumsum(x({2, 3}, dtype), 0);
       },
       true},
      {"topk",
       [](DType dtype) {
         return topk(x({2, 3}, dtype), 2).first;
       },
       true},
      {"mean",
       [](DType dtype) {
         return mean(x({2, 3}, dtype));
       }},
      {"logsumexp",
       [](DType dtype) {
         return logsumexp(x({2, 3}, dtype));
       }},
      {"var",
       [](DType dtype) {
         return var(x({2, 3}, dtype));
       }},
      {"norm",
       [](DType dtype) {
         return norm(x({2, 3}, dtype));
       }},
      {"matmul",
       [](DType dtype) {
         return matmul(x({2, 3}, dtype), x({3, 2}, dtype));
       }},
      {"linear",
       [](DType dtype) {
         return linear(x({2, 3}, dtype), x({2, 3}, dtype));
       }},
      {"softmax",
       [](DType dtype) {
         return softmax(x({2, 3}, dtype), 1);
       }},
      {"log_softmax",
       [](DType dtype) {
         return log_softmax(x({2, 3}, dtype), 1);
       }},
      {"cross_entropy",
       [](DType dtype) {
         return cross_entropy(x({2, 3}, dtype), x({2}, DType::i64));
       }},
      {"layer_norm",
       [](DType dtype) {
         return layer_norm(x({2, 3}, dtype), {3});
       }},
      {"rms_norm",
       [](DType dtype) {
         return rms_norm(x({2, 3}, dtype), {3});
       }},
      {"batch_norm",
       [](DType dtype) {
         return batch_norm(x({2, 3}, dtype), {}, {}, {}, {}, {.training = true});
       }},
      {"dropout",
       [](DType dtype) {
         return dropout(x({2, 3}, dtype), 0.5);
       }},
      {"conv2d",
       [](DType dtype) {
         return conv2d(x({1, 1, 3, 3}, dtype), x({1, 1, 2, 2}, dtype));
       }},
      {"max_pool2d",
       [](DType dtype) {
         return max_pool2d(x({1, 1, 4, 4}, dtype), {.kernel = 2});
       }},
      {"avg_pool2d",
       [](DType dtype) {
         return avg_pool2d(x({1, 1, 4, 4}, dtype), {.kernel = 2});
       }},
      {"adaptive_avg_pool2d",
       [](DType dtype) {
         return adaptive_avg_pool2d(x({1, 1, 4, 4}, dtype), 2);
       }},
      {"scaled_dot_product_attention", attention},
  };
}

class OpDtypes : public ::testing::TestWithParam<Op> {
 protected:
  template <class Check>
  void on_every_backend(std::initializer_list<DType> dtypes, Check&& check) const {
    for (const auto backend : backend::cpu_backends()) {
      const BackendScope scope(backend);
      for (const DType dtype : dtypes) {
        SCOPED_TRACE(std::string(backend) + " " + std::string(name(dtype)));
        check(dtype);
      }
    }
  }

  void expect_refused(DType dtype) const {
    try {
      GetParam().call(dtype);
      ADD_FAILURE() << "accepted";
    } catch (const Unsupported& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(GetParam().name),
                                      HasSubstr(std::string(name(dtype))), HasSubstr("cpu")));
    }
  }
};

TEST_P(OpDtypes, TakesEveryFloatingDtypeOnEveryBackend) {
  on_every_backend({DType::f64, DType::f32, DType::bf16, DType::f16},
                   [&](DType dtype) { EXPECT_TRUE(GetParam().call(dtype).defined()); });
}

TEST_P(OpDtypes, TakesIntegersOrRefusesThemByName) {
  on_every_backend({DType::i64, DType::i32}, [&](DType dtype) {
    if (GetParam().takes_integers)
      EXPECT_TRUE(GetParam().call(dtype).defined());
    else
      expect_refused(dtype);
  });
}

TEST_P(OpDtypes, RefusesBoolByName) {
  on_every_backend({DType::boolean}, [&](DType dtype) { expect_refused(dtype); });
}

std::string op_name(const ::testing::TestParamInfo<Op>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Pointwise, OpDtypes, ::testing::ValuesIn(pointwise_ops()), op_name);
INSTANTIATE_TEST_SUITE_P(Others, OpDtypes, ::testing::ValuesIn(other_ops()), op_name);

TEST(OpDtypeList, CoversAllOfOpsDef) {
  std::string known;
  for (const Op& op : pointwise_ops()) known += " " + op.name + " ";
  for (const OpTraits& line : unary_ops)
    if (line.name != "gelu_tanh") {
      EXPECT_THAT(known, HasSubstr(" " + std::string(line.name) + " "));
    }
  for (const OpTraits& line : binary_ops)
    EXPECT_THAT(known, HasSubstr(" " + std::string(line.name) + " "));
}

TEST(MixedOperands, AreRefusedWithBothDtypes) {
  const auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  };
  const Tensor a = ones({2, 2}), b = ones({2, 2}, {.dtype = DType::f64});
  const auto both = AllOf(HasSubstr("f32"), HasSubstr("f64"));
  EXPECT_THAT(message([&] { add(a, b); }), both);
  EXPECT_THAT(message([&] { matmul(a, b); }), both);
  EXPECT_THAT(message([&] { linear(a, b); }), both);
  EXPECT_THAT(message([&] { where(gt(a, a), a, b); }), both);
  EXPECT_THAT(message([&] { cat({a, b}); }), both);
  EXPECT_THAT(message([&] { layer_norm(a, {2}, ones({2}, {.dtype = DType::f64})); }), both);
  EXPECT_THAT(message([&] { where(a, a, a); }), HasSubstr("bool"));
  EXPECT_THAT(message([&] { embedding(a, a); }), HasSubstr("i64"));
  EXPECT_THAT(message([&] { gather(a, 0, a); }), HasSubstr("i64"));
}

TEST(IntegerOps, ComputeExactly) {
  const std::int64_t large = (std::int64_t{1} << 53) + 1;
  const Tensor a = tensor<std::int64_t>({large, -7}), b = tensor<std::int64_t>({2, 2});
  EXPECT_EQ((a + b).to_vector<std::int64_t>(), (std::vector<std::int64_t>{large + 2, -5}));
  EXPECT_EQ((a * b).to_vector<std::int64_t>(), (std::vector<std::int64_t>{2 * large, -14}));
  EXPECT_EQ((a / b).to_vector<std::int64_t>(), (std::vector<std::int64_t>{large / 2, -3}));
  EXPECT_EQ(sum(a).to_vector<std::int64_t>(), (std::vector<std::int64_t>{large - 7}));
  EXPECT_EQ(abs(a).to_vector<std::int64_t>(), (std::vector<std::int64_t>{large, 7}));
}

}  // namespace
}  // namespace lockstep::test
