#include "lockstep/nn/recurrent.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "lockstep/autograd/engine.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/nn/module_ptr.hpp"
#include "lockstep/nn/recurrent_cell.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/golden.hpp"
#include "support/grad_check.hpp"
#include "support/names_of.hpp"
#include "support/place.hpp"

namespace lockstep {
namespace {

using testing::expect_close;
using testing::GoldenCase;
using testing::names_of;

/// Options that made a golden case.
nn::RecurrentOptions options_of(const GoldenCase& golden) {
  return {.input_size = golden.inputs[0].size(2),
          .hidden_size = golden.outputs[1].size(2),
          .num_layers = golden.args.integer("num_layers", 1),
          .bias = golden.args.flag("bias", true),
          .batch_first = golden.args.flag("batch_first"),
          .bidirectional = golden.args.flag("bidirectional"),
          .tensor = {DType::f64}};
}

/// The first states among a case's inputs; undefined if there are none.
Tensor state_of(const GoldenCase& golden, std::size_t i, Device device) {
  const auto count = static_cast<std::size_t>(golden.args.integer("states"));
  return i < count ? golden.inputs[1 + i].to(device) : Tensor();
}

std::vector<Tensor> run(nn::LSTM& layer, const GoldenCase& golden, const Tensor& x) {
  const auto [y, state] =
      layer.forward(x, {state_of(golden, 0, x.device()), state_of(golden, 1, x.device())});
  return {y, std::get<0>(state), std::get<1>(state)};
}
std::vector<Tensor> run(nn::GRU& layer, const GoldenCase& golden, const Tensor& x) {
  const auto [y, h] = layer.forward(x, state_of(golden, 0, x.device()));
  return {y, h};
}

/// Loads PyTorch's parameters by their names, and compares outputs and all gradients.
template <class M>
void expect_golden(const GoldenCase& golden, Device device) {
  SCOPED_TRACE(golden.name);
  const auto layer = nn::make<M>(options_of(golden));
  const std::vector<std::string> names = names_of(layer->state_dict());
  EXPECT_EQ(names, golden.args.texts("parameters"));
  const auto first = 1 + static_cast<std::size_t>(golden.args.integer("states"));
  NamedTensors state;
  for (std::size_t i = 0; i < names.size(); ++i)
    state.emplace_back(names[i], golden.inputs[first + i]);
  layer->load_state_dict(state);
  layer->to(device);
  const Tensor x = golden.inputs[0].to(device).set_requires_grad();
  const std::vector<Tensor> outputs = run(*layer, golden, x);
  std::vector<Tensor> gradients;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    expect_close(outputs[i], golden.outputs[i], "output " + std::to_string(i));
    gradients.push_back(golden.grad_outputs[i].to(device));
  }
  autograd::Engine::run(outputs, gradients, false);
  expect_close(x.grad(), golden.grads[0], "gradient of x");
  const auto parameters = layer->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    expect_close(parameters[i].grad(), golden.grads[first + i], "gradient of " + names[i]);
}

void expect_all_golden(Device device) {
  for (const char* file : {"rnn", "layers"})
    for (const GoldenCase& golden : testing::load_golden(file)) {
      if (golden.op == "lstm") expect_golden<nn::LSTM>(golden, device);
      if (golden.op == "gru") expect_golden<nn::GRU>(golden, device);
    }
}

TEST(Recurrent, MatchesPyTorchByTheNamesOfItsParameters) { expect_all_golden(cpu); }

class RecurrentOnGpu : public testing::OnGpu {};
TEST_F(RecurrentOnGpu, MatchesPyTorchByTheNamesOfItsParameters) { expect_all_golden(device); }

std::vector<Tensor> run(const nn::ModulePtr<nn::LSTMCell>& cell, const std::vector<Tensor>& in) {
  const auto [h, c] = cell(in[0], nn::LSTMCell::State(in[1], in[2]));
  return {h, c};
}
std::vector<Tensor> run(const nn::ModulePtr<nn::GRUCell>& cell, const std::vector<Tensor>& in) {
  return {cell(in[0], in[1])};
}

template <class M>
void expect_golden_cell(const GoldenCase& golden, Device device) {
  SCOPED_TRACE(golden.name);
  const auto cell = nn::make<M>({.input_size = 4,
                                 .hidden_size = 3,
                                 .bias = golden.args.flag("bias"),
                                 .tensor = {DType::f64}});
  const std::vector<std::string> names = names_of(cell->state_dict());
  EXPECT_EQ(names, golden.args.texts("parameters"));
  const auto count = static_cast<std::size_t>(golden.args.integer("count"));
  NamedTensors state;
  for (std::size_t i = 0; i < names.size(); ++i)
    state.emplace_back(names[i], golden.inputs[count + i]);
  cell->load_state_dict(state);
  cell->to(device);
  std::vector<Tensor> in, gradients;
  for (std::size_t i = 0; i < count; ++i)
    in.push_back(golden.inputs[i].to(device).set_requires_grad());
  const std::vector<Tensor> outputs = run(cell, in);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    expect_close(outputs[i], golden.outputs[i], "output");
    gradients.push_back(golden.grad_outputs[i].to(device));
  }
  autograd::Engine::run(outputs, gradients, false);
  for (const Tensor& parameter : cell->parameters()) in.push_back(parameter);
  for (std::size_t i = 0; i < in.size(); ++i)
    expect_close(in[i].grad(), golden.grads[i], "gradient " + std::to_string(i));
}

