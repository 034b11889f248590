#include <algorithm>
#include <exception>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "contract/golden_ops.hpp"
#include "lockstep/autograd/engine.hpp"
#include "support/golden.hpp"
#include "support/one_case.hpp"
#include "support/place.hpp"

namespace lockstep::test {
namespace {

using testing::expect_close;
using testing::golden_tolerance;
using testing::load_golden;
using testing::load_golden_case;
using testing::Place;

constexpr std::string_view files[] = {"elementwise", "reduce", "shape", "matmul", "loss",
                                      "norm",        "conv",   "rnn",   "layers", "tensor_ops"};

/// Ops of the golden files that lockstep does not have (yet).
bool is_left_out(std::string_view op) {
  constexpr std::string_view left_out[] = {"conv3d"};
  return std::ranges::find(left_out, op) != std::end(left_out);
}

/// Cases whose inputs, rounded to 16 bits, no longer say what the result is.
bool needs_more_than_16_bits(std::string_view name) {
  constexpr std::string_view names[] = {"layer_norm_offset"};
  return std::ranges::find(names, name) != std::end(names);
}

/// What a case may be off by, relative to the largest magnitude.
double tolerance(std::string_view name, DType dtype) {
  // Exact arithmetic on inputs rounded to f32 is further off than 1e-5 here: values of 10,000 whose
  // spread is 1, and a gradient of which all but 1e-5 cancels.
  const bool cancels = name == "layer_norm_offset" || name == "softmax_large";
  return cancels && dtype == DType::f32 ? 1e-3 : golden_tolerance(dtype);
}

/// Files whose cases run in bf16 and f16 too.
bool has_16_bit_cases(std::string_view file) {
  return file == "elementwise" || file == "matmul" || file == "loss" || file == "norm";
}

/// One golden case on one CPU backend in one dtype.
struct Param {
  std::string file, name;
  std::string_view backend;
  DType dtype;
};

std::ostream& operator<<(std::ostream& out, const Param& param) {
  return out << param.file << '/' << param.name << " on " << param.backend << " in " << param.dtype;
}

std::string text_of(const Param& param) {
  std::string text = param.file + "_" + param.name + "_" + std::string(param.backend) + "_" +
                     std::string(name(param.dtype));
  // Google Test wants letters, digits and underscores.
  for (std::size_t at; (at = text.find('-')) != std::string::npos;) text.replace(at, 1, "minus");
  return text;
}
std::string param_name(const ::testing::TestParamInfo<Param>& info) { return text_of(info.param); }

std::vector<DType> dtypes_of(std::string_view file, std::string_view name) {
  if (has_16_bit_cases(file) && !needs_more_than_16_bits(name))
    return {DType::f64, DType::f32, DType::bf16, DType::f16};
  return {DType::f64, DType::f32};
}

/// The whole product, as far as a case that runs has it. Empty where the files are missing; a test
/// below reports that.
std::vector<Param> all_params() try {
  std::vector<Param> params;
  const std::string only = testing::one_case(), own = "Golden/Ops.MatchesPyTorch/";
  if (!only.empty() && !only.starts_with(own)) return {};
  for (const std::string_view file : files) {
    if (!only.empty() && !only.starts_with(own + std::string(file) + "_")) continue;
    for (const GoldenCase& each : load_golden(file)) {
      if (is_left_out(each.op)) continue;
      for (const auto backend : backend::cpu_backends())
        for (const DType dtype : dtypes_of(file, each.name))
          if (Param param{std::string(file), each.name, backend, dtype};
              testing::is_wanted(text_of(param)))
            params.push_back(std::move(param));
    }
  }
  return params;
} catch (const std::exception&) {
  return {};
}

/// Copies of the inputs where and in the dtype under test, requiring a gradient where the case has
/// one.
std::vector<Tensor> prepare(const GoldenCase& golden, const Place& place, DType dtype) {
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < golden.inputs.size(); ++i) {
    const Tensor& input = golden.inputs[i];
    const Tensor typed = is_floating(input.dtype()) ? input.clone().to(dtype) : input;
    inputs.push_back(typed.to(place.device));
    const bool wanted = i < golden.grads.size() && golden.grads[i].defined();
    if (wanted) inputs.back().set_requires_grad();
  }
  return inputs;
}

void check_outputs(const GoldenCase& golden, const std::vector<Tensor>& outputs, DType dtype) {
  ASSERT_EQ(outputs.size(), golden.outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const bool floating = is_floating(golden.outputs[i].dtype());
    EXPECT_EQ(is_floating(outputs[i].dtype()), floating);
    expect_close(outputs[i], golden.outputs[i], floating ? tolerance(golden.name, dtype) : 0.0,
                 "output " + std::to_string(i));
  }
}

void check_gradients(const GoldenCase& golden, const std::vector<Tensor>& inputs,
                     const std::vector<Tensor>& outputs, DType dtype) {
  const std::size_t count = golden.grad_outputs.size();
  if (count == 0) return;
  std::vector<Tensor> gradients;
  for (std::size_t i = 0; i < count; ++i)
    gradients.push_back(golden.grad_outputs[i].to(outputs[i].device(), outputs[i].dtype()));
  autograd::Engine::run({outputs.data(), count}, gradients, false);
  for (std::size_t i = 0; i < golden.grads.size(); ++i)
    if (golden.grads[i].defined())
      expect_close(inputs[i].grad(), golden.grads[i], tolerance(golden.name, dtype),
                   "gradient of input " + std::to_string(i));
}

void check_case(const GoldenCase& golden, const Place& place, DType dtype) {
  const ::testing::ScopedTrace trace(
      __FILE__, __LINE__,
      lockstep::detail::concat(golden.name, " ", golden.args.json(), " on ", place, " in ", dtype));
  const auto op = golden_ops().find(golden.op);
  ASSERT_NE(op, golden_ops().end()) << "no op " << golden.op << " in contract/golden_ops.hpp";
  const testing::PlaceScope scope(place);
  const std::vector<Tensor> inputs = prepare(golden, place, dtype);
  const std::vector<Tensor> outputs = op->second({inputs, golden.args});
  check_outputs(golden, outputs, dtype);
  const bool wide = dtype == DType::f64 || dtype == DType::f32;
  if (wide && !::testing::Test::HasFatalFailure()) check_gradients(golden, inputs, outputs, dtype);
}

class Ops : public ::testing::TestWithParam<Param> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Ops);

