#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/tensor/named_tensors.hpp"

/// @file
/// The base of optimizers.

namespace lockstep::optim {

/// Parameters that share options.
template <class Options>
struct ParameterGroup {
  std::vector<Tensor> parameters;
  Options options = {};
};

/// What an optimizer keeps for one parameter.
struct ParameterState {
  Tensor parameter;
  std::size_t group = 0;
  std::int64_t steps = 0;       ///< updates so far
  std::array<Tensor, 3> state;  ///< what the optimizer remembers; undefined until the first step
};

/// Changes parameters by their gradients. Parameters without a gradient are left alone, and so is
/// what is remembered of them. Work is queued on the current stream of the parameters' device.
class Optimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  /// Updates all parameters that have a gradient.
  void step();
  /// Clears all gradients, or with `set_to_none = false` fills those present with zeros.
  void zero_grad(bool set_to_none = true);

  /// Number of parameter groups.
  std::size_t group_count() const noexcept { return group_count_; }
  /// All parameters, group after group.
  std::vector<Tensor> parameters() const;
  /// Learning rate of a group. @throws InvalidArgument for a group that does not exist.
  virtual double lr(std::size_t group = 0) const = 0;
  /// Sets the learning rate of a group. @throws InvalidArgument as above.
  virtual void set_lr(double lr, std::size_t group) = 0;
  /// Sets the learning rate of all groups.
  void set_lr(double lr);

  /// What is remembered, for checkpoints: "3.exp_avg" for the fourth parameter, and "3.step", i64.
  /// Tensors share memory with the optimizer. Options are not in it.
  NamedTensors state_dict() const;
  /// Takes over what `state_dict` gave. Changes nothing if it throws.
  /// @throws InvalidArgument naming an unexpected key, or a shape or dtype that does not fit.
  void load_state_dict(const NamedTensors& state);

 protected:
  /// @param state_names what the tensors of ParameterState::state are called; lives for ever.
  explicit Optimizer(std::span<const std::string_view> state_names) : state_names_(state_names) {}
  /// Adds a group. @throws InvalidArgument for no parameters, one that is there already, or one
  /// that is not a contiguous leaf of floating dtype.
  void add_group(std::span<const Tensor> parameters);
  /// Updates parameters of one group, device and dtype that have all made `step - 1` steps.
  virtual void update(std::size_t group, std::span<ParameterState* const> parameters,
                      std::int64_t step) = 0;

 private:
  void update_batch(std::vector<ParameterState*>& pending);

  std::span<const std::string_view> state_names_;
  std::vector<ParameterState> states_;
  std::size_t group_count_ = 0;
};

/// An optimizer whose groups have options of one type, which has a member `lr`.
template <class GroupOptions>
class OptimizerWith : public Optimizer {
 public:
  using Options = GroupOptions;
  using Groups = std::vector<ParameterGroup<Options>>;

  /// Options of a group. @throws InvalidArgument for a group that does not exist.
  const Options& options(std::size_t group = 0) const { return options_[checked(group)]; }
  double lr(std::size_t group = 0) const override { return options(group).lr; }
  using Optimizer::set_lr;
  void set_lr(double lr, std::size_t group) override { options_[checked(group)].lr = lr; }

 protected:
  OptimizerWith(const Groups& groups, std::span<const std::string_view> state_names)
      : Optimizer(state_names) {
    for (const auto& group : groups) {
      add_group(group.parameters);
      options_.push_back(group.options);
    }
  }

 private:
  std::size_t checked(std::size_t group) const {
    LOCKSTEP_CHECK(group < options_.size(), InvalidArgument, "parameter group ", group,
                   " of an optimizer that has ", options_.size());
    return group;
  }

  std::vector<Options> options_;
};

}  // namespace lockstep::optim