void expect_all_golden_cells(Device device) {
  int cases = 0;
  for (const GoldenCase& golden : testing::load_golden("modules")) {
    if (golden.op == "lstm_cell") expect_golden_cell<nn::LSTMCell>(golden, device);
    if (golden.op == "gru_cell") expect_golden_cell<nn::GRUCell>(golden, device);
    cases += golden.op.ends_with("_cell");
  }
  EXPECT_EQ(cases, 4);
}

TEST(RecurrentCells, MatchPyTorchByTheNamesOfTheirParameters) { expect_all_golden_cells(cpu); }
TEST_F(RecurrentOnGpu, CellsMatchPyTorch) { expect_all_golden_cells(device); }

TEST(RecurrentCells, MakeTheStepsOfTheirLayers) {
  const auto layer =
      nn::make<nn::LSTM>({.input_size = 3, .hidden_size = 4, .tensor = {DType::f64}});
  const auto cell =
      nn::make<nn::LSTMCell>({.input_size = 3, .hidden_size = 4, .tensor = {DType::f64}});
  NamedTensors state;
  for (const auto& [name, tensor] : layer->state_dict())
    state.emplace_back(name.substr(0, name.find("_l0")), tensor);
  cell->load_state_dict(state);
  const Tensor x = randn({5, 2, 3}, DType::f64);
  nn::LSTMCell::State now;
  for (std::int64_t t = 0; t < 5; ++t) now = cell(x[t], now);
  const auto [y, last] = layer(x);
  EXPECT_TRUE(allclose(std::get<0>(now), y[4], 1e-12, 1e-12));
  EXPECT_TRUE(allclose(std::get<1>(now), std::get<1>(last)[0], 1e-12, 1e-12));
}

TEST(RecurrentCells, HaveTheRightGradients) {
  const nn::RecurrentCellOptions options{.input_size = 3, .hidden_size = 2, .tensor = {DType::f64}};
  const auto lstm = nn::make<nn::LSTMCell>(options);
  const auto gru = nn::make<nn::GRUCell>(options);
  testing::expect_gradients(
      [&](const std::vector<Tensor>& in) {
        const auto [h, c] = lstm(in[0], lstm(in[0], nn::LSTMCell::State(in[1], in[2])));
        return h + c * gru(in[0], in[1]);
      },
      {randn({2, 3}, DType::f64), randn({2, 2}, DType::f64), randn({2, 2}, DType::f64)});
}

TEST(RecurrentCells, RefuseWhatDoesNotFit) {
  const auto cell = nn::make<nn::GRUCell>(3, 4);
  EXPECT_EQ(cell(randn({2, 3})).shape(), (Shape{2, 4}));
  EXPECT_EQ(cell(randn({0, 3})).shape(), (Shape{0, 4}));
  EXPECT_THROW(cell(randn({3})), InvalidArgument);
  EXPECT_THROW(cell(randn({2, 4})), InvalidArgument);
  EXPECT_THROW(cell(randn({2, 3}), randn({2, 3})), InvalidArgument);
  EXPECT_THROW(nn::make<nn::LSTMCell>(3, 0), InvalidArgument);
}

TEST(Recurrent, StartsUniformWithinTheRootOfItsStates) {
  const auto layer = nn::make<nn::LSTM>({.input_size = 30, .hidden_size = 25, .num_layers = 2});
  for (const auto& [name, parameter] : layer->named_parameters()) {
    EXPECT_LE(amax(abs(parameter)).item(), 0.2) << name;
    EXPECT_GT(amax(abs(parameter)).item(), 0.17) << name;
  }
  EXPECT_EQ(layer->weights(1).input.shape(), (Shape{100, 25}));
}

