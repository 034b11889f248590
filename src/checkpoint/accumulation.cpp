#include "checkpoint/accumulation.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/nn/distributed_data_parallel.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::checkpoint {
namespace {

constexpr std::string_view accumulation_prefix = "accumulation/";
constexpr std::string_view gradient_prefix = "accumulation/gradient/";
constexpr std::string_view present_name = "accumulation/present_by_name";
constexpr std::string_view weights_name = "accumulation/weights";

double number_of(const Tensor& scalar) { return scalar.defined() ? scalar.item() : 0; }

/// Where parameters stand in the order of their names, which that of their registration may not be.
std::vector<std::size_t> in_order_of_names(const NamedTensors& parameters) {
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {},
                    [&](std::size_t i) -> const std::string& { return parameters[i].first; });
  return order;
}

/// The gradients, with zeros for those that this rank lacks, maybe all, so that all ranks have the
/// same; which those are; and of weighted ones weight and unit, and of how many ranks they are.
std::vector<Piece> accumulation_of(const nn::ReplicatedModule& replica) {
  const NamedTensors parameters = replica.trained_parameters();
  parallel::Accumulated all{
      .gradients = std::vector<Tensor>(parameters.size()), .weight = {}, .unit = {}};
  if (replica.has_accumulated()) all = replica.reducer().accumulated();
  std::vector<Piece> pieces;
  std::vector<double> present;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, parameter] = parameters[i];
    const Tensor& gradient = all.gradients[i];
    pieces.push_back(
        {.name = std::string(gradient_prefix) + name,
         .tensor = gradient.defined() ? gradient : zeros(parameter.shape(), parameter.options())});
  }
  for (const std::size_t i : in_order_of_names(parameters))
    present.push_back(all.gradients[i].defined() ? 1 : 0);
  pieces.push_back({.name = std::string(present_name), .tensor = tensor(present)});
  pieces.push_back({.name = std::string(weights_name),
                    .tensor = tensor({number_of(all.weight), number_of(all.unit),
                                      static_cast<double>(replica.group()->size())})});
  return pieces;
}

/// @throws InvalidArgument where it is missing, or of another form.
const Tensor& checked_tensor(const NamedTensors& tensors, std::string_view name, const Shape& shape,
                             DType dtype = DType::f64) {
  const auto found = std::ranges::find(tensors, name, &NamedTensors::value_type::first);
  LOCKSTEP_CHECK(found != tensors.end(), InvalidArgument,
                 "the state has gradients of backwards "
                 "under no_sync(), but not ",
                 name);
  LOCKSTEP_CHECK(found->second.shape() == shape && found->second.dtype() == dtype, InvalidArgument,
                 name, " is ", found->second.shape(), " in ", found->second.dtype(), " there and ",
                 shape, " in ", dtype, " here");
  return found->second;
}

/// What `accumulation_of` gave, on this rank or averaged over all that there were.
parallel::Accumulated accumulation_from(const NamedTensors& tensors,
                                        const nn::ReplicatedModule& replica) {
  const NamedTensors parameters = replica.trained_parameters();
  const auto count = static_cast<std::int64_t>(parameters.size());
  const Tensor& present = checked_tensor(tensors, present_name, {count});
  const Tensor& weights = checked_tensor(tensors, weights_name, {3});
  const Device device = replica.group()->device();
  parallel::Accumulated all;
  all.gradients.resize(parameters.size());
  const std::vector<std::size_t> order = in_order_of_names(parameters);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t place = order[static_cast<std::size_t>(i)];
    const auto& [name, parameter] = parameters[place];
    const Tensor& gradient = checked_tensor(tensors, std::string(gradient_prefix) + name,
                                            parameter.shape(), parameter.dtype());
    if (present.select(0, i).item() > 0) all.gradients[place] = gradient.to(device);
  }
  if (weights.select(0, 1).item() == 0) return all;
  LOCKSTEP_CHECK(weights.select(0, 2).item() == replica.group()->size(), InvalidArgument,
                 "the state is of a step between micro-batches that have weights, of ",
                 weights.select(0, 2).item(), " ranks: it goes on on as many, not on ",
                 replica.group()->size(), "; take a checkpoint between two steps");
  all.weight = weights.select(0, 0).to(device).clone();
  all.unit = weights.select(0, 1).to(device).clone();
  return all;
}

std::pair<NamedTensors, NamedTensors> taken_apart(const NamedTensors& tensors) {
  std::pair<NamedTensors, NamedTensors> parts;
  for (const auto& [name, tensor] : tensors)
    (is_accumulation(name) ? parts.first : parts.second).emplace_back(name, tensor);
  return parts;
}

}  // namespace

bool is_accumulation(std::string_view name) { return name.starts_with(accumulation_prefix); }

NamedTensors without_accumulation(NamedTensors tensors) {
  std::erase_if(tensors, [](const auto& each) {
    return each.first.starts_with(std::string("each_rank/").append(accumulation_prefix));
  });
  return tensors;
}

TensorState with_accumulation(TensorState state, nn::ReplicatedModule& replica) {
  const auto load = state.load;
  const auto load_what_fits = state.load_what_fits;
  state.more = [&replica] { return accumulation_of(replica); };
  state.has_more = [&replica] { return replica.has_accumulated(); };
  state.load = [load, &replica](const NamedTensors& tensors) {
    const auto [accumulation, rest] = taken_apart(tensors);
    load(rest);  // says first what of the model does not fit
    if (accumulation.empty()) return replica.drop_accumulated();
    replica.set_accumulated(accumulation_from(accumulation, replica));
  };
  state.load_what_fits = [load_what_fits, &replica](const NamedTensors& tensors) {
    const auto [accumulation, rest] = taken_apart(tensors);
    std::vector<std::string> left = load_what_fits(rest);
    if (accumulation.empty())
      replica.drop_accumulated();
    else if (left.empty())
      replica.set_accumulated(accumulation_from(accumulation, replica));
    else
      left.push_back("gradients between micro-batches: of another model");
    return left;
  };
  return state;
}

}  // namespace lockstep::checkpoint