TEST_P(Ops, MatchesPyTorch) {
  const Param& param = GetParam();
  check_case(load_golden_case(param.file, param.name), {param.backend, cpu}, param.dtype);
}

INSTANTIATE_TEST_SUITE_P(Golden, Ops, ::testing::ValuesIn(all_params()), param_name);

// The list of cases above is made when ctest's list is; LOCKSTEP_GOLDEN_DIR may name other files.
/// One file of golden cases in one dtype, all of them on the GPU.
using GpuParam = std::tuple<std::string_view, DType>;

std::string gpu_param_name(const ::testing::TestParamInfo<GpuParam>& info) {
  const auto& [file, dtype] = info.param;
  return std::string(file) + "_" + std::string(name(dtype));
}

class GpuOps : public ::testing::TestWithParam<GpuParam> {};

TEST_P(GpuOps, MatchPyTorch) {
  const auto places = testing::gpu_places();
  if (places.empty() || testing::is_missing(places[0])) GTEST_SKIP() << "no GPU";
  const auto& [file, dtype] = GetParam();
  for (const GoldenCase& golden : load_golden(file)) {
    if (is_left_out(golden.op)) continue;
    const auto dtypes = dtypes_of(file, golden.name);
    if (std::ranges::find(dtypes, dtype) != dtypes.end()) check_case(golden, places[0], dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, GpuOps,
                         ::testing::Combine(::testing::ValuesIn(files),
                                            ::testing::Values(DType::f64, DType::f32, DType::bf16,
                                                              DType::f16)),
                         gpu_param_name);

TEST(GoldenDirectory, HoldsNoCaseThatDoesNotMatch) {
  for (const auto file : files) {
    const auto cases = load_golden(file);
    EXPECT_FALSE(cases.empty()) << file;
    for (const GoldenCase& golden : cases) {
      if (is_left_out(golden.op)) continue;
      for (const auto backend : backend::cpu_backends())
        for (const DType dtype : dtypes_of(file, golden.name))
          check_case(golden, {backend, cpu}, dtype);
    }
  }
}

}  // namespace
}  // namespace lockstep::test