TEST(Recurrent, RunsBothWaysAsTwoLayersOverReversedSteps) {
  const auto both = nn::make<nn::GRU>(
      {.input_size = 3, .hidden_size = 2, .bidirectional = true, .tensor = {DType::f64}});
  const Tensor x = randn({5, 4, 3}, DType::f64);
  const auto [y, h] = both(x);
  const Tensor ahead = gru_layer(x, {}, both->weights(0));
  const Tensor back = flip(gru_layer(flip(x, {0}), {}, both->weights(0, true)), {0});
  EXPECT_TRUE(allclose(y, cat({ahead, back}, 2), 1e-12, 1e-12));
  EXPECT_TRUE(equal(h, stack({y.slice(2, 0, 2).select(0, 4), y.slice(2, 2, 4).select(0, 0)})));
  EXPECT_THROW(both->weights(1), InvalidArgument);
}

TEST(Recurrent, ContinuesFromItsLastState) {
  const auto layer = nn::make<nn::LSTM>(
      {.input_size = 3, .hidden_size = 4, .num_layers = 2, .tensor = {DType::f64}});
  const Tensor x = randn({6, 2, 3}, DType::f64);
  const auto [whole, last] = layer(x);
  const auto [first, between] = layer(x.slice(0, 0, 2));
  const auto [second, end] = layer(x.slice(0, 2, 6), between);
  EXPECT_TRUE(allclose(whole, cat({first, second}), 1e-12, 1e-12));
  EXPECT_TRUE(allclose(std::get<1>(last), std::get<1>(end), 1e-12, 1e-12));
}

TEST(Recurrent, DropsOutBetweenLayersInTrainingOnly) {
  nn::RecurrentOptions options{.input_size = 3, .hidden_size = 8, .num_layers = 2, .dropout = 0.5};
  const auto layer = nn::make<nn::GRU>(options);
  const Tensor x = randn({4, 2, 3});
  manual_seed(3);
  const Tensor once = std::get<0>(layer(x));
  manual_seed(3);
  EXPECT_TRUE(equal(std::get<0>(layer(x)), once));
  EXPECT_FALSE(equal(std::get<0>(layer(x)), once));
  layer->eval();
  EXPECT_TRUE(equal(std::get<0>(layer(x)), std::get<0>(layer(x))));
}

TEST(Recurrent, TakesNoSequencesButNotNoSteps) {
  const auto layer = nn::make<nn::LSTM>(3, 4);
  const auto [y, state] = layer(randn({5, 0, 3}));
  EXPECT_EQ(y.shape(), (Shape{5, 0, 4}));
  sum(y).backward();
  EXPECT_TRUE(equal(layer->weights(0).hidden.grad(), zeros({16, 4})));
  EXPECT_THROW(layer(randn({0, 2, 3})), InvalidArgument);
}

TEST(Recurrent, RefusesWhatDoesNotFit) {
  const auto layer = nn::make<nn::LSTM>({.input_size = 3, .hidden_size = 4, .batch_first = true});
  const Tensor x = randn({2, 5, 3});
  EXPECT_THROW(layer(randn({2, 3})), InvalidArgument);
  EXPECT_THROW(layer(randn({2, 5, 4})), InvalidArgument);
  EXPECT_THROW(layer(x, nn::LSTM::State(zeros({1, 5, 4}), zeros({1, 5, 4}))), InvalidArgument);
  EXPECT_NO_THROW(layer(x, nn::LSTM::State(zeros({1, 2, 4}), zeros({1, 2, 4}))));
  EXPECT_THROW(nn::make<nn::GRU>(0, 4), InvalidArgument);
  EXPECT_THROW(nn::make<nn::GRU>({.input_size = 3, .hidden_size = 4, .dropout = 2}),
               InvalidArgument);
}

TEST(Recurrent, KeepsTheCellStateOfBf16InF32) {
  // Steps of 2^-10 are lost in a bf16 sum beyond 1/4.
  const std::int64_t steps = 2048;
  const TensorOptions bf16{DType::bf16};
  const Tensor x = zeros({steps, 1, 1}, bf16);
  // Gates: input 1, forget 1, cell 2^-10, output 1.
  const Tensor bias = tensor<float>({30.0F, 30.0F, std::atanh(0x1p-10F), 30.0F}).to(DType::bf16);
  const RecurrentWeights weights{zeros({4, 1}, bf16), zeros({4, 1}, bf16), bias, zeros({4}, bf16)};
  const auto [y, c] = lstm_layer(x, {}, {}, weights);
  EXPECT_NEAR(c.item(), 2.0, 0.02);
}

}  // namespace
}  // namespace lockstep
