#include <iostream>

#include "lockstep/lockstep.hpp"

namespace ls = lockstep;
namespace nn = ls::nn;

constexpr ls::OpDescriptor cube_op{.name = "cube"};  // floating dtypes, run as given

ls::Tensor cube(const ls::Tensor& x_in) {
  using namespace ls::autograd;
  const OpCall call(cube_op, x_in);
  const ls::Tensor& x = call[0];
  ls::Tensor y = ls::no_grad([&] { return x * x * x; });  // or a loop over x.flat<float>()
  if (!call.recording()) return y;
  const auto backward = [x = SavedTensor(x)](const ls::Tensor& dy, InputGradients& dx) {
    dx.set(0, dy * ls::square(dx.operand(0, x)) * 3.0);
  };
  return call.record(y, Differentiable{backward});
}

struct GatedLinear : nn::Module {
  GatedLinear(std::int64_t in, std::int64_t out)
      : value(this, "value", in, out), gate(this, "gate", in, out) {}
  ls::Tensor forward(const ls::Tensor& x) const { return value(x) * ls::sigmoid(gate(x)); }

  nn::Child<nn::Linear> value;
  nn::Child<nn::Linear> gate;
};

// Ends with 1 unless the backwards of op and layer agree with differences.
int main() {
  const auto result = ls::grad_check([](const auto& in) { return cube(in[0]); },
                                     {ls::rand({3, 4}, {ls::DType::f64})});
  if (!result) std::cerr << result.mismatch << '\n';  // "input 0, element 3: backward gives ..."

  const auto second = ls::grad_grad_check([](const auto& in) { return cube(in[0]); },
                                          {ls::rand({3, 4}, {ls::DType::f64})});
  if (!second) std::cerr << second.mismatch << '\n';

  auto layer = nn::make<GatedLinear>(16, 32);
  layer->to(ls::DType::f64);
  const ls::Tensor x = ls::rand({2, 16}, {ls::DType::f64});
  const auto of_layer = ls::grad_check([&](const auto&) { return layer->forward(x); },
                                       {layer->value->weight, layer->gate->bias});
  if (!of_layer) std::cerr << of_layer.mismatch << '\n';

  bool on_gpu = true;
  if (ls::cuda_device_count() > 0)
    on_gpu = static_cast<bool>(ls::grad_check([](const auto& in) { return cube(in[0]); },
                                              {ls::rand({3, 4}, {ls::DType::f64, ls::cuda(0)})}));
  if (!result || !second || !of_layer || !on_gpu) return 1;
  std::cout << "all gradients match\n";
}
